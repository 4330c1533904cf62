"""Limits while Redis is away: each gateway goes on alone with its share, and reconciles when Redis is back.

Rates are limited locally at rate / replicas; budgets fail closed. What was granted or given back meanwhile is put on
Redis's buckets as soon as it answers again, so that an outage grants no second burst.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from redis.exceptions import RedisError

from gateway.limit_redis import RedisBuckets
from gateway.limit_store import MemoryBuckets
from gateway.limits import Claim, Verdict, scaled
from services.common.errors import Overloaded
from services.common.telemetry import LIMITS_LOCAL, log

T = TypeVar("T")
PATIENCE_S = 0.25
PAUSE_S = 1.0
"""After a failure, how long Redis is not asked again."""
MOST_PENDING = 100_000


class FallbackBuckets:
    def __init__(self, redis: RedisBuckets, replicas: int, clock: Callable[[], float] = time.monotonic):
        self._redis = redis
        self._replicas = replicas
        self._clock = clock
        self._local = MemoryBuckets()
        self._local_claims: dict[str, Claim] = {}
        self._owed: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        """By tenant and bucket: the charge and the period of what was decided here, and Redis does not know."""
        self._pending: list[tuple[Claim, int, int]] = []
        self._away_until = 0.0
        self._reconciling: asyncio.Task[None] | None = None

    async def reserve(self, claim: Claim, spent: int | None = None) -> Verdict:
        try:
            return await self._shared(lambda: self._redis.reserve(claim, spent))
        except RedisError:
            pass
        if claim.budget:
            raise Overloaded("Your budget cannot be checked now.", retry_after=PAUSE_S)
        share = scaled(claim, self._replicas)
        if any(b.cost > b.rate.limit for b in share.buckets):
            raise Overloaded(
                "Limits cannot be checked now, and this request is too large to go without.", retry_after=5
            )
        verdict = await self._local.reserve(share)
        if verdict.granted:
            self._local_claims[claim.id] = share
            for bucket in claim.buckets:
                self._owe(claim.tenant, bucket.key, bucket.charge, bucket.rate.period)
        return verdict

    async def settle(self, claim: Claim, tokens: int, cost: int) -> None:
        share = self._local_claims.pop(claim.id, None)
        if share:
            await self._local.settle(share, tokens, cost)
            for b in claim.buckets:
                if b.counts == "tokens":
                    self._owe(claim.tenant, b.key, b.rate.charge(tokens) - b.charge, b.rate.period)
            await self._reconcile_if_back()
            return
        try:
            await self._shared(lambda: self._redis.settle(claim, tokens, cost))
        except RedisError:
            if len(self._pending) < MOST_PENDING:
                self._pending.append((claim, tokens, cost))

    async def renew(self, claims: Sequence[Claim]) -> None:
        await self._local.renew([self._local_claims[c.id] for c in claims if c.id in self._local_claims])
        shared = [c for c in claims if c.id not in self._local_claims]
        try:
            await self._shared(lambda: self._redis.renew(shared), patience=5.0)
        except RedisError:
            log.warning("reservations_not_renewed", count=len(shared))

    async def find(self, tenant: str, id: str) -> Claim | None:
        try:
            return await self._shared(lambda: self._redis.find(tenant, id))
        except RedisError:
            return None

    async def _shared(self, call: Callable[[], Awaitable[T]], patience: float = PATIENCE_S) -> T:
        """Errors: `RedisError`, at once while Redis is known to be away."""
        if self._clock() < self._away_until:
            raise RedisError("away")
        try:
            async with asyncio.timeout(patience):
                if self._owed or self._pending:
                    await self._reconcile()
                result = await call()
        except (RedisError, OSError, TimeoutError) as e:
            if not self._away_until:
                log.warning("redis_away", cause=type(e).__name__)
            self._away_until = self._clock() + PAUSE_S
            LIMITS_LOCAL.set(1)
            raise RedisError("away") from e
        if self._away_until:
            self._away_until = 0.0
            LIMITS_LOCAL.set(0)
            log.warning("redis_back")
        return result

    async def _reconcile_if_back(self) -> None:
        if self._clock() >= self._away_until:
            try:
                await self._shared(self._reconcile)
            except RedisError:
                return

    async def _reconcile(self) -> None:
        while self._owed:
            tenant, buckets = self._owed.popitem()
            charges = [(key, charge, period) for key, (charge, period) in buckets.items()]
            try:
                await self._redis.add(tenant, charges)
            except BaseException:
                for key, charge, period in charges:
                    self._owe(tenant, key, charge, period)
                raise
        while self._pending:
            claim, tokens, cost = self._pending[-1]
            await self._redis.settle(claim, tokens, cost)
            self._pending = [p for p in self._pending if p[0].id != claim.id]

    def _owe(self, tenant: str, key: str, charge: int, period: int) -> None:
        former, _ = self._owed[tenant].get(key, (0, 0))
        self._owed[tenant][key] = former + charge, period
