"""Idempotency keys in Redis, shared by all gateways. One value a key: its state, the fingerprint, the holder or answer.

The server must not evict keys that expire later (maxmemory-policy noeviction): an evicted answer would be run again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.idempotency import CLAIM_S, LIFETIME_S, Claim, Known
from services.common.errors import Overloaded

_RUNNING, _FINISHED = b"r", b"f"
_ANSWER = 1 + 32
"""Where the answer begins in a value."""

# Each: KEYS[1] the key, ARGV[1] the claim's own value.
_RENEW = """
local found = redis.call('GET', KEYS[1])
if not found then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
elseif found == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
"""
_KEEP = """
local found = redis.call('GET', KEYS[1])
if not found or found == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
"""


class RedisIdempotency:
    """redis: one that answers in bytes, of version 7 or later. prefix: of every key.

    patience_s: after which a server that says nothing counts as away.
    """

    def __init__(
        self, redis: Redis, prefix: str, *, lifetime_s: float = LIFETIME_S, claim_s: float = CLAIM_S,
        patience_s: float = 2.0,
    ):  # fmt: skip
        self._redis = redis
        self._prefix = prefix
        self._lifetime_ms = round(lifetime_s * 1000)
        self._claim_ms = round(claim_s * 1000)
        self._patience_s = patience_s
        self._renewing = redis.register_script(_RENEW)
        self._keeping = redis.register_script(_KEEP)
        self._releasing = redis.register_script(_RELEASE)

    async def claim(self, claim: Claim) -> Known | None:
        own = _running(claim)
        async with self._reached():
            found = await self._redis.set(self._key(claim), own, nx=True, get=True, px=self._claim_ms)
        if found is None or found == own:  # the client tries again when a reply was lost
            return None
        assert isinstance(found, bytes), "the client must not decode"
        return _known(found)

    async def renew(self, claim: Claim) -> None:
        async with self._reached():
            await self._renewing([self._key(claim)], [_running(claim), self._claim_ms])

    async def keep(self, claim: Claim, answer: bytes) -> None:
        value = _FINISHED + claim.fingerprint + answer
        async with self._reached():
            await self._keeping([self._key(claim)], [_running(claim), value, self._lifetime_ms])

    async def release(self, claim: Claim) -> None:
        async with self._reached():
            await self._releasing([self._key(claim)], [_running(claim)])

    def _key(self, claim: Claim) -> str:
        return f"{self._prefix}:{claim.name}"

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._patience_s):
                yield
        except (RedisError, OSError) as e:
            raise Overloaded("Idempotency keys cannot be kept: their store does not answer.", retry_after=1) from e


def _running(claim: Claim) -> bytes:
    return _RUNNING + claim.fingerprint + claim.holder


def _known(value: bytes) -> Known:
    if value[:1] == _RUNNING:
        return Known("running", value[1:_ANSWER])
    return Known("finished", value[1:_ANSWER], value[_ANSWER:])
