"""An answer as it went out: recorded on its way, packed for a store, and sent once more."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct
from starlette.types import Message

from gateway.exchange import Exchange

_PIECE = 64 << 10
"""Bytes in one write: of a replay, too, no more than that waits for a slow reader."""
_OF_ONE_REQUEST = (b"x-request-id", b"x-ratelimit-", b"retry-after", b"date", b"set-cookie")
"""Beginnings of headers that belong to the first request and not to its answer."""


class Answer(Struct, frozen=True, array_like=True):
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    request_id: str


class Recording:
    """Sees every ASGI message before it is sent. keep: called with the packed answer before its last byte goes out."""

    def __init__(self, request_id: str, most: int, keep: Callable[[bytes], Awaitable[None]]):
        self.final = False
        self._request_id = request_id
        self._most = most
        self._keep = keep
        self._status = 0
        self._headers: tuple[tuple[bytes, bytes], ...] = ()
        self._body = bytearray()
        self._too_large = False

    async def see(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = tuple((k, v) for k, v in message["headers"] if not k.lower().startswith(_OF_ONE_REQUEST))
            return
        self._add(message.get("body", b""))
        if not message.get("more_body") and 200 <= self._status < 300:
            self.final = True
            await self._keep(await self._packed())

    def _add(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._most:
            self._too_large = True
            self._body.clear()
        if not self._too_large:
            self._body += data

    async def _packed(self) -> bytes:
        if self._too_large:
            return b""
        answer = Answer(self._status, self._headers, bytes(self._body), self._request_id)
        if len(answer.body) <= _PIECE:
            return _encoded(answer)
        return await asyncio.to_thread(_encoded, answer)


def _encoded(answer: Answer) -> bytes:
    """Compressed: the frames of a stream say mostly the same."""
    return zlib.compress(msgspec.msgpack.encode(answer), 1)


async def unpacked(data: bytes) -> Answer | None:
    """None for what is not whole."""
    try:
        plain = zlib.decompress(data) if len(data) <= _PIECE else await asyncio.to_thread(zlib.decompress, data)
        return msgspec.msgpack.decode(plain, type=Answer)
    except (zlib.error, msgspec.DecodeError):
        return None


async def replay(x: Exchange, answer: Answer) -> None:
    """The same status and bytes, under this request's own id."""
    x.note["replay_of"] = answer.request_id
    own = [(b"x-request-id", x.request_id.encode()), (b"x-original-request-id", answer.request_id.encode())]
    await x.start(answer.status, [*answer.headers, *own, (b"idempotent-replayed", b"true")])
    body = answer.body
    last = max(0, len(body) - 1) // _PIECE * _PIECE
    for at in range(0, last, _PIECE):
        await x.write(body[at : at + _PIECE])
    await x.end_stream(body[last:])
