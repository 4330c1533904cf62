from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.accounts.throttle import (
    ACCOUNT_MOST_S,
    ADDRESS_MOST_S,
    FORGET_S,
    FREE,
    Row,
    Subjects,
    charged,
    delay_s,
    network,
    refunded,
    wait_s,
)

PEPPER = bytes(range(32))
times = st.floats(0, 4e9)
mosts = st.sampled_from([ACCOUNT_MOST_S, ADDRESS_MOST_S])
rows = st.builds(Row, st.integers(0, 10_000), times)


@given(st.integers(0, 100_000), mosts)
def test_waits_double_from_a_second_and_end_at_the_most(failures: int, most: float) -> None:
    delay = delay_s(failures, most)
    assert 0 <= delay <= most
    assert (delay == 0) == (failures < FREE)
    if failures >= FREE:
        assert delay_s(failures + 1, most) == min(most, 2 * delay)


def test_the_first_wait_is_a_second() -> None:
    assert [delay_s(n, 60) for n in range(FREE - 1, FREE + 8)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]


@given(rows, times, mosts)
def test_waiting_as_long_as_told_suffices(row: Row, now: float, most: float) -> None:
    wait = wait_s(row, now, most)
    assert wait_s(row, now + wait, most) == 0


@given(rows, times, mosts)
def test_the_next_attempt_waits_as_long_as_the_row_is(row: Row, now: float, most: float) -> None:
    after = charged(row, now, most)
    assert 1 <= after.failures <= row.failures + 1
    wait = wait_s(after, now, most)
    assert abs(wait - delay_s(after.failures, most)) < 1e-3
    assert refunded(after, now).failures == after.failures - 1
    assert wait_s(refunded(after, now), now, most) == 0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200), mosts)
def test_whoever_guesses_without_pause_gets_few_guesses(pauses: list[float], most: float) -> None:
    """However attempts are timed: all but the first few are further apart than the wait that their number demands."""
    row, now, admitted = Row(), 1e9, []
    for pause in pauses:
        now += pause
        if not wait_s(row, now, most):
            row = charged(row, now, most)
            admitted.append(now)
    for number, (earlier, later) in enumerate(pairwise(admitted), 1):
        assert later - earlier >= delay_s(number, most) - 2e-3


@given(rows, mosts)
def test_a_row_is_forgotten_only_in_time(row: Row, most: float) -> None:
    assert charged(row, row.until + FORGET_S - 1, most).failures == row.failures + 1
    assert charged(row, row.until + FORGET_S + 1, most).failures == 1


@given(rows, mosts)
def test_a_clock_that_was_set_back_locks_nobody_out(row: Row, most: float) -> None:
    assert wait_s(row, row.until - most - 4000, most) == 0
    assert wait_s(row, row.until - most - 300, most) > 0  # as far as clocks of replicas may differ


@given(st.text(), st.text(), st.text(), st.text())
def test_subjects_are_told_apart_and_name_nobody(email: str, address: str, other_email: str, other: str) -> None:
    subjects = Subjects(PEPPER)
    guess = subjects.guess(email, address)
    assert (guess.address is None) == (guess.pair is None) == (address == "")
    assert len({subject.key for subject in guess if subject}) == (3 if address else 1)
    again = subjects.guess(other_email, other)
    assert (guess.account == again.account) == (email == other_email)
    assert (guess.address == again.address) == (network(address) == network(other))
    assert guess != Subjects(PEPPER[::-1]).guess(email, address)
    assert subjects.hint(email) in guess.account.key


def test_an_address_stands_for_what_one_subscriber_has() -> None:
    assert network("2001:db8:1:2:3:4:5:6") == network("2001:db8:1:2::") == "2001:db8:1:2::"
    assert network("2001:db8:1:3::1") != network("2001:db8:1:2::1")
    assert network("::ffff:192.0.2.1") == network("192.0.2.1") == "192.0.2.1"
    assert network("fe80::1%eth0") == "fe80::"
    assert network("a proxy") == "a proxy"
