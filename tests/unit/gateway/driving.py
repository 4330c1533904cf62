"""Driving the edge as a server would: scripted `receive` and `send`, and everything that was sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from gateway.app import create_app
from gateway.auth import LOCAL, Authenticator
from gateway.idempotency import Idempotent
from gateway.idempotency_files import FileIdempotency
from gateway.ports import GatewayPorts, Health
from gateway.settings import GatewaySettings
from services.accounts.service import AccountServices
from services.accounts.sign_in import SignInService
from services.accounts.store import AccountStore
from services.accounts.tiers import TierFile
from services.chat.embedding import EmbeddingEngine
from services.common.account_messages import NewKey, NewOrganisation
from services.common.ports import Engine
from services.retrieval.embedder import NoEmbedder
from tests.unit.services.chat.parts import Parts, opened

CHAT = {"model": "simulated", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}


class Exchanged:
    """One request to the app. `leave` closes the client's end; while `reading` is cleared, it takes nothing."""

    def __init__(self, app: ASGIApp, path: str, body: Any = None, *, method: str = "POST", headers: dict[str, str]):
        self.sent: list[dict[str, Any]] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.taken = 0
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        if body is not None:
            self.upload(body if isinstance(body, bytes) else json.dumps(body).encode())
        pairs = [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()]
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "headers": pairs,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))  # type: ignore[arg-type]

    def upload(self, chunk: bytes, more: bool = False) -> None:
        self._inbox.put_nowait({"type": "http.request", "body": chunk, "more_body": more})

    def leave(self) -> None:
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def _receive(self) -> dict[str, Any]:
        message = await self._inbox.get()
        self.taken += len(message.get("body", b""))
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        await self.reading.wait()
        self.sent.append(dict(message))

    async def done(self, patience: float = 5.0) -> "Exchanged":
        async with asyncio.timeout(patience):
            await self.task
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in self.sent[0]["headers"]}

    @property
    def data(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def error(self) -> dict[str, Any]:
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"message", "type", "param", "code"}
        return dict(self.json["error"])

    @property
    def frames(self) -> list[str]:
        assert self.data.endswith(b"\n\n")
        return self.data.decode("ascii").removesuffix("\n\n").split("\n\n")


class Gateway:
    def __init__(self, app: ASGIApp, parts: Parts, key: str, ports: GatewayPorts):
        self.app = app
        self.ports = ports
        self.parts = parts
        self.key = key

    def call(self, path: str, body: Any = None, *, method: str = "POST", **headers: str) -> Exchanged:
        """Keyword arguments are headers, with `_` for `-`."""
        own = {"host": "localhost", "authorization": f"Bearer {self.key}", "content-type": "application/json"}
        own |= {k.replace("_", "-"): v for k, v in headers.items()}
        return Exchanged(self.app, path, body, method=method, headers=own)

    def chat(self, **fields: Any) -> Exchanged:
        return self.call("/v1/chat/completions", CHAT | fields)


@asynccontextmanager
async def gateway(
    template: Path, folder: Path, engine: Engine, *, open_to_all: bool = False, phrases: tuple[str, ...] = (),
    tiers: Path | None = None, tier: str = "enterprise", **settings: Any,
) -> AsyncIterator[Gateway]:  # fmt: skip
    async with opened(template, folder, engine, phrases=phrases, tiers=tiers) as parts:
        store = AccountStore(parts.database, b"pepper" * 8)
        known = TierFile(tiers)
        services = AccountServices(store, b"pepper" * 8, known, SignInService(store, b"pepper" * 8))
        house = services.ports
        await house.organisations.create_organisation(
            NewOrganisation(id=LOCAL.tenant, name="Tests", tier=tier, operator=True)
        )
        key = await house.keys.create_key(NewKey(tenant=LOCAL.tenant, name="test"))
        idempotent = Idempotent(FileIdempotency(folder / "idempotency"))
        ports = GatewayPorts(
            auth=Authenticator(house.keys, house.sessions, open_to_all=open_to_all), keys=house.keys,
            sessions=house.sessions, organisations=house.organisations, members=house.members, projects=house.projects,
            service_accounts=house.service_accounts, invites=house.invites, sign_in=house.sign_in, audit=house.audit,
            tiers=known, ledger=parts.ledger, currency="USD", idempotent=idempotent, router=parts.router,
            turns=parts.turns, embeddings=EmbeddingEngine(NoEmbedder("There is none."), parts.meter),
            conversations=parts.conversations, messages=parts.messages, conversation_turns=parts.starting,
            runner=parts.runner, health=Health(engines={"w": engine}, started=True), default_model="simulated",
            signin_token="token",
        )  # fmt: skip
        app = create_app(ports, GatewaySettings(**settings), folder / "no-page")
        try:
            yield Gateway(app, parts, str(key.secret), ports)
        finally:
            await idempotent.close()
            await services.close()
