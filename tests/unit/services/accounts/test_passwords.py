import asyncio
import threading
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from argon2 import PasswordHasher, extract_parameters
from hypothesis import given
from hypothesis import strategies as st

from services.accounts.passwords import AT_ONCE, COMMON, LONGEST, MOST_WAITING, SHORTEST, Passwords, accepted
from services.common.errors import InvalidRequest, Overloaded

QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_password_is_accepted_in_one_form_or_refused_by_name(password: str) -> None:
    try:
        normal = accepted(password, "a@b.c")
    except InvalidRequest:
        normal = unicodedata.normalize("NFKC", password)
        assert not SHORTEST <= len(normal) <= LONGEST or normal.casefold() in COMMON
    else:
        assert SHORTEST <= len(normal) <= LONGEST
        assert accepted(normal, "a@b.c") == normal


@pytest.mark.parametrize(
    "password",
    ["", "seven77", "x" * (LONGEST + 1), "\ufdfa" * 100, "iloveyou", "PASSWORD1", "A@example.ORG", "good\ud800enough"],
    ids=["empty", "short", "long", "long when written out", "common", "common in capitals", "e-mail", "surrogate"],
)
def test_what_nobody_should_have_is_refused(password: str) -> None:
    with pytest.raises(InvalidRequest) as failure:
        accepted(password, "a@example.org", param="new")
    assert failure.value.param == "new"
    assert not password or password not in failure.value.message


def test_the_longest_and_the_shortest_are_accepted() -> None:
    for length in (SHORTEST, LONGEST):
        assert accepted("é" * length, "a@b.c") == "é" * length


def test_common_ones_are_long_enough_to_need_the_list() -> None:
    assert all(len(password) >= SHORTEST and password == password.casefold() for password in COMMON)


def test_the_parameters_are_those_that_owasp_names() -> None:
    kept = asyncio.run(Passwords().hashed("a good password"))
    parameters = extract_parameters(kept)
    assert kept.startswith("$argon2id$")
    assert (parameters.memory_cost, parameters.time_cost, parameters.parallelism) == (19 * 1024, 2, 1)


async def test_only_the_password_matches() -> None:
    passwords = Passwords(QUICK)
    kept = await passwords.hashed(accepted("Größe ﬁnden", "a@b.c"))
    assert await passwords.matches(kept, "Größe finden")
    for wrong in ("größe finden", "", "x" * 10_000_000, "\ud800" * 9, "Größe finden\x00"):
        assert not await passwords.matches(kept, wrong)
    assert kept != await passwords.hashed("Größe finden")


async def test_nobodys_password_matches_nothing_and_costs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = Passwords(QUICK)
    verified: list[str] = []
    monkeypatch.setattr(PasswordHasher, "verify", lambda _, kept, password: verified.append(kept) or True)
    assert not await passwords.matches(None, "anything at all")
    assert not await passwords.matches(await passwords.hashed("a"), "x" * (LONGEST + 1))
    assert [extract_parameters(kept) for kept in verified] == [extract_parameters(QUICK.hash("x"))] * 2


async def test_what_is_no_hash_matches_nothing() -> None:
    assert not await Passwords(QUICK).matches("$argon2id$broken", "a good password")


async def test_a_hash_is_renewed_when_the_parameters_change() -> None:
    old, new = Passwords(QUICK), Passwords(PasswordHasher(time_cost=2, memory_cost=8, parallelism=1))
    kept = await old.hashed("a good password")
    assert await old.rehashed(kept, "a good password") is None
    renewed = await new.rehashed(kept, "a good password")
    assert renewed is not None
    assert await new.matches(renewed, "a good password")
    assert await new.rehashed(renewed, "a good password") is None


class Gate:
    """Hashing that waits until it is let through."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, *_: Any) -> bool:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.opened.wait(30)
        with self._lock:
            self.inside -= 1
        return True


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(PasswordHasher, "verify", gate)
    return gate


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


async def test_a_flood_of_guesses_is_bounded_and_leaves_the_loop_free(gate: Gate) -> None:
    passwords = Passwords(QUICK)
    kept = QUICK.hash("x")
    flood = [asyncio.create_task(passwords.matches(kept, "a guess")) for _ in range(MOST_WAITING + 20)]
    await until(lambda: gate.inside == AT_ONCE)
    await until(lambda: sum(task.done() for task in flood) == 20)
    gate.opened.set()
    done = await asyncio.gather(*flood, return_exceptions=True)
    assert sum(outcome is True for outcome in done) == MOST_WAITING
    assert sum(isinstance(outcome, Overloaded) and outcome.retry_after is not None for outcome in done) == 20
    assert gate.most == AT_ONCE
    assert await passwords.matches(kept, "afterwards")


async def test_guessers_who_hang_up_free_no_thread_before_its_time(gate: Gate) -> None:
    passwords = Passwords(QUICK)
    kept = QUICK.hash("x")
    for _ in range(3):
        flood = [asyncio.create_task(passwords.matches(kept, "a guess")) for _ in range(10)]
        await until(lambda: gate.inside == AT_ONCE)
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
    gate.opened.set()
    assert await passwords.matches(kept, "afterwards")
    assert gate.most == AT_ONCE
