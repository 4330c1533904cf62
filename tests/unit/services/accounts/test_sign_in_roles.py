import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.accounts.roles import OidcMapping, mapped_role, scopes_of
from services.common.account_messages import ROLES, USER_SCOPES, ExternalIdentity, Role
from services.common.errors import Forbidden

roles = st.sampled_from(ROLES)
names = st.text(max_size=3)


def in_groups(*groups: str) -> ExternalIdentity:
    return ExternalIdentity(issuer="i", subject="s", email="a@b.c", groups=groups)


@given(st.dictionaries(names, roles), st.lists(names), st.one_of(st.none(), roles))
def test_the_highest_of_the_groups_counts(mapped: dict[str, Role], groups: list[str], default: Role | None) -> None:
    mapping = OidcMapping(tenant="a", default_role=default, groups=mapped)
    matching = [mapped[group] for group in groups if group in mapped]
    try:
        role = mapped_role(mapping, in_groups(*groups))
    except Forbidden:
        assert not matching
        assert default is None
    else:
        assert all(ROLES.index(role) >= ROLES.index(other) for other in matching)
        assert role in (matching or [default])


def test_a_group_is_matched_whole_and_to_the_letter() -> None:
    mapping = OidcMapping(tenant="a", groups={"admins": "owner"})
    for group in ("Admins", "admins ", "admin", "x/admins", ""):
        with pytest.raises(Forbidden):
            mapped_role(mapping, in_groups(group))


@given(roles, st.booleans())
def test_a_higher_role_may_all_that_a_lower_may(role: Role, operator: bool) -> None:
    scopes = scopes_of(role, operator)
    assert set(USER_SCOPES) <= set(scopes)
    assert all(set(scopes_of(lower, operator)) <= set(scopes) for lower in ROLES[: ROLES.index(role)])
    assert ("admin" in scopes) == (role != "member")
    assert ("operator" in scopes) == (role == "owner" and operator)
