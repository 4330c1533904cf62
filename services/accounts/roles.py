"""What roles may do, and which role an identity provider's groups give."""

from collections.abc import Mapping

from msgspec import Struct

from services.common.account_messages import ROLES, USER_SCOPES, ExternalIdentity, Principal, Role, Scope
from services.common.errors import Forbidden

MACHINE = ("cli", "system", "owner")
"""Actors that are no user and no key: whoever holds the machine."""


def scopes_of(role: Role, operator: bool) -> tuple[Scope, ...]:
    """The most that somebody with this role may do. operator: the organisation runs the installation."""
    scopes = USER_SCOPES
    if role != "member":
        scopes += ("admin",)
    if role == "owner" and operator:
        scopes += ("operator",)
    return scopes


def may_manage(who: Principal, tenant: str, role: Role) -> bool:
    """Whether they may make somebody of the organisation what `role` says, or touch who is: of their own, or of any
    where they run the installation; and no role above their own."""
    here = "operator" in who.scopes or (who.tenant == tenant and "admin" in who.scopes)
    return here and ROLES.index(who.role) >= ROLES.index(role)


class OidcMapping(Struct, frozen=True, kw_only=True):
    """Who may sign in through the identity provider, to which organisation, and with which role."""

    tenant: str
    default_role: Role | None = None
    """Of somebody in none of the groups; None: such people are refused."""
    groups: Mapping[str, Role] = {}


def mapped_role(mapping: OidcMapping, identity: ExternalIdentity) -> Role:
    """The highest role of the groups, else the default. Errors: `Forbidden` where there is neither."""
    roles = {mapping.groups[group] for group in identity.groups if group in mapping.groups}
    if roles:
        return max(roles, key=ROLES.index)
    if mapping.default_role is None:
        raise Forbidden("Your account at the identity provider is in no group that may sign in here.")
    return mapping.default_role
