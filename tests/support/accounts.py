"""The ports of accounts as a test reaches them: in process, or through HTTP to a real server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.accounts.api import create_app
from services.accounts.cache import CachedKeys, CachedSessions
from services.accounts.client import connect
from services.accounts.ports import AccountPorts
from services.accounts.service import AccountServices
from services.accounts.sign_in import SignInService
from services.accounts.store import MIGRATIONS, AccountStore
from services.accounts.tables import metadata, users
from services.accounts.tiers import TierFile
from services.common import account_messages as a
from services.common.sql import migrate, open_database, reading, writing
from services.common.texts import new_id
from tests.support.http import served

PEPPER = b"a pepper for tests only"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    """Every port, and shorthands for a test's usual steps."""

    ports: AccountPorts
    clock: Clock
    engine: AsyncEngine

    async def organisation(self, id: str = "a", **fields: object) -> str:
        request = a.NewOrganisation(id=id, name=id.upper(), **fields)  # type: ignore[arg-type]
        return (await self.ports.organisations.create_organisation(request)).id

    async def user(self, tenant: str = "a", role: a.Role = "member", name: str = "") -> str:
        """Put there directly: the ways in are another port's."""
        id = new_id("user")
        row = {
            "id": id,
            "tenant": tenant,
            "email": f"{id}@x.org",
            "name": name,
            "role": role,
            "space": f"{tenant}/{id}",
            "verified": False,
        }
        async with writing(self.engine) as db:
            await db.execute(insert(users).values(row | {"created": self.clock.now}))
        return id

    async def key(self, tenant: str = "a", **fields: object) -> a.ApiKey:
        return await self.ports.keys.create_key(a.NewKey(tenant=tenant, **fields))  # type: ignore[arg-type]

    async def who(self, key: a.ApiKey) -> a.Principal:
        return await self.ports.keys.authenticate(str(key.secret))

    async def told(self, tenant: str | None = None) -> list[a.AuditEntry]:
        """The audit log, oldest first."""
        found = await self.ports.audit.entries(a.AuditQuery(tenant=tenant, limit=1000))
        return list(reversed(found))

    async def last(self, tenant: str = "a") -> tuple[str, str, str]:
        entry = (await self.told(tenant))[-1]
        return entry.action, entry.target, entry.actor

    async def stored(self) -> str:
        """Everything that the database holds, as text."""
        async with reading(self.engine) as db:
            rows = [str((await db.execute(text(f"SELECT * FROM {t}"))).all()) for t in metadata.tables]
        return "".join(rows)


@asynccontextmanager
async def opened(place: str, database_url: str, *, cached: bool = False) -> AsyncIterator[House]:
    engine, clock = open_database(database_url), Clock()
    await migrate(engine, "accounts", MIGRATIONS)
    store = AccountStore(engine, PEPPER)
    services = AccountServices(store, PEPPER, TierFile(), SignInService(store, PEPPER, clock=clock), clock)
    ports = services.ports
    if cached:
        ports = replace(ports, keys=CachedKeys(ports.keys, clock), sessions=CachedSessions(ports.sessions, clock))
    try:
        if place == "http":
            async with served(create_app(ports)) as (url, session):
                yield House(connect(url, session), clock, engine)
        else:
            yield House(ports, clock, engine)
    finally:
        await services.close()
        await engine.dispose()
