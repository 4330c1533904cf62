"""Claims, clocks and Redis clients for tests of limits."""

import itertools

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.limits import MINUTE, SECOND, Bucket, Budget, Claim, Rate, Slots

_ids = itertools.count(1)


class Clock:
    """Microseconds. They pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


def tokens(cost: int, limit: int = 60, key: str = "key:k:chat:tpm", period: int = MINUTE) -> Bucket:
    return Bucket(key, Rate(limit, period), "tokens").taking(cost)


def requests(cost: int = 1, limit: int = 60, key: str = "key:k:chat:rpm", period: int = MINUTE) -> Bucket:
    return Bucket(key, Rate(limit, period), "requests").taking(cost)


def streams(limit: int, key: str = "key:k:chat:streams") -> Slots:
    return Slots(key, limit)


def money(cost: int, limit: int = 100, month: str = "2026-01") -> Budget:
    return Budget(f"budget:org:{month}", limit, cost)


def claim(*parts: Bucket | Slots | Budget, tenant: str = "org") -> Claim:
    budgets = [p for p in parts if isinstance(p, Budget)]
    return Claim(
        f"claim-{next(_ids)}",
        tenant,
        tuple(p for p in parts if isinstance(p, Bucket)),
        tuple(p for p in parts if isinstance(p, Slots)),
        budgets[0] if budgets else None,
    )


def redis_at(url: str) -> Redis:
    """As the product makes it: no retries of its own, and who finds no free connection waits for one."""
    pool = BlockingConnectionPool.from_url(
        url, max_connections=64, timeout=1, socket_connect_timeout=1, socket_timeout=5, retry=Retry(NoBackoff(), 0)
    )
    return Redis.from_pool(pool)
