"""Limits while Redis is away: each gateway goes on alone with its share, and reconciles when Redis is back.

Rates are limited locally at rate / replicas, from what each bucket held when it was seen last; budgets fail closed. What
was granted or given back meanwhile is put on Redis's buckets before it is asked again, so that an outage grants no
second burst. Streams are counted afresh on each side: while an outage begins or ends, up to twice as many may be open.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace
from redis.exceptions import RedisError

from gateway.limit_redis import RedisBuckets
from gateway.limit_store import MemoryBuckets
from gateway.limits import Claim, Verdict, scaled
from services.common.errors import Overloaded
from services.common.telemetry import LIMITS_LOCAL, log

T = TypeVar("T")
PATIENCE_S = 0.5
PAUSE_S = 1.0
"""After a failure, how long Redis is not asked again. Then one request asks, and the others go on alone."""
MOST_PENDING = 100_000


class Away(RedisError):
    """Redis was not asked, or has not answered."""

    def __init__(self, asked: bool):
        super().__init__("Redis is away")
        self.asked = asked


class FallbackBuckets:
    def __init__(self, redis: RedisBuckets, replicas: int, clock: Callable[[], float] = time.monotonic):
        self._redis = redis
        self._replicas = replicas
        self._clock = clock
        self._local = MemoryBuckets()
        self._local_claims: dict[str, Claim] = {}
        self._drained: set[str] = set()
        """The local buckets that hold no more than Redis's held when this outage began."""
        self._owed: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        """By tenant and bucket: the charge and the period of what was decided here, and Redis does not know."""
        self._pending: dict[str, tuple[Claim, int, int]] = {}
        """By claim: settlements that Redis may not have got."""
        self._away_until = 0.0

    async def reserve(self, claim: Claim, spent: int | None = None) -> Verdict:
        try:
            return await self._shared(lambda: self._redis.reserve(claim, spent))
        except Away as e:
            if e.asked:  # and may have granted it all the same
                self._settle_later(claim, 0, 0)
        if claim.budget:
            raise Overloaded("Your budget cannot be checked now.", retry_after=PAUSE_S)
        share = scaled(claim, self._replicas)
        if any(b.cost > b.rate.limit for b in share.buckets):
            raise Overloaded(
                "Limits cannot be checked now, and this request is too large to go without.", retry_after=5
            )
        return await self._reserve_alone(claim, share)

    async def _reserve_alone(self, claim: Claim, share: Claim) -> Verdict:
        for key in {b.key for b in share.buckets} - self._drained:
            self._local.drain(key, self._redis.until_full(claim.tenant, key))
            self._drained.add(key)
        verdict = await self._local.reserve(share)
        if verdict.granted:
            self._local_claims[claim.id] = share
            for b in claim.buckets:
                self._owe(claim.tenant, b.key, b.charge, b.rate.period)
            return verdict
        # The same waits for the claim's own charges as the store found for the share's.
        pairs = zip(verdict.tats, share.buckets, claim.buckets, strict=True)
        tats = [max(tat, verdict.now) + mine.charge - whole.charge for tat, mine, whole in pairs]
        taken = [whole.limit if n >= mine.limit else n
                 for n, mine, whole in zip(verdict.taken, share.slots, claim.slots, strict=True)]  # fmt: skip
        return replace(verdict, tats=tats, taken=taken)

    async def settle(self, claim: Claim, tokens: int, cost: int) -> None:
        if share := self._local_claims.pop(claim.id, None):
            await self._local.settle(share, tokens, cost)
            for b in claim.buckets:
                if b.counts == "tokens":
                    self._owe(claim.tenant, b.key, b.rate.charge(tokens) - b.charge, b.rate.period)
            return
        try:
            await self._shared(lambda: self._redis.settle(claim, tokens, cost))
        except Away:
            self._settle_later(claim, tokens, cost)

    async def renew(self, claims: Sequence[Claim]) -> None:
        await self._local.renew([self._local_claims[c.id] for c in claims if c.id in self._local_claims])
        shared = [c for c in claims if c.id not in self._local_claims]
        try:
            await self._shared(lambda: self._redis.renew(shared), patience=5.0)
        except Away:
            log.warning("reservations_not_renewed", count=len(shared))

    async def find(self, tenant: str, id: str) -> Claim | None:
        try:
            return await self._shared(lambda: self._redis.find(tenant, id))
        except Away:
            return None

    async def _shared(self, call: Callable[[], Awaitable[T]], patience: float = PATIENCE_S) -> T:
        """Errors: `Away`, at once while Redis is known to be."""
        if self._away_until:
            if self._clock() < self._away_until:
                raise Away(asked=False)
            self._pause()
        try:
            async with asyncio.timeout(patience):
                await self._reconcile()
                result = await call()
        except (RedisError, OSError, TimeoutError) as e:
            if not self._away_until:
                log.warning("redis_away", cause=type(e).__name__)
            self._pause()
            LIMITS_LOCAL.set(1)
            raise Away(asked=True) from e
        if self._away_until:
            self._away_until = 0.0
            self._drained.clear()
            LIMITS_LOCAL.set(0)
            log.warning("redis_back")
        return result

    def _pause(self) -> None:
        self._away_until = self._clock() + PAUSE_S

    async def _reconcile(self) -> None:
        """What fails half-way is done again: a charge may then count twice, a settlement never does."""
        while self._owed:
            tenant, buckets = self._owed.popitem()
            try:
                await self._redis.mend(tenant, buckets)
            except BaseException:
                for key, (charge, period) in buckets.items():
                    self._owe(tenant, key, charge, period)
                raise
        while self._pending:
            id, settlement = self._pending.popitem()
            try:
                await self._redis.settle(*settlement)
            except BaseException:
                self._pending.setdefault(id, settlement)
                raise

    def _owe(self, tenant: str, key: str, charge: int, period: int) -> None:
        former, _ = self._owed[tenant].get(key, (0, 0))
        self._owed[tenant][key] = former + charge, period

    def _settle_later(self, claim: Claim, tokens: int, cost: int) -> None:
        if len(self._pending) < MOST_PENDING:
            self._pending.setdefault(claim.id, (claim, tokens, cost))
