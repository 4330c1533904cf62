"""Every query on invites. SQLite and PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounts.organisation_store import organisation_exists
from services.accounts.store import Queries, owned
from services.accounts.tables import invites, organisations
from services.accounts.text import storable
from services.common.account_messages import Invite

_INVITE = [invites.c[name] for name in Invite.__struct_fields__ if name not in ("organisation", "token")]


async def consume(db: AsyncConnection, digest: str, user_id: str, email: str, now: float) -> Invite | None:
    """Uses the invite up for a new user, in the caller's transaction, which also notes `invite.accept`.

    None if it is unknown, used, expired or somebody else's, or if its organisation is suspended: of two that race for
    one, one gets it. `email` is in lower case.
    """
    active = select(organisations.c.id).where(organisations.c.suspended.is_(False))
    good = (invites.c.accepted_by == "", invites.c.expires > now, invites.c.tenant.in_(active))
    addressed = or_(invites.c.email == "", invites.c.email == email)
    used = update(invites).where(invites.c.digest == digest, *good, addressed).values(accepted_by=user_id)
    row = (await db.execute(used.returning(*_INVITE))).one_or_none()
    return _invite(row) if row else None


class InviteQueries(Queries):
    async def organisation_exists(self, tenant: str) -> bool:
        return await organisation_exists(self.connection, tenant)

    async def add(self, invite: Invite, digest: str) -> None:
        row = {column.name: getattr(invite, column.name) for column in _INVITE}
        await self.connection.execute(insert(invites).values(row | {"digest": digest}))

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
        return _invite(row) if row else None

    async def remove(self, tenant: str, id: str) -> bool:
        """False if the tenant has no such invite."""
        chosen = delete(invites).where(owned(invites, tenant, id))
        return (await self.connection.execute(chosen)).rowcount > 0


def _invite(row: Row[*tuple[Any, ...]]) -> Invite:
    return Invite(**row._mapping)
