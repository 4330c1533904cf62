"""The tables of API keys and sessions, and every query on them. SQLite and PostgreSQL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Column, Double, Index, MetaData, Row, Table, Text, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from services.common import messages as m
from services.common.sql import reading, writing

MIGRATIONS = Path(__file__).parent / "migrations"

metadata = MetaData()

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("digest", Text, nullable=False, unique=True),
    Column("created", Double, nullable=False),
    Column("revoked", Boolean, nullable=False),
    Index("api_keys_of_tenant", "tenant", "created"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Index("sessions_expire", "expires"),
)


class AccountStore:
    def __init__(self, engine: AsyncEngine):
        self._engine = engine

    async def add_key(self, key: m.ApiKey, digest: str) -> None:
        row = {name: getattr(key, name) for name in ("id", "tenant", "name", "hint", "created", "revoked")}
        async with writing(self._engine) as db:
            await db.execute(insert(api_keys).values(row | {"digest": digest}))

    async def key_with(self, digest: str) -> m.ApiKey | None:
        async with reading(self._engine) as db:
            row = (await db.execute(select(api_keys).where(api_keys.c.digest == digest))).one_or_none()
        return _key(row) if row else None

    async def keys_of(self, tenant: str) -> Sequence[m.ApiKey]:
        """Oldest first."""
        chosen = select(api_keys).where(api_keys.c.tenant == tenant).order_by(api_keys.c.created, api_keys.c.id)
        async with reading(self._engine) as db:
            return tuple(_key(row) for row in await db.execute(chosen))

    async def revoke(self, tenant: str, id: str) -> bool:
        """False if the tenant has no such key."""
        chosen = update(api_keys).where(api_keys.c.id == id, api_keys.c.tenant == tenant)
        async with writing(self._engine) as db:
            return (await db.execute(chosen.values(revoked=True))).rowcount > 0

    async def add_session(self, digest: str, tenant: str, expires: float) -> None:
        async with writing(self._engine) as db:
            await db.execute(insert(sessions).values(digest=digest, tenant=tenant, expires=expires))

    async def session_tenant(self, digest: str, now: float) -> str | None:
        """Whose session it is; None if it never was, is closed or has expired."""
        chosen = select(sessions.c.tenant).where(sessions.c.digest == digest, sessions.c.expires > now)
        async with reading(self._engine) as db:
            tenant: str | None = (await db.execute(chosen)).scalar_one_or_none()
        return tenant

    async def remove_session(self, digest: str) -> None:
        async with writing(self._engine) as db:
            await db.execute(delete(sessions).where(sessions.c.digest == digest))

    async def remove_expired_sessions(self, now: float) -> None:
        async with writing(self._engine) as db:
            await db.execute(delete(sessions).where(sessions.c.expires <= now))


def _key(row: Row[Any]) -> m.ApiKey:
    return m.ApiKey(
        id=row.id, tenant=row.tenant, name=row.name, hint=row.hint, created=row.created, revoked=row.revoked
    )
