"""Every query on sessions, of which only digests are kept. SQLite and PostgreSQL."""

from sqlalchemy import and_, delete, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounts import principal_store as principals
from services.accounts.store import Queries, owned
from services.accounts.tables import api_keys, sessions, users
from services.common.account_messages import NewSession, Principal

SWEEP = 1000
"""Expired sessions that the opening of one takes along at most."""


class SessionQueries(Queries):
    async def add(self, digest: str, session: NewSession, expires: float) -> None:
        row = {"tenant": session.tenant, "user_id": session.user_id, "key_id": session.key_id, "expires": expires}
        await self.connection.execute(insert(sessions).values(row | {"digest": digest}))

    async def principal(self, digest: str, now: float) -> Principal | None:
        """None if the session never was, is closed or has expired, or if whom it was opened for is gone."""
        chosen = select(sessions).where(sessions.c.digest == digest, sessions.c.expires > now)
        row = (await self.connection.execute(chosen)).one_or_none()
        if row is None:
            return None
        if row.key_id:
            return await principals.of_key(self.connection, owned(api_keys, row.tenant, row.key_id), now)
        if row.user_id:
            return await principals.of_user(self.connection, owned(users, row.tenant, row.user_id))
        return await principals.of_organisation(self.connection, row.tenant)

    async def remove(self, digest: str) -> None:
        await self.connection.execute(delete(sessions).where(sessions.c.digest == digest))

    async def remove_all(self, tenant: str, user_id: str) -> None:
        await remove_sessions_of(self.connection, tenant, user_id)

    async def sweep(self, now: float) -> None:
        # What another transaction holds is left to it: two that wait for each other's rows would be a deadlock.
        expired = select(sessions.c.digest).where(sessions.c.expires <= now).limit(SWEEP)
        chosen = expired.with_for_update(skip_locked=True)
        await self.connection.execute(delete(sessions).where(sessions.c.digest.in_(chosen)))


async def remove_sessions_of(db: AsyncConnection, tenant: str, user_id: str) -> int:
    """How many. Those that the user opened with a key as well. user_id "": the organisation's own."""
    theirs = select(api_keys.c.id).where(api_keys.c.tenant == tenant, api_keys.c.owner == user_id)
    opened = or_(and_(sessions.c.user_id == user_id, sessions.c.key_id == ""), sessions.c.key_id.in_(theirs))
    return (await db.execute(delete(sessions).where(sessions.c.tenant == tenant, opened))).rowcount
