"""Clients of a handler behind the policy of Idempotency-Key, and the stores that it runs on."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.exchange import Exchange, error_headers
from gateway.idempotency import IdempotencyStore, Idempotent
from gateway.idempotency_files import FileIdempotency
from gateway.idempotency_redis import RedisIdempotency
from gateway.settings import GatewaySettings
from services.common.account_messages import Principal
from services.common.errors import AntiphonError
from tests.unit.gateway.driving import Exchanged

KEY = {"idempotency-key": "7f9c-order"}
BODY = {"model": "simulated", "n": 1}
ANN = Principal(tenant="org_a")


class Client:
    """Sends to one handler behind the policy. `runs` counts how often the handler was called."""

    def __init__(self, idempotent: Idempotent):
        self.idempotent = idempotent
        self.runs = 0
        self.errors: list[str] = []
        self.handle: Callable[[Exchange], Awaitable[None]] = whole

    def send(
        self, body: Any = BODY, headers: dict[str, str] = KEY, who: Principal = ANN, path: str = "/v1/run"
    ) -> Exchanged:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            x = Exchange(scope, receive, send, GatewaySettings())
            x.principal = who
            await self._answer(x)

        return Exchanged(app, path, body, headers=headers)

    async def ask(self, *given: Any, **named: Any) -> Exchanged:
        return await self.send(*given, **named).done()

    async def _answer(self, x: Exchange) -> None:
        try:
            await self.idempotent.run(x, self._count)
        except asyncio.CancelledError:
            if not x.client_gone:
                raise
        except AntiphonError as e:
            if x.status:
                self.errors.append(e.message)
            else:
                await x.answer(e.status, json.dumps(e.body()).encode(), error_headers(e))
        finally:
            x.close()

    async def _count(self, x: Exchange) -> None:
        self.runs += 1
        await self.handle(x)


async def whole(x: Exchange) -> None:
    body = json.loads(await x.body())
    await asyncio.sleep(0.02)
    extra = [(b"x-ratelimit-remaining-tokens", b"7"), (b"x-antiphon-fallback", b"small")]
    await x.answer(200, json.dumps({"id": x.request_id, "asked": body}).encode(), extra)


def in_frames(*frames: bytes) -> Callable[[Exchange], Awaitable[None]]:
    async def stream(x: Exchange) -> None:
        await x.body()
        x.expect_stream()
        await x.start_stream()
        for frame in frames:
            await x.write(frame)
        await x.end_stream(b"data: [DONE]\n\n")

    return stream


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def client(folder: Path) -> Client:
    return Client(Idempotent(FileIdempotency(folder)))


@pytest.fixture(params=["files", "redis"])
def store(request: pytest.FixtureRequest, folder: Path) -> IdempotencyStore:
    if request.param == "files":
        return FileIdempotency(folder)
    return RedisIdempotency(request.getfixturevalue("redis_client"), request.getfixturevalue("redis_prefix"))


async def refused(client: Client, status: int, code: str, *given: Any, **named: Any) -> Exchanged:
    x = await client.ask(*given, **named)
    assert (x.status, x.error["code"], x.error["param"]) == (status, code, "Idempotency-Key")
    return x


async def until(happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happens():
            await asyncio.sleep(0.01)


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())
