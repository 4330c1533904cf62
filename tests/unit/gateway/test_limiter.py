"""From a tier's numbers to answers and refusals."""

import asyncio
from collections.abc import Mapping

import pytest

from gateway.limit_store import MemoryBuckets
from gateway.limiter import TierLimiter
from gateway.limits import Claim, Verdict
from services.common.account_messages import Principal
from services.common.errors import InvalidRequest, QuotaExceeded, RateLimited
from services.common.messages import Admitted, RateState
from services.common.usage_messages import Ask, Limits, Reservation, Settlement, Subject, Tier
from tests.support.buckets import Clock

JANUARY, FEBRUARY = 1_799_971_200.0, 1_801_440_000.0
"""2027-01-15 and 2027-02-01, UTC."""


class TierTable:
    def __init__(self, *tiers: Tier):
        self.table = {t.name: t for t in tiers}

    def tier(self, name: str) -> Tier:
        return self.table[name]

    def all(self) -> Mapping[str, Tier]:
        return self.table


class House:
    """A limiter in memory whose two clocks pass together, and a ledger that says `spent`."""

    def __init__(self, *tiers: Tier, store: MemoryBuckets | None = None):
        self.clock = Clock()
        self.wall = JANUARY
        self.tiers = TierTable(*tiers)
        self.store = store or MemoryBuckets(self.clock)
        self.spent = 0
        self.asked: list[tuple[str, float]] = []
        self.limiter = self.another()

    def another(self) -> TierLimiter:
        return TierLimiter(self.tiers, self.store, self._spent, lambda: self.wall)

    async def _spent(self, tenant: str, since: float) -> int:
        self.asked.append((tenant, since))
        return self.spent

    async def ask(self, who: Principal, tokens: int = 0, **more: int) -> Reservation:
        return await self.limiter.reserve(Ask(principal=who, tokens=tokens, **more))  # type: ignore[arg-type]

    async def lets_in(self, who: Principal, tokens: int = 0) -> bool:
        try:
            await self.ask(who, tokens)
        except RateLimited:
            return False
        return True

    async def settle(self, reservation: Reservation, tokens: int = 0, cost: int = 0) -> None:
        await self.limiter.settle(Settlement(id=reservation.id, tenant=reservation.tenant, tokens=tokens, cost=cost))


def chat(name: str = "free", budget: int | None = None, **limits: Limits) -> Tier:
    of_subject: dict[Subject, Limits] = {s: limits[s] for s in ("organisation", "user", "key") if s in limits}  # type: ignore[misc]
    return Tier(name=name, limits={"chat": of_subject}, monthly_budget=budget)


def who(tenant: str = "org", user: str = "", key: str = "", **more: int) -> Principal:
    return Principal(tenant=tenant, user_id=user, key_id=key, **more)  # type: ignore[arg-type]


async def test_headers_show_of_each_kind_the_bucket_that_has_least_left() -> None:
    house = House(
        chat(
            organisation=Limits(requests_per_minute=60, tokens_per_minute=1000, tokens_per_day=5000),
            key=Limits(requests_per_minute=6, tokens_per_minute=600),
        )
    )
    first = await house.ask(who(key="k"), 300)
    assert first.admitted == Admitted(RateState(6, 5, 10.0), RateState(600, 300, 30.0))
    await house.ask(who(key="another"), 600)
    house.clock.sleep(1)
    third = await house.ask(who(key="k"), 50)
    assert third.admitted.tokens == RateState(1000, 66, 56.0)


async def test_a_refusal_names_the_limit_carries_the_headers_and_waiting_as_told_helps() -> None:
    house = House(chat(organisation=Limits(tokens_per_minute=600), key=Limits(requests_per_minute=2)))
    for _ in range(2):
        await house.ask(who(key="k"), 50)
    with pytest.raises(
        RateLimited,
        match=r"^Your limit of 2 requests per minute \(key, chat models\) is reached\. Try again in 30 s\.$",
    ) as refused:
        await house.ask(who(key="k"), 50)
    assert refused.value.retry_after == 30
    assert refused.value.admitted == Admitted(RateState(2, 0, 60.0), RateState(600, 500, 10.0))
    house.clock.now += 30_000_000 - 1
    assert not await house.lets_in(who(key="k"), 50)
    house.clock.now += 1
    assert await house.lets_in(who(key="k"), 50)


async def test_the_longest_wait_is_the_one_that_is_told() -> None:
    house = House(chat(organisation=Limits(requests_per_minute=1, tokens_per_minute=60, tokens_per_day=60)))
    await house.ask(who(), 30)
    with pytest.raises(RateLimited, match="requests per minute") as refused:
        await house.ask(who(), 30)
    assert refused.value.retry_after == 60
    with pytest.raises(RateLimited, match="tokens per day") as refused:
        await house.ask(who(), 31)
    assert refused.value.retry_after == 86_400 / 60


async def test_a_full_number_of_streams_is_told_to_ask_again_in_a_second() -> None:
    house = House(chat(user=Limits(concurrent_streams=2)))
    held = [await house.ask(who(user="u")) for _ in range(2)]
    with pytest.raises(RateLimited, match=r"limit of 2 streams at a time \(user, chat models\)") as refused:
        await house.ask(who(user="u"))
    assert refused.value.retry_after == 1
    await house.settle(held[0])
    assert await house.lets_in(who(user="u"))


async def test_a_cost_above_the_burst_can_never_pass_and_says_so() -> None:
    house = House(chat(key=Limits(tokens_per_minute=100)))
    with pytest.raises(
        InvalidRequest, match=r"101 tokens.* 100 tokens per minute \(key, chat models\).*max_tokens"
    ) as error:
        await house.ask(who(key="k"), 101)
    assert (error.value.status, error.value.param, error.value.wire_code) == (
        400,
        "max_tokens",
        "request_exceeds_limit",
    )
    assert await house.lets_in(who(key="k"), 100), "it took nothing"


async def test_too_many_texts_to_embed_at_once_name_the_input() -> None:
    house = House(
        Tier(name="free", limits={"embedding": {"key": Limits(tokens_per_minute=100, requests_per_minute=1)}})
    )
    with pytest.raises(InvalidRequest, match="several requests") as error:
        await house.limiter.reserve(Ask(principal=who(key="k"), model_class="embedding", tokens=101))
    assert error.value.param == "input"
    with pytest.raises(InvalidRequest, match="2 requests;") as error:
        await house.limiter.reserve(Ask(principal=who(key="k"), model_class="embedding", requests=2))
    assert error.value.param is None


async def test_subjects_share_their_own_buckets_only() -> None:
    per_minute = {"organisation": 10, "user": 6, "key": 3}
    house = House(chat(**{s: Limits(requests_per_minute=n) for s, n in per_minute.items()}))
    assert await _number(house, who(user="u", key="k1")) == 3, "the key's"
    assert await _number(house, who(user="u", key="k2")) == 3, "another key of the same user"
    assert await _number(house, who(user="u", key="k3")) == 0, "the user's six are gone"
    assert await _number(house, who(user="v", key="k4")) == 3, "another user"
    assert await _number(house, who()) == 1, "the organisation's ten are gone"
    assert await _number(house, who()) == 0


async def test_two_organisations_never_share_a_bucket_whatever_their_ids() -> None:
    limits = Limits(requests_per_minute=2, concurrent_streams=2)
    house = House(chat(organisation=Limits(requests_per_minute=9), user=limits, key=limits))
    for tenant in ("a", "b"):
        assert await _number(house, who(tenant, user="same", key="same")) == 2


async def test_classes_of_models_have_buckets_of_their_own() -> None:
    of_class: dict[str, dict[Subject, Limits]] = {
        "chat": {"organisation": Limits(requests_per_minute=1)},
        "embedding": {"organisation": Limits(requests_per_minute=1)},
    }
    house = House(Tier(name="free", limits=of_class))
    assert await _number(house, who()) == 1
    await house.limiter.reserve(Ask(principal=who(), model_class="embedding"))
    with pytest.raises(RateLimited, match="embedding models"):
        await house.limiter.reserve(Ask(principal=who(), model_class="embedding"))
    assert (await house.limiter.reserve(Ask(principal=who(), model_class="image"))).id == ""


async def _number(house: House, principal: Principal) -> int:
    return sum([await house.lets_in(principal) for _ in range(20)])


async def test_nothing_is_limited_where_the_tier_says_nothing() -> None:
    house = House(Tier(name="free"))
    reservation = await house.ask(who(user="u", key="k"), 10**9)
    assert reservation == Reservation()
    await house.settle(reservation, 5)


async def test_a_tier_that_changes_counts_at_once_and_keeps_what_was_used() -> None:
    house = House(chat(key=Limits(tokens_per_minute=100)), chat("plus", key=Limits(tokens_per_minute=1000)))
    held = await house.ask(who(key="k"), 50)
    house.tiers.table["free"] = chat(key=Limits(tokens_per_minute=10))
    assert (await house.ask(who(key="k"), 1)).admitted.tokens == RateState(10, 4, 36.0)
    await house.settle(held)
    upgraded = await house.limiter.reserve(Ask(principal=Principal(tenant="org", key_id="k", tier="plus"), tokens=400))
    assert upgraded.admitted.tokens == RateState(1000, 500, 30.0)
    house.tiers.table["free"] = Tier(name="free")
    assert (await house.ask(who(key="k"), 10**6)).id == ""


async def test_a_bucket_that_a_smaller_one_above_covers_is_left_out() -> None:
    store = Watched()
    free = Limits(requests_per_minute=20, tokens_per_minute=40, tokens_per_day=300, concurrent_streams=3)
    house = House(
        chat(organisation=free, user=free, key=Limits(requests_per_minute=19, concurrent_streams=9)), store=store
    )
    await house.ask(who(user="u", key="k"), 1)
    assert [b.key for b in store.claims[-1].buckets] == [
        "organisation:org:chat:rpm", "organisation:org:chat:tpm", "organisation:org:chat:tpd", "key:org/k:chat:rpm",
    ]  # fmt: skip
    assert [s.key for s in store.claims[-1].slots] == ["organisation:org:chat:streams"]


async def test_a_budget_refuses_before_it_is_passed_and_says_that_waiting_does_not_help() -> None:
    house = House(chat(budget=100, key=Limits(requests_per_minute=5)))
    house.spent = 60
    held = await house.ask(who(key="k"), cost=40)
    with pytest.raises(QuotaExceeded, match="budget for this month") as error:
        await house.ask(who(key="k"), cost=1)
    assert (error.value.wire_code, error.value.retry_after) == ("insufficient_quota", None)
    assert error.value.admitted.requests == RateState(5, 4, 12.0)
    await house.settle(held, cost=30)
    assert (await house.ask(who(key="k"), cost=10)).id
    assert house.asked == [("org", 1_798_761_600.0)], "the ledger is asked once, for the calendar month"


async def test_the_smaller_budget_counts_and_a_new_month_brings_a_new_one() -> None:
    house = House(chat(budget=100))
    await house.ask(who(monthly_budget=50), cost=50)
    with pytest.raises(QuotaExceeded):
        await house.ask(who(monthly_budget=50), cost=1)
    assert (await house.ask(who(), cost=50)).id
    house.wall = FEBRUARY
    assert (await house.ask(who(monthly_budget=500), cost=100)).id
    with pytest.raises(QuotaExceeded):
        await house.ask(who(monthly_budget=500), cost=1)
    assert house.asked[-1] == ("org", FEBRUARY)


async def test_another_process_settles_what_this_one_reserved() -> None:
    house = House(chat(key=Limits(tokens_per_minute=100)))
    held = await house.ask(who(key="k"), 100)
    await house.another().settle(Settlement(id=held.id, tenant="another", tokens=0))
    assert not await house.lets_in(who(key="k"), 1)
    await house.another().settle(Settlement(id=held.id, tenant="org", tokens=40))
    await house.settle(held, 0)
    assert (await house.ask(who(key="k"), 60)).admitted.tokens == RateState(100, 0, 60.0)


async def test_what_is_renewed_lives_and_what_is_not_frees_its_stream() -> None:
    house = House(chat(key=Limits(concurrent_streams=1)))
    held = await house.ask(who(key="k"))
    for _ in range(3):
        house.clock.sleep(50)
        await house.limiter.renew([held, Reservation(id="unknown", tenant="org")])
    assert not await house.lets_in(who(key="k"))
    house.clock.sleep(60)
    assert await house.lets_in(who(key="k"))


async def test_who_goes_away_during_the_decision_holds_nothing() -> None:
    store = Watched(slow=True)
    house = House(chat(key=Limits(tokens_per_minute=100, concurrent_streams=1)), store=store)
    asking = asyncio.create_task(house.ask(who(key="k"), 100))
    await store.granted.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.sleep(0)
    store.slow = False
    assert (await house.ask(who(key="k"), 100)).id


class Watched(MemoryBuckets):
    """Remembers claims; when `slow`, keeps its answer to itself."""

    def __init__(self, slow: bool = False) -> None:
        super().__init__(Clock())
        self.slow = slow
        self.claims: list[Claim] = []
        self.granted = asyncio.Event()

    async def reserve(self, claim: Claim, spent: int | None = None) -> Verdict:
        self.claims.append(claim)
        verdict = await super().reserve(claim, spent)
        self.granted.set()
        if self.slow:
            await asyncio.sleep(60)
        return verdict
