"""Every query on invites. SQLite and PostgreSQL."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounts import principal_store as principals
from services.accounts.organisation_store import organisation_exists
from services.accounts.roles import MACHINE, may_manage
from services.accounts.store import Queries, owned
from services.accounts.tables import invites, organisations
from services.common.account_messages import Invite, Role
from services.common.texts import storable

_INVITE = [invites.c[name] for name in Invite.__struct_fields__ if name not in ("organisation", "token")]


class Accepted(NamedTuple):
    invite: Invite
    vouched_for: bool
    """An owner has sent it to this very address."""


async def consume(db: AsyncConnection, digest: str, user_id: str, email: str, now: float) -> Accepted | None:
    """Uses the invite up for a new user, in the caller's transaction, which also notes `invite.accept`.

    None if it is unknown, used, expired or somebody else's, if its maker may no longer invite, or if its organisation
    is suspended: of two that race for one, one gets it. `email` is in lower case.
    """
    maker = await _standing(db, digest, now)
    if maker is None:
        return None
    active = select(organisations.c.id).where(organisations.c.suspended.is_(False))
    good = (invites.c.accepted_by == "", invites.c.expires > now, invites.c.tenant.in_(active))
    addressed = or_(invites.c.email == "", invites.c.email == email)
    used = update(invites).where(invites.c.digest == digest, *good, addressed).values(accepted_by=user_id)
    row = (await db.execute(used.returning(*_INVITE))).one_or_none()
    return Accepted(_invite(row), vouched_for=row.email != "" and maker == "owner") if row else None


async def _standing(db: AsyncConnection, digest: str, now: float) -> Role | None:
    """The role with which the maker stands behind an invite now; None if they do not, or if there is no such invite."""
    chosen = select(invites.c.tenant, invites.c.role, invites.c.made_by).where(invites.c.digest == digest)
    row = (await db.execute(chosen)).one_or_none()
    if row is None:
        return None
    if not row.made_by:  # it is older than the column: good for what it says, and proof of nothing
        return "member"
    if row.made_by in MACHINE:
        return "owner"
    maker = await principals.of_actor(db, row.made_by, now)
    return maker.role if maker and may_manage(maker, row.tenant, row.role) else None


class InviteQueries(Queries):
    async def organisation_exists(self, tenant: str) -> bool:
        return await organisation_exists(self.connection, tenant)

    async def add(self, invite: Invite, digest: str, made_by: str) -> None:
        row = {column.name: getattr(invite, column.name) for column in _INVITE}
        await self.connection.execute(insert(invites).values(row | {"digest": digest, "made_by": made_by}))

    async def of(self, tenant: str) -> Sequence[Invite]:
        """Oldest first."""
        chosen = select(*_INVITE).where(invites.c.tenant == storable(tenant)).order_by(invites.c.created, invites.c.id)
        return tuple(_invite(row) for row in await self.connection.execute(chosen))

    async def open(self, digest: str, now: float) -> Invite | None:
        """With the name of its organisation. None if it cannot be accepted."""
        chosen = (
            select(*_INVITE, organisations.c.name.label("organisation"))
            .join(organisations, organisations.c.id == invites.c.tenant)
            .where(invites.c.digest == digest, invites.c.accepted_by == "", invites.c.expires > now)
            .where(organisations.c.suspended.is_(False))
        )
        row = (await self.connection.execute(chosen)).one_or_none()
        return _invite(row) if row and await _standing(self.connection, digest, now) else None

    async def remove(self, tenant: str, id: str) -> bool:
        """False if the tenant has no such invite."""
        chosen = delete(invites).where(owned(invites, tenant, id))
        return (await self.connection.execute(chosen)).rowcount > 0


def _invite(row: Row[*tuple[Any, ...]]) -> Invite:
    return Invite(**row._mapping)
