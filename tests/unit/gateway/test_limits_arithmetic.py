"""The arithmetic of token buckets."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import (
    DAY,
    MINUTE,
    SECOND,
    Bucket,
    Claim,
    Rate,
    Slots,
    arrival,
    bounded,
    excess,
    refund,
    remaining,
    scaled,
    seconds,
)

RATES = st.builds(Rate, st.integers(1, 10**12), st.sampled_from([SECOND, MINUTE, DAY]))
NOW = 1_800_000_000 * SECOND


@given(rate=RATES, cost=st.integers(0, 10**12))
def test_a_charge_is_the_time_to_refill_rounded_up(rate: Rate, cost: int) -> None:
    assert 0 <= rate.charge(cost) - Fraction(cost * rate.period, rate.limit) < 1


@given(rate=RATES, data=st.data())
def test_a_full_bucket_lets_its_burst_in_and_no_more(rate: Rate, data: st.DataObject) -> None:
    cost = data.draw(st.integers(0, rate.limit))
    assert excess(0, NOW, _bucket(rate, cost)) <= 0
    assert excess(0, NOW, _bucket(rate, rate.limit + 1)) > 0


@given(rate=RATES, data=st.data())
def test_what_remains_can_be_had(rate: Rate, data: st.DataObject) -> None:
    tat = NOW + data.draw(st.integers(-rate.period, 2 * rate.period))
    left = remaining(tat, NOW, rate)
    assert 0 <= left <= rate.limit
    if left:
        assert excess(tat, NOW, _bucket(rate, left)) <= 0


@given(rate=RATES, data=st.data())
def test_the_wait_is_exact(rate: Rate, data: st.DataObject) -> None:
    bucket = _bucket(rate, data.draw(st.integers(1, rate.limit)))
    tat = NOW + data.draw(st.integers(0, 2 * rate.period))
    wait = excess(tat, NOW, bucket)
    if wait > 0:
        assert excess(tat, NOW + wait, bucket) == 0
        assert excess(tat, NOW + wait - 1, bucket) == 1


@given(rate=RATES, data=st.data())
def test_a_reservation_that_is_settled_costs_what_was_used(rate: Rate, data: st.DataObject) -> None:
    reserved, used = data.draw(st.integers(0, rate.limit)), data.draw(st.integers(0, rate.limit))
    bucket = _bucket(rate, reserved)
    assert arrival(NOW, NOW, bucket) - refund(bucket, used) == NOW + rate.charge(used)


def test_a_debt_and_a_clock_that_was_set_back_hold_a_bucket_for_two_periods_at_most() -> None:
    rate = Rate(10, MINUTE)
    assert bounded(NOW + 90 * SECOND, NOW, rate) == NOW + 90 * SECOND
    assert bounded(NOW + DAY, NOW, rate) == NOW + 2 * MINUTE
    assert remaining(NOW + DAY, NOW, rate) == 0


@given(limit=st.integers(1, 10**6), cost=st.integers(0, 100), replicas=st.integers(1, 64))
def test_shares_come_to_the_whole_or_to_one_each(limit: int, cost: int, replicas: int) -> None:
    whole = Claim("c", "org", (_bucket(Rate(limit, MINUTE), cost),), (Slots("s", limit),))
    share = scaled(whole, replicas)
    assert replicas * share.buckets[0].rate.limit <= max(limit, replicas)
    assert replicas * share.slots[0].limit <= max(limit, replicas)
    assert share.buckets[0].charge == share.buckets[0].rate.charge(cost)
    assert share.buckets[0].charge >= whole.buckets[0].charge


def test_seconds_are_rounded_up() -> None:
    assert [seconds(n) for n in (0, 1, SECOND, SECOND + 1, DAY - 1)] == [0, 1, 1, 2, 86_400]


def _bucket(rate: Rate, cost: int) -> Bucket:
    return Bucket("key:k:chat:tpm", rate, "tokens").taking(cost)
