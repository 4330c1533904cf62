"""What a request may cost, and what it has cost: bounded, admitted as a whole, recorded once however it ends."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.limit_store import MemoryBuckets
from gateway.limits import LIFETIME
from services.chat import metering
from services.common.errors import (
    AntiphonError,
    EngineFailed,
    Overloaded,
    QuotaExceeded,
    RateLimited,
)
from services.common.messages import (
    Event,
    Finished,
    Prefilled,
    Spent,
    TextDelta,
    Usage,
)
from services.common.usage_messages import UsageRecord
from services.ledger.journal import FileJournal
from tests.unit.services.chat.metering_rig import (
    END,
    FIRST,
    STREAMS,
    TIERS,
    Says,
    rig,
    turns_of_the_loop,
)


async def test_a_record_says_whose_it_was_what_ran_and_what_it_cost(tmp_path: Path) -> None:
    async with rig(tmp_path, Says(FIRST, [TextDelta(0, "b")], END)) as one:
        await one.read(one.turn())
    assert await one.squared() == [
        UsageRecord(
            id="g0", tenant="acme", at=1e9, kind="chat", model="simulated", worker="w", user_id="u", key_id="k",
            project="p", prompt_tokens=5, cached_tokens=4, output_tokens=3, cost=5 + 2 * 3,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("items", "outcome", "prompt", "output"),
    [
        ((EngineFailed("no"),), "failed", 0, 0),
        (([Prefilled(2)], EngineFailed("no")), "failed", 2, 0),
        ((FIRST, EngineFailed("no")), "failed", 5, 2),
        ((FIRST, ValueError("a bug")), "failed", 5, 2),
        ((FIRST, [Finished(0, "stop")], EngineFailed("no")), "failed", 5, 2),
        ((FIRST, END, EngineFailed("too late to matter")), "finished", 5, 3),
    ],
)
async def test_an_engine_that_fails_costs_what_it_did(
    items: tuple[Sequence[Event] | Exception, ...], outcome: str, prompt: int, output: int, tmp_path: Path
) -> None:
    async with rig(tmp_path, Says(*items)) as one:
        with pytest.raises((EngineFailed, ValueError)):
            await one.read(one.turn())
        assert outcome == "finished" or not any(isinstance(e, Finished) for e in one.given)
    [record] = await one.squared()
    assert (record.outcome, record.prompt_tokens, record.output_tokens) == (outcome, prompt, output)


async def test_an_answer_without_an_account_fails_and_never_looks_finished(tmp_path: Path) -> None:
    async with rig(tmp_path, Says(FIRST, [Finished(0, "stop")])) as one:
        with pytest.raises(EngineFailed):
            await one.read(one.turn())
        assert not any(isinstance(e, Finished | Usage) for e in one.given)
    assert [r.outcome for r in await one.squared()] == ["failed"]


async def test_events_behind_the_account_are_not_counted_for_another_generation(tmp_path: Path) -> None:
    async with rig(tmp_path, Says(FIRST, END, [TextDelta(0, "late", 50)])) as one:
        stream = one.turns.run(one.turn())
        for _ in range(3):
            await anext(stream)
        other = one.journal.begin(replace(one.journal.begun[0], record=replace(one.journal.begun[0].record, id="x")))
        one.journal.count(other, 7)
        async for _ in stream:
            pass
        one.journal.close()
    [(_, left)] = FileJournal(tmp_path / "usage").unfinished()
    assert (left.record.id, left.record.output_tokens) == ("x", 7)


@pytest.mark.parametrize("trouble", [EngineFailed("away"), RuntimeError("a bug"), None], ids=repr)
async def test_an_engine_that_does_not_tell_leaves_our_own_count(
    trouble: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def settle(request_id: str) -> Spent | None:
        if trouble:
            raise trouble
        await asyncio.sleep(60)
        return None

    monkeypatch.setattr(metering, "TELL_S", 0.01)
    async with rig(tmp_path, Says(FIRST, [TextDelta(0, "b")])) as one:
        monkeypatch.setattr(one.engine, "settle", settle)
        await one.read(one.turn(), 2)
    [record] = await one.squared()
    assert (record.outcome, record.prompt_tokens, record.output_tokens) == ("cancelled", 5, 2)


async def test_a_full_disk_lets_nothing_begin_and_costs_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        one.journal.room = 0
        with pytest.raises(Overloaded):
            await one.read(one.turn())
        assert one.inner.generated == 0
    assert await one.squared() == []
    assert [s.tokens for s in one.limiter.settled] == [0]


async def test_a_disk_that_fills_between_two_prompts_charges_the_first(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        one.journal.room = 1
        with pytest.raises(Overloaded):
            await one.read(one.turn("a b", "c d"))
        assert len(one.journal.begun) == len(one.journal.ended) == 1
    assert one.limiter.settled[0].tokens == sum(r.prompt_tokens + r.output_tokens for r in one.journal.ended)


@pytest.mark.parametrize("refusal", [RateLimited("wait"), QuotaExceeded("no"), Overloaded("away"), OSError("a bug")])
async def test_what_is_refused_does_not_run(refusal: Exception, tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        one.limiter.refuses = refusal
        with pytest.raises(type(refusal)):
            await one.read(one.turn())
        assert one.inner.generated == 0
    assert await one.squared() == []
    assert one.limiter.settled == []


@pytest.mark.parametrize("failure", [Overloaded("away"), OSError("a bug")])
async def test_a_settlement_that_fails_takes_no_answer_away(failure: Exception, tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        one.limiter.fails = failure
        given = await one.read(one.turn(max_tokens=3))
        assert isinstance(given[-1], Usage)
    assert [r.outcome for r in one.journal.ended] == ["finished"]
    assert len(one.limiter.settled) == 1


async def test_what_runs_is_renewed_and_what_is_over_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(metering, "RENEW_S", 0.001)
    async with rig(tmp_path, store=MemoryBuckets(lambda: now)) as one:
        streams = [one.turns.run(one.turn(request_id=f"s{i}")) for i in range(STREAMS)]
        for stream in streams:
            await anext(stream)
        for _ in range(5):
            now += LIFETIME // 2
            await asyncio.sleep(0.02)
        with pytest.raises(RateLimited):
            await one.read(one.turn(request_id="more"))
        one.limiter.fails = OSError("the settlement is lost")
        await streams[0].aclose()
        one.limiter.fails = None
        now += LIFETIME + 1
        await one.read(one.turn(request_id="later"))
        for stream in streams[1:]:
            await stream.aclose()


async def test_renewals_go_on_after_one_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "RENEW_S", 0.001)
    renewed = asyncio.Event()
    calls = 0

    async def renew(reservations: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("away")
        renewed.set()

    async with rig(tmp_path) as one:
        monkeypatch.setattr(one.limiter, "renew", renew)
        async with asyncio.timeout(5):
            await renewed.wait()


async def test_several_prompts_are_one_request_with_a_record_each(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        given = await one.read(one.turn("a b c", "d e", n=2, max_tokens=4))
        usage = given[-1]
        assert usage == Usage(5, 16)
        assert {e.index for e in given if isinstance(e, Finished)} == {0, 1, 2, 3}
        assert len(one.limiter.reserved) == 1
    records = await one.squared()
    assert {r.id: (r.prompt_tokens, r.output_tokens) for r in records} == {"g0": (3, 8), "g1": (2, 8)}


async def test_what_a_screen_cuts_is_paid_as_it_was_made(tmp_path: Path) -> None:
    words = [TextDelta(0, f"{word} ", 1) for word in "we say forbidden things here".split()]
    async with rig(tmp_path, Says([Prefilled(5)], *([w] for w in words), END), phrases=("forbidden",)) as one:
        given = await one.read(one.turn())
        assert [e.reason for e in given if isinstance(e, Finished)] == ["content_filter"]
        assert "forbidden" not in "".join(e.text for e in given if isinstance(e, TextDelta))
    [record] = await one.squared()
    assert (record.outcome, record.output_tokens) == ("finished", 3)


async def test_many_requests_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    tiers = TIERS.replace(f"concurrent_streams = {STREAMS}", "concurrent_streams = 1000")
    async with rig(tmp_path, hesitates=True, tiers=tiers) as one:

        async def client(number: int) -> None:
            stream = one.turns.run(one.turn(request_id=f"r{number}", n=1 + number % 3))
            try:
                for _ in range(number % 9):
                    await anext(stream)
            except (StopAsyncIteration, AntiphonError):
                pass
            finally:
                await stream.aclose()

        tasks = [asyncio.create_task(client(i)) for i in range(100)]
        await turns_of_the_loop(30)
        for task in tasks[::7]:
            task.cancel()
        await asyncio.wait(tasks)
    records = await one.squared()
    assert sum(r.output_tokens for r in records) == one.inner.generated > 0
