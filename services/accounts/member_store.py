"""Every query on the members of an organisation. SQLite and PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, select, update

from services.accounts import principal_store as principals
from services.accounts.key_store import revoke_keys_of
from services.accounts.session_store import remove_sessions_of
from services.accounts.store import Queries, owned
from services.accounts.tables import identities, users
from services.common.account_messages import Member, Principal
from services.common.messages import Json
from services.common.texts import storable

_MEMBER: list[ColumnElement[Any]] = [
    *(users.c[name] for name in Member.__struct_fields__ if name != "has_password"),
    users.c.password.is_not(None).label("has_password"),
]


class MemberQueries(Queries):
    async def of(self, tenant: str) -> Sequence[Member]:
        """Oldest first."""
        chosen = select(*_MEMBER).where(users.c.tenant == storable(tenant)).order_by(users.c.created, users.c.id)
        return tuple(Member(**row._mapping) for row in await self.connection.execute(chosen))

    async def get(self, tenant: str, id: str, *, lock: bool = False) -> Member | None:
        """With `lock`, nobody else changes the member until this transaction ends."""
        chosen = select(*_MEMBER).where(owned(users, tenant, id))
        row = (await self.connection.execute(chosen.with_for_update() if lock else chosen)).one_or_none()
        return Member(**row._mapping) if row else None

    async def actor(self, id: str, now: float) -> Principal | None:
        return await principals.of_actor(self.connection, id, now)

    async def lock_owners(self, tenant: str) -> Sequence[str]:
        """The ids of the owners, whom nobody else makes less or removes until this transaction ends."""
        # In one order, so that two who demote each other wait rather than lock each other out.
        chosen = select(users.c.id).where(users.c.tenant == storable(tenant), users.c.role == "owner")
        return (await self.connection.execute(chosen.order_by(users.c.id).with_for_update())).scalars().all()

    async def change(self, id: str, changes: Mapping[str, Any]) -> None:
        await self.connection.execute(update(users).where(users.c.id == id).values(changes))

    async def remove(self, member: Member) -> Json:
        """With the sessions and identities. The keys stay in the list, revoked. Tells how much ended."""
        # Keys before sessions, as whoever revokes a key: two that wait for each other's rows would be a deadlock.
        keys = await revoke_keys_of(self.connection, member.tenant, member.id)
        open_sessions = await remove_sessions_of(self.connection, member.tenant, member.id)
        await self.connection.execute(delete(identities).where(identities.c.user_id == member.id))
        await self.connection.execute(delete(users).where(users.c.id == member.id))
        return {"sessions": open_sessions, "keys": keys, "password": member.has_password}
