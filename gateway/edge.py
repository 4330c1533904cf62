"""The outermost ASGI app: names every request, answers the hot routes itself, and hands the rest to FastAPI.

Whatever happens, the client gets the one shape of error, a request id, and the log and metrics get their line.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from functools import lru_cache

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.auth import Authenticator, require_loopback_host, require_same_origin, require_scope
from gateway.exchange import Exchange, error_headers
from gateway.idempotency import Handler, Idempotent
from gateway.settings import GatewaySettings
from gateway.sse import ascii_json
from gateway.strict_json import parse_object
from services.common.errors import AntiphonError, InternalError, MethodNotAllowed
from services.common.telemetry import OPEN_STREAMS, REQUESTS, log

_TURNS = re.compile(r"/api/conversations/[^/]+/turns")
"""The one route behind FastAPI whose POST runs a model."""


class Edge:
    """hot: POST routes under /v1 by exact path."""

    def __init__(
        self, app: ASGIApp, hot: Mapping[str, Handler], auth: Authenticator, idempotent: Idempotent,
        settings: GatewaySettings,
    ):  # fmt: skip
        self._app = app
        self._hot = hot
        self._auth = auth
        self._idempotent = idempotent
        self._settings = settings
        self._open: set[Exchange] = set()
        self._ticker: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._ticker = self._ticker or asyncio.create_task(self._tick())
        exchange = Exchange(scope, receive, send, self._settings)
        began = time.perf_counter()
        self._open.add(exchange)
        try:
            await self._answer(exchange, scope, receive, send)
        finally:
            self._open.discard(exchange)
            exchange.close()
            self._account(exchange, scope, time.perf_counter() - began)

    async def _answer(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._auth.open_to_all:
                self._protect_loopback(exchange)
            handler = self._hot.get(scope["path"])
            if handler is None:
                await self._answer_cold(exchange, scope, receive, send)
                return
            if scope["method"] != "POST":
                raise MethodNotAllowed(f"{scope['method']} is not allowed here; use POST.")
            exchange.principal = await self._auth.by_key(exchange.header(b"authorization"))
            require_scope(exchange.principal, "model.request")
            await self._idempotent.run(exchange, handler)
        except asyncio.CancelledError:
            if not (exchange.client_gone or exchange.cut_error) or exchange.task.uncancel():
                raise  # the server is going down; that is not this request's to take back
            if exchange.cut_error:
                await self._refuse(exchange, exchange.cut_error)
            else:
                exchange.status = 499
        except AntiphonError as e:
            await self._refuse(exchange, e)
        except Exception as e:
            log.error("request_failed", request_id=exchange.request_id, path=scope["path"], exc_info=e)
            await self._refuse(exchange, InternalError("The server failed; its log says why."))

    async def _answer_cold(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        # The server leaves the body out, and needs its own scope for that.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope

        async def handle(_: Exchange) -> None:
            try:
                await self._app(inner, await _checked(receive, exchange), _named(send, exchange))
            finally:
                scope.update({name: inner[name] for name in ("route", "principal") if name in inner})

        if scope["method"] == "POST" and _TURNS.fullmatch(scope["path"]) and exchange.header(b"idempotency-key"):
            exchange.principal = await self._auth.by_either(
                exchange.header(b"authorization"), exchange.header(b"cookie").decode("latin-1")
            )
            await self._idempotent.run(exchange, handle)
        else:
            await handle(exchange)

    async def _refuse(self, exchange: Exchange, error: AntiphonError) -> None:
        """Before the first byte: a status. After it: one error event, and no end that looks like success."""
        exchange.note["error"] = error.wire_code or error.type
        body = msgspec.json.encode(error.body())
        if exchange.client_gone:
            exchange.status = 499
        elif exchange.streaming:
            await exchange.end_stream(b"data: %b\n\n" % ascii_json(body))
        elif not exchange.status:
            await exchange.answer(error.status, body, error_headers(error))

    def _protect_loopback(self, exchange: Exchange) -> None:
        host = exchange.header(b"host").decode("latin-1")
        origin = exchange.header(b"origin").decode("latin-1") or None
        require_loopback_host(host)
        if exchange.scope["method"] not in ("GET", "HEAD"):
            require_same_origin(origin, host, exchange.header(b"sec-fetch-site").decode("latin-1"))

    def _account(self, exchange: Exchange, scope: Scope, seconds: float) -> None:
        who = scope.get("principal", exchange.principal)
        path = scope["path"] if scope["path"] in self._hot else getattr(scope.get("route"), "path", "other")
        _finished(path, exchange.status).inc()
        log.info(
            "request", request_id=exchange.request_id, method=scope["method"], route=path, status=exchange.status,
            seconds=round(seconds, 4), tenant=who.tenant, user=who.user_id, key=who.key_id, **exchange.note,
        )  # fmt: skip

    async def _tick(self) -> None:
        """One task for all open streams: a timer for each would cost each of their tokens."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(1)
            OPEN_STREAMS.set(sum(e.streaming for e in self._open))
            for exchange in tuple(self._open):
                try:
                    exchange.tick(loop.time())
                except Exception as e:  # the others' heartbeats go on
                    log.error("tick_failed", request_id=exchange.request_id, exc_info=e)


_finished = lru_cache(maxsize=1024)(REQUESTS.labels)


async def _checked(receive: Receive, exchange: Exchange) -> Receive:
    """The body as the hot routes read theirs: bounded, in time and strict; FastAPI would buffer and accept anything."""
    if exchange.scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return receive
    body = await exchange.body()
    if body and exchange.scope["path"].startswith(
        ("/api/", "/v1/organization")
    ):  # elsewhere it may be any type of a call that we lack
        parse_object(body)
    whole: list[Message] = [{"type": "http.request", "body": body}]

    async def replayed() -> Message:
        return whole.pop() if whole else await receive()

    return replayed


def _named(send: Send, exchange: Exchange) -> Send:
    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            message["headers"] = [*message.get("headers", []), (b"x-request-id", exchange.request_id.encode())]
        if exchange.recorder:
            await exchange.recorder(message)
        await send(message)

    return named
