"""One HTTP request on the hot path, straight on ASGI.

A layer here costs every token of every stream (docs/adr/0003-hot-path.md), so there is one object a request, no
queue, and one `send` for all the frames that one read from the engine brought.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import ceil
from typing import Any, cast

from starlette.types import Message, Receive, Scope, Send

from gateway.settings import GatewaySettings
from services.common.account_messages import Principal
from services.common.errors import AntiphonError, InvalidRequest, MethodNotAllowed, QuotaExceeded, RateLimited, TooLarge
from services.common.messages import Admitted

Headers = list[tuple[bytes, bytes]]
NOBODY = Principal(tenant="")
JSON = (b"content-type", b"application/json")
_SSE: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
PING = b": ping\n\n"


class Exchange:
    """Reads one body; answers once, whole or as a stream."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: GatewaySettings):
        self.scope = scope
        self.request_id = f"req_{os.urandom(16).hex()}"
        self.principal = NOBODY
        self.status = 0
        self.streaming = False
        self.client_gone = False
        self.cut_error: AntiphonError | None = None
        self.note: dict[str, Any] = {}
        """What the access log shall say besides."""
        self.limits: Headers = []
        """The x-ratelimit headers of whatever answer goes out."""
        self.recorder: Callable[[Message], Awaitable[None]] | None = None
        """Sees every message of the answer before it goes out, but for heartbeats."""
        self._unread: bytes | None = None
        self.last_write = 0.0
        self.blocked_since = 0.0
        self._reading_since = 0.0
        self._receive = receive
        self._send = send
        self._settings = settings
        self._clock = asyncio.get_running_loop().time
        self._watcher: asyncio.Task[None] | None = None
        self._pinger: asyncio.Task[None] | None = None
        self.task = cast("asyncio.Task[None]", asyncio.current_task())

    def header(self, name: bytes) -> bytes:
        for key, value in self.scope["headers"]:
            if key == name:
                return cast(bytes, value)
        return b""

    async def body(self) -> bytes:
        """The whole body. Errors: `TooLarge`, before it is held whole. A slow or gone sender ends the request."""
        if self._unread is not None:
            body, self._unread = self._unread, None
            return body
        limit = self._settings.max_body_bytes
        length = self.header(b"content-length")
        if length and int(length) > limit:
            raise TooLarge(f"The body is larger than {limit} bytes.")
        self._reading_since = self._clock()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_gone = True
                raise InvalidRequest("The client went away before its body was complete.")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise TooLarge(f"The body is larger than {limit} bytes.")
            chunks.append(chunk)
            if not message.get("more_body"):
                self._reading_since = 0.0
                return b"".join(chunks)

    def unread(self, body: bytes) -> None:
        """The next `body` gives it once more."""
        self._unread = body

    def watch(self) -> None:
        """From now on the client's going away cancels this request's task."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def expect_stream(self) -> None:
        """A stream will follow: the client is watched, and gets heartbeats while the first token is awaited."""
        self.last_write = self._clock()
        self.watch()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.cut()

    def cut(self, error: AntiphonError | None = None) -> None:
        """Cancel this request: its client has gone, or is told the error and then let go.

        Once: a second cancellation would break off the cleaning up after the first.
        """
        if self.client_gone or self.cut_error:
            return
        self.cut_error = error
        self.client_gone = error is None
        self.task.cancel()

    def _abort(self) -> None:
        """Drop what the client does not read. ASGI has no word for it, so this asks uvicorn's transport, if it is one."""
        transport = getattr(getattr(self._send, "__self__", None), "transport", None)
        if transport is not None:
            transport.abort()

    def close(self) -> None:
        for task in (self._watcher, self._pinger):
            if task:
                task.cancel()

    async def answer(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        fields = [
            JSON,
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", self.request_id.encode()),
            *self.limits,
        ]
        self.status = status
        await self._put(
            {"type": "http.response.start", "status": status, "headers": fields + (headers or [])},
            {"type": "http.response.body", "body": body},
        )

    async def start_stream(self) -> None:
        self.streaming = True
        self.last_write = self._clock()
        await self.start(200, [*_SSE, (b"x-request-id", self.request_id.encode()), *self.limits])

    async def write(self, data: bytes) -> None:
        """Whole frames only, so that a heartbeat may come between two writes."""
        message = {"type": "http.response.body", "body": data, "more_body": True}
        if self.recorder:
            await self.recorder(message)
        await self._write(message)

    async def _write(self, message: Message) -> None:
        self.last_write = self.blocked_since = self._clock()
        await self._send(message)
        self.blocked_since = 0.0

    async def end_stream(self, data: bytes = b"") -> None:
        await self._put({"type": "http.response.body", "body": data})

    async def start(self, status: int, headers: Headers) -> None:
        """Nothing is added to the headers."""
        self.status = status
        await self._put({"type": "http.response.start", "status": status, "headers": headers})

    async def _put(self, *messages: Message) -> None:
        if self.recorder:
            for message in messages:  # a whole answer is kept before any of it goes out
                await self.recorder(message)
        self.blocked_since = self._clock()
        for message in messages:
            await self._send(message)
        self.blocked_since = 0.0

    def tick(self, now: float) -> None:
        """Called every second: a heartbeat after silence, the end for a sender or reader that is too slow."""
        if self._reading_since:
            if now - self._reading_since > self._settings.body_timeout:
                self.cut(InvalidRequest("The body did not arrive in time."))
        elif self.blocked_since:
            if now - self.blocked_since > self._settings.stall_timeout:
                self.note["stalled"] = True
                self.cut()
                self._abort()
        elif self.last_write and now - self.last_write > self._settings.heartbeat:
            self.last_write = now
            self._pinger = asyncio.create_task(self._ping())

    async def _ping(self) -> None:
        """A task of its own: a reader that does not even take this must not hold up the heartbeats of the others."""
        with suppress(Exception):  # a broken connection, of which the watcher hears
            if self.blocked_since:
                return
            if not self.streaming:
                await self.start_stream()
            await self._write({"type": "http.response.body", "body": PING, "more_body": True})


def limit_headers(admitted: Admitted) -> Headers:
    """x-ratelimit-{limit,remaining,reset}-{requests,tokens} of what is limited."""
    return [
        (b"x-ratelimit-%b-%b" % (name, kind), value)
        for kind, state in ((b"requests", admitted.requests), (b"tokens", admitted.tokens))
        if state
        for name, value in (
            (b"limit", b"%d" % state.limit), (b"remaining", b"%d" % state.remaining), (b"reset", duration(state.reset)),
        )
    ]  # fmt: skip


def duration(seconds: float) -> bytes:
    """As the API writes them: 6m0s, 1.5s, 20ms; rounded up."""
    milliseconds = ceil(seconds * 1000)
    if milliseconds < 1000:
        return b"%dms" % milliseconds
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:g}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return (f"{hours}h{text}" if hours else text).encode()


def error_headers(error: AntiphonError) -> Headers:
    headers: Headers = []
    if isinstance(error, RateLimited):
        headers += limit_headers(error.admitted)
    if isinstance(error, QuotaExceeded) or error.wire_code == "idempotency_answer_not_kept":
        headers.append((b"x-should-retry", b"false"))
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, ceil(error.retry_after))))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
