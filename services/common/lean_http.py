"""An HTTP/1.1 client for the hot path: POST, read the answer as it comes, over pooled keep-alive connections.

httptools parses; there is no layer above it. A general client costs more for each request than all else that the
gateway does (docs/adr/0003-hot-path.md). Not for cookies, redirects, proxies or compression: engines have none.
"""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httptools

HIGH_WATER = 1 << 18
"""Bytes that may wait for a reader before the connection is read no further."""


class ConnectionBroken(ConnectionError):
    """The other side could not be reached, or ended in the middle of an answer. `fresh`: before its first byte."""

    def __init__(self, message: str, *, fresh: bool = False):
        super().__init__(message)
        self.fresh = fresh


class Answer(asyncio.Protocol):
    """A connection, and the answer that it is reading."""

    def __init__(self) -> None:
        self.status = 0
        self.transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.begin()

    def begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._size = 0
        self._framed = self._lasting = self._began = self.head = self.complete = self._paused = False
        self._error: ConnectionBroken | None = None

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._began = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as e:
            self._fail(f"the answer is not HTTP: {e}")
            self.transport.abort()
        if self._size > HIGH_WATER and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.head and not self._framed and exc is None:
            self.complete = True  # a body without a length ends with its connection
        elif not self.complete:
            self._fail("the connection was lost")
        self._wake()

    # httptools' callbacks

    def on_header(self, name: bytes, _value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.head = True

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        self.complete = True
        self._lasting = self._framed and self._parser.should_keep_alive()  # only here does the parser know

    # for readers

    async def headers(self) -> None:
        """Return when `status` is known. Errors: `ConnectionBroken`."""
        while not self.head:
            await self._news()

    async def readany(self) -> bytes:
        """What has come since the last call; b"" at the end. Errors: `ConnectionBroken`."""
        while not self._chunks:
            if self.complete:
                return b""
            await self._news()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        return data

    async def read(self) -> bytes:
        """All that is left of the body."""
        parts = []
        while part := await self.readany():
            parts.append(part)
        return b"".join(parts)

    def reusable(self) -> bool:
        return self.complete and self._lasting and not self.transport.is_closing()

    async def _news(self) -> None:
        if self._error:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, message: str) -> None:
        self._error = self._error or ConnectionBroken(message, fresh=not self._began)


class Target:
    """Where requests go, parsed once: one URL with unchanging headers. Errors: `ValueError`."""

    def __init__(self, url: str, headers: dict[str, str]):
        parts = urlsplit(url)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.secure else 80)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {path} HTTP/1.1", f"host: {parts.netloc.rpartition('@')[2]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header holds a line break")
        self.head = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
        self.origin = (self.secure, self.host, self.port)


class LeanClient:
    """idle_s: how long a connection may wait for its next request; less than the servers', which else win a race."""

    def __init__(self, *, idle_s: float = 4.0, connect_s: float = 5.0):
        self._idle_s = idle_s
        self._connect_s = connect_s
        self._idle: defaultdict[tuple[bool, str, int], list[tuple[float, Answer]]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(self, target: Target, body: bytes) -> AsyncIterator[Answer]:
        """The answer, once its status is known. Leaving the block early drops the connection: that cancels the work.

        Errors: `ConnectionBroken`.
        """
        answer = await self._ask(target, b"%bcontent-length: %d\r\n\r\n%b" % (target.head, len(body), body))
        try:
            yield answer
        finally:
            if answer.reusable():
                self._idle[target.origin].append((asyncio.get_running_loop().time(), answer))
            else:
                answer.transport.abort()

    async def _ask(self, target: Target, request: bytes) -> Answer:
        """Once more, on a new connection, if a pooled one was just being closed."""
        if pooled := self._pooled(target):
            try:
                return await _head_of(pooled, request)
            except ConnectionBroken as e:
                if not e.fresh:
                    raise
        return await _head_of(await self._connect(target), request)

    def _pooled(self, target: Target) -> Answer | None:
        now = asyncio.get_running_loop().time()
        idle = self._idle[target.origin]
        while idle:
            since, answer = idle.pop()
            if now - since < self._idle_s and not answer.transport.is_closing():
                answer.begin()
                return answer
            answer.transport.abort()
        return None

    async def _connect(self, target: Target) -> Answer:
        if target.secure and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if target.secure else None
        try:
            async with asyncio.timeout(self._connect_s):
                loop = asyncio.get_running_loop()
                _, answer = await loop.create_connection(Answer, target.host, target.port, ssl=tls)
        except (OSError, TimeoutError) as e:
            raise ConnectionBroken(f"no connection: {type(e).__name__}") from e
        return answer

    def close(self) -> None:
        for idle in self._idle.values():
            for _, answer in idle:
                answer.transport.abort()
        self._idle.clear()


async def _head_of(answer: Answer, request: bytes) -> Answer:
    try:
        answer.transport.write(request)
        await answer.headers()
    except BaseException:
        answer.transport.abort()
        raise
    return answer
