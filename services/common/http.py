"""Ports over HTTP: one codec for every api/client pair.

A call is `POST /{method}` with the message as a JSON body. A stream answers with SSE: one `data:` line per item,
then `event: end`; a failure is `event: error` with an error's wire form. Dropping the connection closes the
iterator on the other side, so cancellation crosses processes by itself.
"""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar, cast, get_type_hints

import aiohttp
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from services.common.errors import AntiphonError, InternalError, InvalidRequest, Overloaded, PortError
from services.common.telemetry import log

T = TypeVar("T")
MAX_SSE_LINE = 16 << 20
_encode = msgspec.json.encode
_decode_error = msgspec.json.Decoder(PortError).decode
_NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=5)
"""A stream takes as long as it takes; its reader decides when to give up."""


def serve_port(port: type, implementation: object) -> Starlette:
    """An app with one route per method of `port`, answered by `implementation`."""
    names = [name for name, member in vars(port).items() if not name.startswith("_") and inspect.isfunction(member)]
    return Starlette(
        routes=[Route(f"/{name}", _handler(port, implementation, name), methods=["POST"]) for name in names]
    )


def _handler(port: type, implementation: object, name: str) -> Callable[[Request], Awaitable[Response]]:
    hints = get_type_hints(getattr(port, name))
    hints.pop("return", None)
    decoder = msgspec.json.Decoder(next(iter(hints.values()))) if hints else None
    method = getattr(implementation, name)

    async def handle(request: Request) -> Response:
        try:
            arguments = (decoder.decode(await request.body()),) if decoder else ()
        except msgspec.DecodeError as e:
            return _failure(InvalidRequest(str(e)))
        result = method(*arguments)
        if hasattr(result, "__aiter__"):
            return StreamingResponse(_frames(result), media_type="text/event-stream")
        try:
            return Response(_encode(await result), media_type="application/json")
        except Exception as e:
            return _failure(e)

    return handle


async def _frames(items: AsyncGenerator[Any, None]) -> AsyncIterator[bytes]:
    async with aclosing(items):
        try:
            async for item in items:
                yield b"data: %b\n\n" % _encode(item)
        except Exception as e:
            yield b"event: error\ndata: %b\n\n" % _encode(PortError.of(_expected(e)))
        else:
            yield b"event: end\ndata:\n\n"


def _expected(error: Exception) -> AntiphonError:
    if isinstance(error, AntiphonError):
        return error
    log.error("port_failed", exc_info=error)
    return InternalError("The service failed; its log says why.")


def _failure(error: Exception) -> Response:
    expected = _expected(error)
    return Response(_encode(PortError.of(expected)), expected.status, media_type="application/json")


class Peer:
    """The other end of a port: pooled keep-alive connections to one base URL."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession):
        self._base = base_url.rstrip("/")
        self._session = session

    async def call(self, method: str, message: object, result: type[T] | Any) -> T:
        try:
            async with self._post(method, message) as response:
                body = await response.read()
                if response.status != 200:
                    raise _decode_error(body).error()
                return cast(T, msgspec.json.decode(body, type=result))
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            raise self._unreachable(e) from e

    async def stream(self, method: str, message: object, item: type[T] | Any) -> AsyncGenerator[T, None]:
        decoder = msgspec.json.Decoder(item)
        try:
            async with self._post(method, message) as response:
                if response.status != 200:
                    raise _decode_error(await response.read()).error()
                async for batch in sse_batches(response.content):
                    for event, data in batch:
                        if event == b"end":
                            return
                        if event == b"error":
                            raise _decode_error(data).error()
                        yield cast(T, decoder.decode(data))
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            raise self._unreachable(e) from e
        raise Overloaded("The service stopped in the middle of its answer.")

    def _post(self, method: str, message: object) -> Any:
        return self._session.post(f"{self._base}/{method}", data=_encode(message), timeout=_NO_LIMIT)

    def _unreachable(self, cause: BaseException) -> AntiphonError:
        return Overloaded(f"The service at {self._base} cannot be reached: {type(cause).__name__}.", retry_after=1)


class Readable(Protocol):
    async def readany(self) -> bytes:
        """What has come since the last call; b"" at the end."""
        ...


async def sse_batches(content: Readable) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """(event, data) of every SSE `data:` line, those of one read together. Comments and other fields are dropped."""
    event = rest = b""
    while chunk := await content.readany():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_SSE_LINE:
            raise aiohttp.ClientPayloadError("an SSE line is too long")
        batch = []
        for line in lines:
            if line.startswith(b"data:"):
                batch.append((event, line[5:].strip()))
            elif line.startswith(b"event:"):
                event = line[6:].strip()
            elif line in (b"", b"\r"):
                event = b""
        if batch:
            yield batch
