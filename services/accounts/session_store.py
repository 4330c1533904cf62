"""Every query on sessions, of which only digests are kept. SQLite and PostgreSQL."""

from sqlalchemy import and_, delete, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.accounts import audit_store, principals
from services.accounts.chain import Chain
from services.accounts.tables import api_keys, sessions
from services.common.account_messages import AuditEntry, NewSession, Principal, Ref
from services.common.sql import reading, writing

SWEEP = 1000
"""Expired sessions that the opening of one takes along at most."""


class SessionStore:
    def __init__(self, engine: AsyncEngine):
        self._engine = engine

    async def add(self, digest: str, session: NewSession, expires: float, now: float) -> None:
        """And forget those that have expired."""
        row = {"tenant": session.tenant, "user_id": session.user_id, "key_id": session.key_id, "expires": expires}
        async with writing(self._engine) as db:
            await _sweep(db, now)
            await db.execute(insert(sessions).values(row | {"digest": digest}))

    async def principal(self, digest: str, now: float) -> Principal | None:
        """None if the session never was, is closed or has expired, or if whom it was opened for is gone."""
        chosen = select(sessions).where(sessions.c.digest == digest, sessions.c.expires > now)
        async with reading(self._engine) as db:
            row = (await db.execute(chosen)).one_or_none()
            if row is None:
                return None
            if row.key_id:
                key = and_(api_keys.c.id == row.key_id, api_keys.c.tenant == row.tenant)
                return await principals.of_key(db, key, now)
            if row.user_id:
                return await principals.of_user(db, row.tenant, row.user_id)
            return await principals.of_organisation(db, row.tenant)

    async def remove(self, digest: str) -> None:
        async with writing(self._engine) as db:
            await db.execute(delete(sessions).where(sessions.c.digest == digest))

    async def remove_all(self, user: Ref, chain: Chain, entry: AuditEntry) -> None:
        async with writing(self._engine) as db:
            await remove_sessions_of(db, user.tenant, user.id)
            await audit_store.add(db, chain, entry)


async def remove_sessions_of(db: AsyncConnection, tenant: str, user_id: str) -> None:
    """Those that the user opened with a key as well. user_id "": the organisation's own."""
    owned = select(api_keys.c.id).where(api_keys.c.tenant == tenant, api_keys.c.owner == user_id)
    theirs = or_(and_(sessions.c.user_id == user_id, sessions.c.key_id == ""), sessions.c.key_id.in_(owned))
    await db.execute(delete(sessions).where(sessions.c.tenant == tenant, theirs))


async def _sweep(db: AsyncConnection, now: float) -> None:
    # What another transaction holds is left to it: two that wait for each other's rows would be a deadlock.
    expired = select(sessions.c.digest).where(sessions.c.expires <= now).limit(SWEEP).with_for_update(skip_locked=True)
    await db.execute(delete(sessions).where(sessions.c.digest.in_(expired)))
