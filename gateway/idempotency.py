"""Idempotency-Key: a request that is sent again gets the first one's answer, and costs nothing.

The key is claimed before the request runs, and the answer is kept before its last byte goes out. Only a 2xx answer that
came to its regular end is final; whatever else happens gives the key back, so that a retry runs. What could not be kept
(too large, no room) is never run a second time either: its key gets a 409 that says so, until it expires.
"""

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal, Protocol

from msgspec import Struct

from gateway.exchange import Exchange
from gateway.idempotency_answer import Recording, replay, unpacked
from gateway.strict_json import parse_object
from services.common.errors import Conflict, IdempotencyInProgress, IdempotencyMismatch, InvalidRequest, Overloaded
from services.common.telemetry import log

Handler = Callable[[Exchange], Awaitable[None]]

LIFETIME_S = 24 * 3600.0
"""How long an answer is kept."""
MAX_ANSWER_BYTES = 8 << 20
RENEW_S = 5.0
CLAIM_S = 15.0
"""A claim that was not renewed for so long is free: its holder has died."""
KEEP_WAIT_S = 1.0
"""So long an answer waits until it is kept. Then it goes out, and keeping it goes on."""
KEEP_TRIES = 200
NAME = "Idempotency-Key"
_KEY = re.compile(rb"[\x20-\x7e]{1,255}")
_BOUNDARY = re.compile(rb'multipart/form-data;.*boundary="?([^";]+)', re.IGNORECASE)


class Claim(Struct, frozen=True):
    """The right to run one request. Two claims of one key differ in their holder."""

    name: str
    """Of the key in its scope: a hash, which betrays neither."""
    fingerprint: bytes
    """SHA-256 of the request."""
    holder: bytes


class Known(Struct, frozen=True):
    state: Literal["running", "finished"]
    fingerprint: bytes
    answer: bytes = b""
    """"" of a finished one: it could not be kept."""


class IdempotencyStore(Protocol):
    async def claim(self, claim: Claim) -> Known | None:
        """None: it is the caller's, until `keep` or `release`. Errors: `Overloaded`, and then it is not."""
        ...

    async def renew(self, claim: Claim) -> None:
        """Its holder lives. Takes a claim again that the store has lost. Errors: `Overloaded`."""
        ...

    async def keep(self, claim: Claim, answer: bytes) -> None:
        """The answer, or "" for one that cannot be kept. Does nothing to a key that is another's. Errors: `Overloaded`."""
        ...

    async def release(self, claim: Claim) -> None:
        """Free the key, if it is still this claim's and not finished. Errors: `Overloaded`."""
        ...


class Idempotent:
    """Policy around a handler: `await idempotent.run(x, handler)`."""

    def __init__(
        self, store: IdempotencyStore, *, max_answer_bytes: int = MAX_ANSWER_BYTES, renew_s: float = RENEW_S,
        keep_wait_s: float = KEEP_WAIT_S,
    ):  # fmt: skip
        self._store = store
        self._most = max_answer_bytes
        self._renew_s = renew_s
        self._keep_wait_s = keep_wait_s
        self._keeping: set[asyncio.Task[None]] = set()

    async def run(self, x: Exchange, handler: Handler) -> None:
        """Errors: the handler's; `InvalidRequest` for a bad key, `IdempotencyMismatch`, `IdempotencyInProgress`,
        `Conflict` where the answer was not kept, `Overloaded` while keys cannot be claimed."""
        keys = [value for name, value in x.scope["headers"] if name == b"idempotency-key"]
        if not keys:
            await handler(x)
            return
        claim = await _claim(x, keys)
        known = await self._store.claim(claim)
        if known is None:
            await self._first(x, handler, claim)
        else:
            await _again(x, claim, known)

    async def close(self, patience: float = 5.0) -> None:
        """Wait for answers that are still being kept."""
        if self._keeping:
            _, late = await asyncio.wait(self._keeping, timeout=patience)
            for task in late:
                task.cancel()

    async def _first(self, x: Exchange, handler: Handler, claim: Claim) -> None:
        recording = Recording(x.request_id, self._most, lambda answer: self._keep(claim, answer))
        x.recorder = recording.see
        try:
            async with self._renewed(claim):
                await handler(x)
        finally:
            x.recorder = None
            if not recording.final:
                await self._release(claim)

    @asynccontextmanager
    async def _renewed(self, claim: Claim) -> AsyncIterator[None]:
        task = asyncio.create_task(self._renew(claim))
        try:
            yield
        finally:
            task.cancel()

    async def _renew(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(self._renew_s)
            with suppress(Overloaded):  # the next one may come in time
                await self._store.renew(claim)

    async def _keep(self, claim: Claim, answer: bytes) -> None:
        """A task of its own: the client's going away in the last moment must not lose what was run and charged."""
        task = asyncio.create_task(self._keep_at_last(claim, answer))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)
        await asyncio.wait({task}, timeout=self._keep_wait_s)

    async def _keep_at_last(self, claim: Claim, answer: bytes) -> None:
        """While the store is away nothing new is claimed, so these are no more than the runs that it left open."""
        for attempt in range(KEEP_TRIES):
            try:
                await self._store.keep(claim, answer)
                return
            except Overloaded as e:
                if not attempt:
                    log.error("idempotent_answer_not_kept_yet", error=e.message)
            await asyncio.sleep(min(5.0, 0.1 * 2**attempt))
        log.error("idempotent_answer_lost")

    async def _release(self, claim: Claim) -> None:
        try:
            await self._store.release(claim)
        except Overloaded as e:  # it expires, or the next start drops it
            log.warning("idempotency_key_not_released", error=e.message)


async def _claim(x: Exchange, keys: list[bytes]) -> Claim:
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise InvalidRequest(f"{NAME} must be given once, as 1 to 255 printable ASCII characters.", param=NAME)
    body = await x.body()
    x.unread(body)
    who = x.principal
    scope = [who.tenant, who.user_id, who.space, x.scope["method"], x.scope["path"], keys[0].decode()]
    name = hashlib.sha256(json.dumps(scope).encode()).hexdigest()
    return Claim(name, fingerprint(body, x.header(b"content-type"), x.scope["query_string"]), secrets.token_bytes(16))


def fingerprint(body: bytes, content_type: bytes = b"", query: bytes = b"") -> bytes:
    """SHA-256. White space and the order of keys do not count in JSON, nor the boundary in a form."""
    form = _BOUNDARY.match(content_type)
    if form:  # clients draw a new one for each attempt
        canonical = b"form" + body.replace(form[1], b"")
    else:
        try:
            canonical = b"json" + json.dumps(parse_object(body), sort_keys=True, separators=(",", ":")).encode()
        except (InvalidRequest, RecursionError):  # for the handler to refuse, or to take
            canonical = b"raw " + body
    return hashlib.sha256(hashlib.sha256(query).digest() + canonical).digest()


async def _again(x: Exchange, claim: Claim, known: Known) -> None:
    if known.fingerprint != claim.fingerprint:
        raise IdempotencyMismatch(f"This {NAME} was used with another request. Use a new one.", param=NAME)
    if known.state == "running":
        raise IdempotencyInProgress(f"The first request with this {NAME} still runs.", param=NAME, retry_after=1)
    answer = await unpacked(known.answer)
    if answer is None:
        raise Conflict(
            f"The request with this {NAME} has run, but its answer was too large to keep, or there was no room for it. "
            "It is not run a second time; use a new key to do so.",
            param=NAME, code="idempotency_answer_not_kept",
        )  # fmt: skip
    await replay(x, answer)
