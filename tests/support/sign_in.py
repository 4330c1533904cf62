"""An installation to sign in to: every port of accounts, on a clock of the test's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from argon2 import PasswordHasher
from sqlalchemy import func, select

from services.accounts.api import create_app
from services.accounts.client import connect
from services.accounts.passwords import Passwords
from services.accounts.ports import AccountPorts
from services.accounts.roles import OidcMapping
from services.accounts.service import AccountServices
from services.accounts.sign_in import SignInService
from services.accounts.store import MIGRATIONS, AccountStore
from services.accounts.tables import metadata
from services.accounts.tiers import TierFile
from services.common import account_messages as a
from services.common.sql import migrate, open_database, reading
from tests.support.http import served

PEPPER = b"a pepper for tests only"
GOOD, OTHER = "correct horse battery", "staple and a donkey"
ACME = "acme"
GROUPS = OidcMapping(tenant=ACME, default_role="member", groups={"staff": "member", "it": "admin", "chiefs": "owner"})
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    ports: AccountPorts
    clock: Clock
    database_url: str

    async def owner(self, email: str = "olive@acme.example", password: str = GOOD) -> a.NewSession:
        """The first user, who owns ACME."""
        return await self.ports.sign_in.register(
            a.Registration(email=email, password=password, name="Olive", tenant=ACME, space=ACME)
        )

    async def newcomer(self, email: str, role: a.Role = "member", *, email_known: bool = False) -> a.NewSession:
        """email_known: the invite was sent to it."""
        asked = a.NewInvite(tenant=ACME, role=role, email=email if email_known else "")
        return await self.register(email, await self.ports.invites.create_invite(asked))

    async def register(self, email: str, invite: a.Invite) -> a.NewSession:
        return await self.ports.sign_in.register(
            a.Registration(email=email, password=GOOD, name="New", invite=str(invite.token))
        )

    async def role(self, session: a.NewSession) -> a.Role:
        return (await self.ports.members.member(a.Ref(session.tenant, session.user_id))).role

    async def noted(self, action: str) -> list[a.AuditEntry]:
        """Oldest first."""
        entries = await self.ports.audit.entries(a.AuditQuery(tenant=None, action=action, limit=1000))
        return list(reversed(entries))

    async def count(self, table: str) -> int:
        engine = open_database(self.database_url)
        async with reading(engine) as db:
            number = (await db.execute(select(func.count()).select_from(metadata.tables[table]))).scalar_one()
        await engine.dispose()
        return int(number)

    async def stored(self) -> str:
        """Everything the database holds, as text."""
        engine = open_database(self.database_url)
        async with reading(engine) as db:
            rows = [str((await db.execute(select(table))).all()) for table in metadata.sorted_tables]
        await engine.dispose()
        return "".join(rows)


@asynccontextmanager
async def house_at(place: str, database_url: str, mapping: OidcMapping | None = GROUPS) -> AsyncIterator[House]:
    """place "http": behind a real server. ACME is there, and runs the installation; so is the organisation "b"."""
    engine, clock = open_database(database_url), Clock()
    await migrate(engine, "accounts", MIGRATIONS)
    services = account_services(engine, clock, mapping)
    try:
        await services.ports.organisations.create_organisation(
            a.NewOrganisation(id=ACME, name="Acme", tier="team", region="eu", operator=True)
        )
        await services.ports.organisations.create_organisation(a.NewOrganisation(id="b", name="B"))
        if place == "http":
            async with served(create_app(services.ports)) as (url, session):
                yield House(connect(url, session), clock, database_url)
        else:
            yield House(services.ports, clock, database_url)
    finally:
        await services.close()
        await engine.dispose()


def account_services(engine: Any, clock: Clock, mapping: OidcMapping | None = GROUPS) -> AccountServices:
    store = AccountStore(engine, PEPPER)
    sign_in = SignInService(store, PEPPER, mapping, Passwords(QUICK), clock)
    return AccountServices(store, PEPPER, TierFile(), sign_in, clock)
