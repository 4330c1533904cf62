"""Equal histories get equal verdicts: memory, Redis as several gateways share it, and the textbook's bucket."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from gateway.limit_redis import RedisBuckets
from gateway.limit_store import BucketStore, MemoryBuckets
from gateway.limits import DAY, MINUTE, SECOND, Bucket, Claim, Rate, Verdict, excess, seconds
from tests.contracts.bucket_model import Model
from tests.support.buckets import Clock, claim, money, redis_at, streams, tokens
from tests.support.redis import redis_prefix, redis_url

__all__ = ["redis_prefix", "redis_url"]

T = TypeVar("T")
BUCKETS = {
    b.key: b
    for b in (
        Bucket("key:k:chat:rpm", Rate(7, MINUTE), "requests"),
        Bucket("key:k:chat:tpm", Rate(37, MINUTE), "tokens"),
        Bucket("user:u:chat:tpm", Rate(53, MINUTE), "tokens"),
        Bucket("organisation:o:chat:tpd", Rate(400, DAY), "tokens"),
    )
}
STREAMS, MONEY = streams(3), 100
COSTS = st.integers(0, 37)
TIMES = st.one_of(
    st.integers(0, 20 * SECOND), st.sampled_from([1, SECOND, 10 * SECOND, MINUTE - 1, MINUTE, 3 * MINUTE, DAY])
)
_numbers = itertools.count()


class Histories(RuleBasedStateMachine):
    held = Bundle("held")

    def __init__(self, url: str, prefix: str):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.client = redis_at(url)
        self.clock = Clock()
        prefix = f"{prefix}{next(_numbers)}"
        self.memory = MemoryBuckets(self.clock)
        self.replicas = [RedisBuckets(self.client, prefix, self.clock) for _ in range(3)]
        self.model = Model(BUCKETS, MONEY, self.clock.now)

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    @initialize(spent=st.integers(0, 60))
    def tell_what_was_spent(self, spent: int) -> None:
        for store in (self.memory, self.replicas[0]):
            first = claim(money(0, MONEY))
            assert self.run(store.reserve(first)).spent is None
            assert self.run(store.reserve(first, spent)).spent == spent
            self.run(store.settle(first, 0, 0))
        self.model.spent = spent

    @rule(
        target=held, names=st.sets(st.sampled_from(sorted(BUCKETS))), cost=COSTS, stream=st.booleans(),
        price=st.none() | st.integers(0, 50), replica=st.integers(0, 2), patience=st.sampled_from(["none", "exact", "seconds"]),
    )  # fmt: skip
    def reserve(self, names: set[str], cost: int, stream: bool, price: int | None, replica: int, patience: str) -> Any:
        buckets = [BUCKETS[n].taking(1 if BUCKETS[n].counts == "requests" else cost) for n in sorted(names)]
        wanted = claim(*buckets, *([STREAMS] if stream else []), *([money(price, MONEY)] if price is not None else []))
        verdict = self.ask(wanted, self.replicas[replica])
        if not verdict.granted and patience != "none" and not self.model.lacks_slot_or_money(wanted):
            wait = max(excess(tat, verdict.now, b) for tat, b in zip(verdict.tats, buckets, strict=True))
            verdict = self.wait_as_told(wanted, wait, patience == "seconds", self.replicas[replica])
        return wanted if verdict.granted else multiple()

    def wait_as_told(self, wanted: Claim, wait: int, whole: bool, replica: BucketStore) -> Verdict:
        assert wait > 0
        begun = self.clock.now
        self.clock.now = begun + wait - 1
        assert not self.ask(wanted, replica).granted
        self.clock.now = begun + (seconds(wait) * SECOND if whole else wait)
        verdict = self.ask(wanted, replica)
        assert verdict.granted
        return verdict

    def ask(self, wanted: Claim, replica: BucketStore) -> Verdict:
        now = self.clock.now
        self.model.pass_time(now)
        mine, shared = self.run(self.memory.reserve(wanted)), self.run(replica.reserve(wanted))
        assert _plain(mine) == _plain(shared)
        assert mine.granted in self.model.verdicts(wanted, now)
        if mine.granted:
            self.model.grant(wanted, now)
            for b in wanted.buckets:
                level = self.model.levels[b.key]
                assert level.let_in <= level.promised(now) + level.forgiven
        assert list(mine.taken) == [self.model.taken(s.key) for s in wanted.slots]
        assert mine.spent == (self.model.spent if wanted.budget else 0)
        return mine

    def look(self, replica: int) -> None:
        """Ask for nothing of everything."""
        probe = claim(*(b.taking(0) for b in BUCKETS.values()), STREAMS, money(0, MONEY))
        if self.ask(probe, self.replicas[replica]).granted:
            for store in (self.memory, self.replicas[replica]):
                self.run(store.settle(probe, 0, 0))
            self.model.settle(probe, 0, 0, self.clock.now)

    @rule(it=held, after=TIMES, used=COSTS | st.integers(0, 300), cost=st.integers(0, 50), replica=st.integers(0, 2))
    def settle(self, it: Claim, after: int, used: int, cost: int, replica: int) -> None:
        """Again, too, and when it has expired."""
        self.clock.now += after
        self.model.pass_time(self.clock.now)
        self.run(self.memory.settle(it, used, cost))
        self.run(self.replicas[replica].settle(it, used, cost))
        self.model.settle(it, used, cost, self.clock.now)
        self.look(replica)

    @rule(it=held, replica=st.integers(0, 2))
    def renew(self, it: Claim, replica: int) -> None:
        self.model.pass_time(self.clock.now)
        self.run(self.memory.renew([it]))
        self.run(self.replicas[replica].renew([it]))
        self.model.renew(it, self.clock.now)

    @rule(it=held, replica=st.integers(0, 2))
    def find(self, it: Claim, replica: int) -> None:
        self.model.pass_time(self.clock.now)
        known = it if it.id in self.model.claims or it.id in self.model.expired else None
        assert self.run(self.memory.find("org", it.id)) == known
        assert self.run(self.replicas[replica].find("org", it.id)) == known

    @rule(microseconds=TIMES)
    def sleep(self, microseconds: int) -> None:
        self.clock.now += microseconds

    def teardown(self) -> None:
        self.run(self.client.aclose())
        self.loop.close()


def _plain(verdict: Verdict) -> tuple[Any, ...]:
    """A store may forget a full bucket."""
    tats = [max(tat, verdict.now) for tat in verdict.tats]
    return verdict.granted, verdict.now, tats, list(verdict.taken), verdict.spent


def test_equal_histories_get_equal_verdicts(redis_url: str, redis_prefix: str) -> None:
    run_state_machine_as_test(
        lambda: Histories(redis_url, redis_prefix),
        settings=settings(
            max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.tuples(st.integers(0, 20 * SECOND), st.sampled_from([0, 0, 0, -300, 300]), COSTS), max_size=60),
    shared=st.booleans(),
)  # fmt: skip
def test_a_store_whose_own_clock_is_set_lets_in_no_more_than_the_time_it_was_set_ahead(
    redis_url: str, redis_prefix: str, steps: list[tuple[int, int, int]], shared: bool
) -> None:
    """The bound, in true time: rate · t + burst, and for each step ahead rate · step, which is one burst at most.

    Setting it back never lets more in: whatever a bucket still had to wait, it still has to. That is about the clock of
    Redis; the clocks of gateways are not looked at.
    """

    async def admitted() -> tuple[int, int, int]:
        clock, true, ahead, total = Clock(), 0, 0, 0
        async with redis_at(redis_url) as client:
            redis = RedisBuckets(client, f"{redis_prefix}{next(_numbers)}", clock)
            store: BucketStore = redis if shared else MemoryBuckets(clock)
            for passed, jump, cost in steps:
                true += passed
                clock.now += passed
                clock.sleep(jump)
                ahead += min(max(0, jump * SECOND), MINUTE)
                for _ in range(3):
                    total += cost * (await store.reserve(claim(tokens(cost, limit=37)))).granted
        return total, true, ahead

    total, true, ahead = asyncio.run(admitted())
    assert total * MINUTE <= 37 * (true + ahead) + 37 * MINUTE
