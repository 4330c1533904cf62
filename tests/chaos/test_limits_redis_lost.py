"""Limits while Redis is killed, hangs or was never there. Gateways here share one process, but no memory."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest

from gateway.limit_fallback import FallbackBuckets
from gateway.limit_redis import RedisBuckets
from gateway.limiter import TierLimiter
from gateway.limits import DAY, SECOND, Claim, Verdict, remaining
from services.common.account_messages import Principal
from services.common.errors import Overloaded, RateLimited
from services.common.usage_messages import Ask, Limits, Settlement, Tier
from tests.support.buckets import claim, money, redis_at, requests, streams, tokens
from tests.support.redis import OwnRedis, own_redis

NOWHERE = "redis://127.0.0.1:1/0"
LIMIT, PERIOD = 200, 10 * SECOND
WORKERS = 4


@pytest.fixture
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


@asynccontextmanager
async def gateways(url: str, number: int, replicas: int | None = None) -> AsyncIterator[list[FallbackBuckets]]:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(redis_at(url)) for _ in range(number)]
        yield [FallbackBuckets(RedisBuckets(c), replicas or number) for c in clients]


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@dataclass
class Load:
    """Asks as fast as it can: a request, 10 tokens of which 5 are used, a stream."""

    began: float = field(default_factory=time.monotonic)
    admitted: list[float] = field(default_factory=list)
    over: bool = False

    async def work(self, gateway: FallbackBuckets) -> None:
        while not self.over:
            wanted = claim(
                requests(1, limit=LIMIT, period=PERIOD), tokens(10, limit=20 * LIMIT, period=PERIOD), streams(50)
            )
            if (await gateway.reserve(wanted)).granted:
                self.admitted.append(time.monotonic())
                await gateway.settle(wanted, 5, 0)
            await asyncio.sleep(0.005)

    def between(self, begin: float, end: float) -> int:
        return sum(begin <= at < end for at in self.admitted)


async def test_killed_under_load_and_started_empty_it_grants_no_second_burst(server: OwnRedis) -> None:
    """The bound from the first request on: rate · t + burst, and WORKERS more a gateway: those in flight when Redis died,
    which another gateway has not seen. Rounding: shares are rounded down, and here come to the whole.
    """
    async with gateways(server.url, 2) as pair:
        load = Load()
        working = [asyncio.create_task(load.work(g)) for g in pair for _ in range(WORKERS)]
        while len(load.admitted) <= LIMIT:
            await asyncio.sleep(0.02)
        server.kill()
        killed = time.monotonic()
        await asyncio.sleep(2.5)
        server.start()
        back = time.monotonic()
        async with redis_at(server.url) as client:
            await _until(lambda: client.exists("antiphon:{org}:birth"))
            returned = time.monotonic()
            await asyncio.sleep(3)
            load.over = True
            await asyncio.gather(*working)
            elapsed = time.monotonic() - load.began
            assert len(load.admitted) <= LIMIT / 10 * elapsed + LIMIT + len(pair) * WORKERS
            assert load.between(killed + 0.5, back) > LIMIT / 10, "service goes on"
            assert load.between(returned, time.monotonic()) > LIMIT / 10, "and so it does when Redis is back"
            kinds = {key.rpartition(b"}:")[2] for key in await client.keys("*")}
            assert kinds <= {b"birth", b"key:k:chat:rpm", b"key:k:chat:tpm"}, "no claim and no stream is left"


async def test_what_was_granted_alone_is_on_redis_s_buckets_when_it_is_back(server: OwnRedis) -> None:
    day = {"limit": 1000, "period": DAY}
    async with gateways(server.url, 1) as (gateway,):
        held = claim(tokens(100, **day))
        assert (await gateway.reserve(held)).granted
        server.kill()
        alone = [claim(tokens(100, **day)) for _ in range(3)]
        assert all([(await gateway.reserve(c)).granted for c in alone])
        await gateway.settle(alone[0], 40, 0)
        await gateway.settle(alone[1], 130, 0)
        server.start()
        await _comes_to(1000 - 100 - 40 - 130 - 100, gateway, server, **day)
        await gateway.settle(alone[2], 0, 0)
        await _comes_to(1000 - 100 - 40 - 130, gateway, server, **day)
        await gateway.settle(held, 0, 0)
        await _comes_to(
            1000 - 100 - 40 - 130, gateway, server, **day
        )  # Redis has forgotten that claim: it counts as used


async def test_hanging_it_delays_few_decisions_and_keeps_nothing_for_those_that_gave_up(server: OwnRedis) -> None:
    """Sixty decisions a gateway, one after the other: would each wait for the hung server, they took 15 s and more."""
    day = {"limit": 5000, "period": DAY}
    async with gateways(server.url, 1) as (gateway,), redis_at(server.url) as client:
        held = claim(tokens(100, **day), streams(500))
        assert (await gateway.reserve(held)).granted
        alone: list[Claim] = []
        with stopped((await client.info("server"))["process_id"]):
            async with asyncio.timeout(10):
                for _ in range(60):
                    batch = [claim(tokens(1, **day), streams(500)) for _ in range(5)]
                    assert all(v.granted for v in await asyncio.gather(*(gateway.reserve(c) for c in batch)))
                    alone += batch
                await gateway.settle(held, 20, 0)
        await _comes_to(5000 - 20 - len(alone), gateway, server, **day)
        for c in alone:
            await gateway.settle(c, 0, 0)
        await _comes_to(5000 - 20, gateway, server, **day)
        assert not [key for key in await client.keys("*") if b"claim" in key or b"streams" in key]


async def test_budgets_fail_closed_and_open_again(server: OwnRedis) -> None:
    async with gateways(server.url, 1) as (gateway,):
        assert (await gateway.reserve(claim(money(40)), 0)).granted
        server.kill()
        for _ in range(3):
            with pytest.raises(Overloaded, match="budget cannot be checked") as error:
                await gateway.reserve(claim(money(1)))
            assert (error.value.status, error.value.retry_after) == (503, 1.0)
        assert (await gateway.reserve(claim(tokens(1)))).granted, "who has no budget goes on"
        server.start()
        assert (await _answered(gateway, claim(money(1)))).spent is None, "the ledger is asked again"
        assert (await _answered(gateway, claim(money(60)), 40)).granted
        assert not (await _answered(gateway, claim(money(1)))).granted


async def test_a_settlement_that_redis_did_not_get_is_made_up_for(server: OwnRedis) -> None:
    day = {"limit": 1000, "period": DAY}
    async with gateways(server.url, 1) as (gateway,), redis_at(server.url) as client:
        held = claim(tokens(500, **day), streams(1), money(50))
        assert (await gateway.reserve(held, 0)).granted
        with stopped((await client.info("server"))["process_id"]):
            await gateway.settle(held, 100, 7)
        await _comes_to(900, gateway, server, **day)
        again = await _answered(gateway, claim(streams(1), money(1)))
        assert (again.granted, again.spent) == (True, 8)


async def test_without_redis_each_gateway_keeps_to_its_share_and_the_wait_is_right() -> None:
    limits = Limits(requests_per_minute=120, tokens_per_minute=1000, concurrent_streams=80)
    async with gateways(NOWHERE, 1, replicas=2) as (gateway,):
        limiter = _limiter(Tier(name="free", limits={"chat": {"key": limits}}), gateway)
        held = [await limiter.reserve(_ask()) for _ in range(40)]
        with pytest.raises(RateLimited, match="80 streams at a time") as refused:
            await limiter.reserve(_ask())
        assert refused.value.retry_after == 1
        for each in held:
            await limiter.settle(Settlement(id=each.id, tenant="org", tokens=0))
        with pytest.raises(RateLimited, match="120 requests per minute") as refused:
            await _exhaust(limiter)
        assert refused.value.retry_after == 1
        await asyncio.sleep(refused.value.retry_after)
        assert (await limiter.reserve(_ask())).id
        with pytest.raises(Overloaded, match="too large to go without"):
            await limiter.reserve(_ask(tokens=501))


async def test_who_gives_up_while_it_hangs_holds_nothing_afterwards(server: OwnRedis) -> None:
    async with gateways(server.url, 1) as (gateway,), redis_at(server.url) as client:
        limiter = _limiter(Tier(name="free", limits={"chat": {"key": Limits(concurrent_streams=1)}}), gateway)
        held = await limiter.reserve(_ask())
        await limiter.settle(Settlement(id=held.id, tenant="org", tokens=0))
        with stopped((await client.info("server"))["process_id"]):
            asking = asyncio.create_task(limiter.reserve(_ask()))
            await asyncio.sleep(0.05)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.1)
        held = await limiter.reserve(_ask())
        assert held.id
        await limiter.settle(Settlement(id=held.id, tenant="org", tokens=0))
        assert not [key for key in await client.keys("*") if b"claim" in key or b"streams" in key]


async def _exhaust(limiter: TierLimiter) -> None:
    while True:
        held = await limiter.reserve(_ask())
        await limiter.settle(Settlement(id=held.id, tenant="org", tokens=0))


def _ask(tokens: int = 1) -> Ask:
    return Ask(principal=Principal(tenant="org", key_id="k"), tokens=tokens)


def _limiter(tier: Tier, store: FallbackBuckets) -> TierLimiter:
    class Tiers:
        def tier(self, name: str) -> Tier:
            return tier

        def all(self) -> dict[str, Tier]:
            return {"free": tier}

    async def spent(tenant: str, since: float) -> int:
        return 0

    return TierLimiter(Tiers(), store, spent)


async def _comes_to(expected: int, gateway: FallbackBuckets, server: OwnRedis, limit: int, period: int) -> None:
    """What Redis's bucket of tokens holds, of which none comes back during a test, when the gateway has asked again."""
    left = None
    async with asyncio.timeout(30), redis_at(server.url) as client:
        while left != expected:
            probe = claim(tokens(0, limit=limit, period=period))
            await gateway.reserve(probe)
            await gateway.settle(probe, 0, 0)
            tat, (second, microsecond) = await client.get("antiphon:{org}:key:k:chat:tpm"), await client.time()
            left = remaining(int(tat or 0), second * SECOND + microsecond, probe.buckets[0].rate)
            await asyncio.sleep(0.1)


async def _answered(gateway: FallbackBuckets, wanted: Claim, spent: int | None = None) -> Verdict:
    async with asyncio.timeout(30):
        while True:
            try:
                return await gateway.reserve(wanted, spent)
            except Overloaded:
                await asyncio.sleep(0.1)


async def _until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)
