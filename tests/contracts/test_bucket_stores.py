"""What a `BucketStore` promises: in memory, in Redis with a clock of the test's own, and in Redis on Redis's own clock."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from gateway.limit_redis import RedisBuckets
from gateway.limit_store import BucketStore, MemoryBuckets
from gateway.limits import DAY, LIFETIME, MINUTE, SECOND, Claim, Verdict, excess, remaining, seconds
from tests.support.buckets import Clock, claim, money, redis_at, requests, streams, tokens
from tests.support.redis import redis_prefix, redis_url

__all__ = ["redis_prefix", "redis_url"]


@dataclass
class House:
    """replica: the same buckets, as another process sees them."""

    store: BucketStore
    replica: BucketStore
    clock: Clock

    async def grants(self, wanted: Claim, spent: int | None = None) -> bool:
        return (await self.store.reserve(wanted, spent)).granted

    async def left(self, bucket: str = "tokens") -> int:
        """In the usual bucket, found by asking for nothing."""
        probe = claim(tokens(0) if bucket == "tokens" else requests(0))
        verdict = await self.store.reserve(probe)
        await self.store.settle(probe, 0, 0)
        return remaining(verdict.tats[0], verdict.now, probe.buckets[0].rate)

    async def spent(self, month: str = "2026-01") -> int | None:
        probe = claim(money(0, limit=10**9, month=month))
        verdict = await self.store.reserve(probe)
        await self.store.settle(probe, 0, 0)
        return verdict.spent


@pytest.fixture(params=["memory", "redis"])
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    clock = Clock()
    if request.param == "memory":
        store = MemoryBuckets(clock)
        yield House(store, store, clock)
        return
    prefix = request.getfixturevalue("redis_prefix")
    client, other = (redis_at(request.getfixturevalue("redis_url")) for _ in range(2))
    yield House(RedisBuckets(client, prefix, clock), RedisBuckets(other, prefix, clock), clock)
    await client.aclose()
    await other.aclose()


async def test_all_buckets_are_taken_from_or_none(house: House) -> None:
    small, slots = tokens(5, limit=5, key="user:u:chat:tpm"), streams(1)
    assert await house.grants(claim(tokens(5), small))
    for refused in (claim(tokens(10), small), claim(small, tokens(10)), claim(tokens(10), small, slots, money(10))):
        assert not await house.grants(refused, spent=0)
    assert await house.left() == 55
    assert await house.grants(claim(slots)), "no refused claim holds a stream"
    assert not await house.grants(claim(tokens(10), slots))
    assert await house.left() == 55


async def test_a_budget_that_refuses_takes_from_no_bucket(house: House) -> None:
    assert not await house.grants(claim(tokens(10), requests(), streams(1), money(101)), spent=0)
    assert (await house.left(), await house.left("requests")) == (60, 60)
    assert await house.grants(claim(streams(1)))


async def test_settling_gives_back_what_was_not_used(house: House) -> None:
    held = claim(tokens(40), requests(), streams(1))
    assert await house.grants(held)
    assert await house.left() == 20
    await house.store.settle(held, 15, 0)
    assert await house.left() == 45
    assert await house.left("requests") == 59, "the request was made, whatever it used"
    assert await house.grants(claim(streams(1)))


async def test_the_first_settlement_counts(house: House) -> None:
    held = claim(tokens(40), money(40))
    assert await house.grants(held, spent=0)
    await house.store.settle(held, 10, 10)
    for store in (house.store, house.replica):
        await store.settle(held, 0, 0)
        await store.settle(held, 60, 60)
    assert await house.left() == 50
    assert await house.spent() == 10


async def test_what_was_never_granted_cannot_be_settled(house: House) -> None:
    assert await house.grants(claim(tokens(50)))
    refused = claim(tokens(50))
    assert not await house.grants(refused)
    await house.store.settle(refused, 0, 0)
    assert await house.left() == 10


@pytest.mark.parametrize(("ran_s", "wait_s"), [(0, 31), (1, 30), (3600, 30)])
async def test_who_uses_more_than_was_reserved_owes_it(house: House, ran_s: int, wait_s: int) -> None:
    held = claim(tokens(1))
    assert await house.grants(held)
    for _ in range(ran_s // 30):
        house.clock.sleep(30)
        await house.store.renew([held])
    house.clock.sleep(ran_s % 30)
    await house.store.settle(held, 90, 0)
    assert await house.left() == 0
    verdict = await house.store.reserve(claim(tokens(1)))
    assert excess(verdict.tats[0], verdict.now, tokens(1)) == wait_s * SECOND
    await _opens_after(house, claim(tokens(1)), verdict, wait_s * SECOND)


async def test_a_debt_is_one_burst_at_most(house: House) -> None:
    held = claim(tokens(1))
    assert await house.grants(held)
    await house.store.settle(held, 10_000, 0)
    verdict = await house.store.reserve(claim(tokens(60)))
    assert excess(verdict.tats[0], verdict.now, tokens(60)) == 2 * MINUTE
    await _opens_after(house, claim(tokens(60)), verdict, 2 * MINUTE)


async def _opens_after(house: House, wanted: Claim, refusal: Verdict, wait: int) -> None:
    assert not refusal.granted
    house.clock.now += wait - 1
    assert not await house.grants(wanted)
    house.clock.now += 1
    assert await house.grants(wanted)


async def test_a_refund_never_fills_a_bucket_over_its_burst(house: House) -> None:
    held = claim(tokens(60))
    assert await house.grants(held)
    house.clock.sleep(50)
    await house.store.settle(held, 0, 0)
    assert await house.left() == 60
    assert not await house.grants(claim(tokens(61)))
    assert await house.grants(claim(tokens(60)))
    assert not await house.grants(claim(tokens(1)))


async def test_an_expired_claim_counts_as_used_and_frees_its_stream_and_its_money(house: House) -> None:
    day = {"limit": 1000, "key": "key:k:chat:tpd", "period": DAY}
    held = claim(tokens(600, **day), streams(1), money(80))  # type: ignore[arg-type]
    assert await house.grants(held, spent=0)
    house.clock.now += LIFETIME - 1
    assert not await house.grants(claim(streams(1)))
    assert await house.spent() == 80
    house.clock.now += 1
    assert await house.spent() == 0
    assert await house.grants(claim(streams(1)))
    await house.store.settle(held, 0, 7)
    assert not await house.grants(claim(tokens(500, **day))), "an expired reservation is not given back"  # type: ignore[arg-type]
    assert await house.spent() == 7
    await house.replica.settle(held, 0, 7)
    assert await house.spent() == 7


async def test_money_of_a_dead_holder_is_free_however_long_its_tenant_was_silent(house: House) -> None:
    assert await house.grants(claim(money(80)), spent=0)
    house.clock.sleep(3 * 3600)
    assert await house.spent() == 0


async def test_a_renewed_claim_lives_on(house: House) -> None:
    held = claim(tokens(60), streams(1), money(50))
    assert await house.grants(held, spent=0)
    for _ in range(5):
        house.clock.now += LIFETIME - 1
        await house.store.renew([held])
    assert not await house.grants(claim(streams(1)))
    assert await house.spent() == 50
    await house.store.settle(held, 0, 20)
    assert await house.spent() == 20
    assert await house.grants(claim(streams(1)))


async def test_renewing_brings_no_expired_claim_back(house: House) -> None:
    held = claim(streams(1), money(50))
    assert await house.grants(held, spent=0)
    house.clock.now += LIFETIME
    await house.store.renew([held, claim(streams(1))])
    assert await house.grants(claim(streams(1)))
    assert await house.spent() == 0


async def test_another_process_finds_and_settles_a_claim(house: House) -> None:
    held = claim(tokens(40, limit=70), requests(), streams(1), money(50))
    assert await house.grants(held, spent=0)
    found = await house.replica.find("org", held.id)
    assert found == held
    assert await house.replica.find("another", held.id) is None
    assert await house.replica.find("org", "claim-0") is None
    await house.replica.settle(found, 10, 5)
    assert await house.store.find("org", held.id) is None
    assert await house.spent() == 5


async def test_an_expired_claim_is_found_for_its_cost(house: House) -> None:
    held = claim(money(50))
    assert await house.grants(held, spent=0)
    house.clock.now += 2 * LIFETIME
    assert await house.spent() == 0
    found = await house.replica.find("org", held.id)
    assert found == held
    await house.replica.settle(found, 0, 12)
    assert await house.spent() == 12
    assert await house.replica.find("org", held.id) is None


async def test_an_unknown_budget_grants_nothing_until_it_is_told_once(house: House) -> None:
    verdict = await house.store.reserve(claim(tokens(10), streams(1), money(5)))
    assert (verdict.granted, verdict.spent) == (False, None)
    assert await house.left() == 60
    first = await house.store.reserve(claim(money(5)), 60)
    assert (first.granted, first.spent) == (True, 65)
    second = await house.replica.reserve(claim(money(5)), 0)
    assert (second.granted, second.spent) == (True, 70), "what the store knows counts, not what it is told again"


async def test_a_budget_refuses_before_it_is_passed(house: House) -> None:
    assert not await house.grants(claim(money(41)), spent=60)
    held = claim(money(40))
    assert await house.grants(held)
    refusal = await house.store.reserve(claim(money(1)))
    assert (refusal.granted, refusal.spent) == (False, 100)
    await house.store.settle(held, 0, 39)
    assert await house.grants(claim(money(1)))


async def test_each_month_has_a_budget_of_its_own(house: House) -> None:
    assert await house.grants(claim(money(100)), spent=0)
    assert (await house.store.reserve(claim(money(1, month="2026-02")))).spent is None
    assert await house.grants(claim(money(100, month="2026-02")), spent=0)
    assert not await house.grants(claim(money(1)))


async def test_tenants_share_no_stream_and_no_money(house: House) -> None:
    assert await house.grants(claim(tokens(60, key="organisation:org:chat:tpm"), money(100)), spent=0)
    theirs = claim(
        tokens(60, key="organisation:other:chat:tpm"), streams(1, key="organisation:other:chat:streams"), tenant="other"
    )
    assert await house.grants(theirs)


async def test_waiting_is_right_to_the_second(house: House) -> None:
    wanted = claim(tokens(7, limit=37), requests(1, limit=23))
    while (verdict := await house.store.reserve(claim(*wanted.buckets))).granted:
        pass
    wait = max(excess(tat, verdict.now, b) for tat, b in zip(verdict.tats, wanted.buckets, strict=True))
    assert 0 < wait <= seconds(wait) * SECOND < wait + SECOND
    await _opens_after(house, wanted, verdict, wait)


async def test_of_many_at_once_exactly_the_burst_is_let_in(house: House) -> None:
    stores = (house.store, house.replica)
    verdicts = await asyncio.gather(*(stores[i % 2].reserve(claim(tokens(7), streams(100))) for i in range(50)))
    assert sum(v.granted for v in verdicts) == 60 // 7


async def test_on_redis_s_own_clock_waiting_helps(redis_url: str, redis_prefix: str) -> None:
    async with redis_at(redis_url) as client:
        store = RedisBuckets(client, redis_prefix)
        wanted = [tokens(10, limit=10, period=SECOND)]
        began = time.time()
        first = await store.reserve(claim(*wanted))
        assert first.granted
        assert abs(first.now / SECOND - began) < 5, "the tests' Redis runs on this machine's clock"
        refusal = await store.reserve(claim(*wanted))
        assert not refusal.granted
        await asyncio.sleep(excess(refusal.tats[0], refusal.now, wanted[0]) / SECOND)
        assert (await store.reserve(claim(*wanted))).granted


async def test_redis_keeps_nothing_of_what_is_settled(redis_url: str, redis_prefix: str) -> None:
    async with redis_at(redis_url) as client:
        store = RedisBuckets(client, redis_prefix)
        held = claim(tokens(10), streams(3), money(5))
        await store.reserve(held, 0)
        for name in (f"claim:{held.id}", "open"):
            left = await client.ttl(f"{redis_prefix}:{{org}}:{name}")
            assert left > 31 * DAY / SECOND, "money is held until it is given back, not until its keys are forgotten"
        await store.settle(held, 0, 5)
        names = {key.rpartition(b"}:")[2] for key in await client.keys(f"{redis_prefix}*")}
        assert names == {b"birth", b"budget:org:2026-01"}
        assert all([await client.ttl(key) > 0 for key in await client.keys(f"{redis_prefix}*")])
