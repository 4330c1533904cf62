"""The admin API on the real account and usage services, over a SQLite database of its own, without sockets."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
from argon2 import PasswordHasher
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse, Response

import services.accounts.store as account_store
import services.ledger.store as ledger_store
from gateway.auth import Authenticator
from gateway.dialects.wire import error_of
from gateway.oidc import OidcProvider
from gateway.routes.admin import routers
from services.accounts.audit import AuditLog
from services.accounts.invites import InviteService
from services.accounts.keys import KeyService
from services.accounts.members import MemberService
from services.accounts.organisations import OrganisationService
from services.accounts.passwords import Passwords
from services.accounts.projects import ProjectService, ServiceAccountService
from services.accounts.roles import OidcMapping
from services.accounts.sessions import SessionTokens
from services.accounts.sign_in import SignInService
from services.accounts.tiers import TierFile
from services.common import account_messages as a
from services.common.errors import AntiphonError
from services.common.sql import migrate, open_database
from services.ledger.service import LedgerService

PEPPER = b"pepper" * 8
PASSWORD = "quite a long one"
ALL: tuple[a.Scope, ...] = (*a.USER_SCOPES, "admin", "operator")
LINK = "link-token"


def furnished(path: Path) -> Path:
    """A database with every table, to copy: migrating takes longer than most tests."""

    async def make() -> None:
        engine = open_database(f"sqlite+aiosqlite:///{path}")
        await migrate(engine, "accounts", account_store.MIGRATIONS)
        await migrate(engine, "ledger", ledger_store.MIGRATIONS)
        await engine.dispose()

    asyncio.run(make())
    return path


class House:
    """The organisation "local" is the operator's; "other" is a customer's."""

    def __init__(self, app: FastAPI, ports: Any):
        self.app = app
        self.ports = ports
        self._clients: list[httpx.AsyncClient] = []

    def client(self, base: str = "http://localhost", **headers: str) -> httpx.AsyncClient:
        """A browser, or a program: it keeps its cookies."""
        transport = httpx.ASGITransport(self.app, client=("203.0.113.9", 1))
        made = httpx.AsyncClient(transport=transport, base_url=base, headers=headers)
        self._clients.append(made)
        return made

    async def key(self, tenant: str = "local", **fields: Any) -> httpx.AsyncClient:
        made = await self.ports.keys.create_key(a.NewKey(tenant=tenant, **({"scopes": ALL} | fields)))
        return self.client(authorization=f"Bearer {made.secret}")

    async def person(self, role: a.Role, tenant: str = "local", email: str = "") -> tuple[a.Member, httpx.AsyncClient]:
        """With an account, signed in to the web app."""
        invite = await self.ports.invites.create_invite(a.NewInvite(tenant=tenant, role=role))
        browser = self.client(origin="http://localhost")
        body = {
            "email": email or f"{role}@{tenant}.example",
            "password": PASSWORD,
            "name": role,
            "invite": invite.token,
        }
        answer = await browser.post("/api/signup", json=body)
        assert answer.status_code == 204, answer.text
        user = (await browser.get("/api/session")).json()["user"]
        return await self.ports.members.member(a.Ref(tenant, user["id"])), browser

    async def owner_of_the_machine(self) -> httpx.AsyncClient:
        browser = self.client(origin="http://localhost")
        assert (await browser.get(f"/signin?token={LINK}")).status_code == 303
        return browser

    async def actions(self, tenant: str | None = "local") -> list[str]:
        """Of the audit log, oldest first."""
        return [
            entry.action for entry in reversed(await self.ports.audit.entries(a.AuditQuery(tenant=tenant, limit=1000)))
        ]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def house(
    template: Path, folder: Path, *, oidc: OidcProvider | None = None, mapping: OidcMapping | None = None,
    open_to_all: bool = False,
) -> AsyncIterator[House]:  # fmt: skip
    shutil.copy(template, folder / "house.db")
    database = open_database(f"sqlite+aiosqlite:///{folder / 'house.db'}")
    store, tiers = account_store.AccountStore(database, PEPPER), TierFile()
    quick = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    keys, sessions = KeyService(store, PEPPER), SessionTokens(store, PEPPER)
    ports = SimpleNamespace(
        auth=Authenticator(keys, sessions, open_to_all=open_to_all), keys=keys, sessions=sessions, audit=AuditLog(store),
        organisations=OrganisationService(store, tiers), members=MemberService(store), projects=ProjectService(store),
        service_accounts=ServiceAccountService(store), invites=InviteService(store, PEPPER), tiers=tiers, currency="EUR",
        sign_in=SignInService(store, PEPPER, mapping, quick), ledger=LedgerService(ledger_store.LedgerStore(database)),
        oidc=oidc, signin_token=LINK,
    )  # fmt: skip
    await ports.organisations.create_organisation(a.NewOrganisation(id="local", name="Local", operator=True))
    await ports.organisations.create_organisation(a.NewOrganisation(id="other", name="Other"))
    made = House(_app(ports), ports)
    try:
        yield made
    finally:
        await made.close()
        await keys.close()
        await database.dispose()


def _app(ports: Any) -> FastAPI:
    """The routes with the handlers of errors that gateway/app.py has."""
    app = FastAPI()
    for router in routers(ports):
        app.include_router(router)

    def expected(_: Request, error: Exception) -> Response:
        assert isinstance(error, AntiphonError)
        wait = {} if error.retry_after is None else {"retry-after": str(int(error.retry_after + 1))}
        return Response(msgspec.json.encode(error.body()), error.status, wait, media_type="application/json")

    def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        refused = error_of([e | {"loc": e["loc"][1:]} for e in error.errors()])
        return JSONResponse(refused.body(), refused.status)

    app.add_exception_handler(AntiphonError, expected)
    app.add_exception_handler(RequestValidationError, invalid)
    return app
