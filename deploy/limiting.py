"""Limits, prices and the ledger: how the parts that count are put together."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from time import time

from msgspec import Struct
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from deploy.installation import Installation
from deploy.settings import ServeSettings
from gateway.idempotency import Idempotent
from gateway.idempotency_files import FileIdempotency
from gateway.idempotency_redis import RedisIdempotency
from gateway.limit_fallback import FallbackBuckets
from gateway.limit_redis import RedisBuckets
from gateway.limit_store import MemoryBuckets
from gateway.limiter import TierLimiter
from services.chat.metering import Meter
from services.common.ports import Engine
from services.common.usage_messages import UsageQuery
from services.common.usage_ports import Ledger
from services.ledger.current import CurrentLedger
from services.ledger.journal import FileJournal
from services.ledger.prices import PriceTable
from services.ledger.service import LedgerService
from services.ledger.settings import LedgerSettings
from services.ledger.store import LedgerStore
from services.ledger.writer import LedgerWriter

PREFIX = "antiphon"


class Limiting(Struct, frozen=True):
    meter: Meter
    ledger: Ledger
    currency: str
    idempotent: Idempotent


@asynccontextmanager
async def limiting(
    settings: ServeSettings, installation: Installation, engines: Mapping[str, Engine]
) -> AsyncIterator[Limiting]:
    """What a former process left open is charged before this yields. engines: by worker name."""
    async with AsyncExitStack() as stack:
        counting = LedgerSettings()
        prices = PriceTable(counting.prices)
        recorded = LedgerService(LedgerStore(installation.database))
        journal = FileJournal(settings.home / "usage")
        stack.callback(journal.close)
        writer = await stack.enter_async_context(LedgerWriter(journal, recorded, counting.journal_interval))
        ledger = CurrentLedger(recorded, writer)

        async def spent(tenant: str, since: float) -> int:
            return await ledger.spent(UsageQuery(tenant=tenant, start=since, end=time() + 1))

        redis = _redis(settings.redis_url) if settings.redis_url else None
        if redis is None:
            buckets: MemoryBuckets | FallbackBuckets = MemoryBuckets()
            idempotent = Idempotent(FileIdempotency(settings.home / "idempotency"))
        else:
            stack.push_async_callback(redis.aclose)
            buckets = FallbackBuckets(RedisBuckets(redis, PREFIX), settings.replicas)
            idempotent = Idempotent(RedisIdempotency(redis, f"{PREFIX}:idempotency"))
        stack.push_async_callback(idempotent.close)
        meter = Meter(installation.tiers, prices, TierLimiter(installation.tiers, buckets, spent), journal)
        await meter.recover(engines)
        await stack.enter_async_context(meter.renewing())
        yield Limiting(meter, ledger, prices.currency, idempotent)


def _redis(url: str) -> Redis:
    """Without retries of its own: who asks knows better whether to wait, to go on alone or to refuse."""
    pool = BlockingConnectionPool.from_url(
        url, max_connections=64, timeout=1, socket_connect_timeout=1, socket_timeout=5, retry=Retry(NoBackoff(), 0)
    )
    return Redis.from_pool(pool)
