"""After the death of a process: what it had begun is charged once, by the engine's count where there is one."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.limit_store import MemoryBuckets
from inference.engines.metered import Metered
from inference.engines.simulated import SimulatedEngine
from services.common.errors import Conflict, EngineFailed
from services.common.messages import WHOLE_PROMPT, Spent
from services.common.ports import Engine
from services.common.usage_messages import Ask, OpenUsage, UsageRecord
from tests.support.engines import ask, collect
from tests.unit.services.chat.metering_rig import LIMIT, STREAMS, WHO, Rig, rig


class Knows(SimulatedEngine):
    def __init__(self, told: Spent | Exception | None):
        super().__init__()
        self.told = told
        self.asked: list[str] = []

    async def settle(self, request_id: str) -> Spent | None:
        self.asked.append(request_id)
        if isinstance(self.told, Exception):
            raise self.told
        return self.told


async def die(folder: Path, store: MemoryBuckets, *counts: int) -> None:
    """A process that has made so many tokens of each generation of one request, of 5 prompt tokens each."""
    async with rig(folder, store=store) as one:
        reservation = await one.limiter.reserve(Ask(principal=WHO, tokens=105 * len(counts)))
        for i, count in enumerate(counts):
            begun = UsageRecord(id=f"g{i}", tenant="acme", at=1.0, model="simulated", worker="w", prompt_tokens=5)
            slot = one.journal.begin(OpenUsage(record=begun, reservation=reservation.id))
            one.journal.count(slot, count)
        one.journal.close()


@asynccontextmanager
async def next_process(folder: Path, store: MemoryBuckets, engines: Mapping[str, Engine]) -> AsyncIterator[Rig]:
    async with rig(folder, store=store) as one:
        await one.meter.recover(engines)
        yield one


def brief(record: UsageRecord) -> tuple[str, str, int, int, int]:
    return record.id, record.outcome, record.prompt_tokens, record.output_tokens, record.cost


@pytest.mark.parametrize(
    ("engine", "prompt", "output"),
    [
        (None, 5, 7),
        (Knows(None), 5, 7),
        (Knows(EngineFailed("away")), 5, 7),
        (Knows(Spent(5, 9)), 5, 9),
        (Knows(Spent(WHOLE_PROMPT, 9)), 5, 9),
        (Knows(Spent(8, 9)), 8, 9),
    ],
    ids=["gone", "knows-nothing", "away", "knows-more", "knows-no-prompt", "knows-a-longer-prompt"],
)
async def test_the_engines_count_is_charged_and_ours_where_there_is_none(
    engine: Engine | None, prompt: int, output: int, tmp_path: Path
) -> None:
    store = MemoryBuckets(lambda: 0)
    await die(tmp_path, store, 7)
    async with next_process(tmp_path, store, {"w": engine} if engine else {}) as one:
        assert [brief(r) for r in one.journal.ended] == [("g0", "crashed", prompt, output, prompt + 2 * output)]
        assert [(s.tokens, s.tenant) for s in one.limiter.settled] == [(prompt + output, "acme")]
        # The reservation is another process's, and yet it is settled: its stream and what it did not use are free.
        for _ in range(STREAMS):
            state = (await one.limiter.reserve(Ask(principal=WHO, tokens=0))).admitted.tokens
            assert state
            assert state.remaining == LIMIT - prompt - output
        one.journal.close()


async def test_what_died_before_its_first_token_costs_what_the_engine_says_or_nothing(tmp_path: Path) -> None:
    store = MemoryBuckets(lambda: 0)
    await die(tmp_path / "a", store, 0)
    async with next_process(tmp_path / "a", store, {}) as one:
        assert [brief(r) for r in one.journal.ended] == [("g0", "crashed", 0, 0, 0)]
        one.journal.close()
    await die(tmp_path / "b", store, 0)
    async with next_process(tmp_path / "b", store, {"w": Knows(Spent(3))}) as one:
        assert [brief(r) for r in one.journal.ended] == [("g0", "crashed", 3, 0, 3)]
        one.journal.close()


async def test_generations_of_one_request_are_settled_together_and_recorded_apart(tmp_path: Path) -> None:
    store = MemoryBuckets(lambda: 0)
    await die(tmp_path, store, 3, 0, 4)
    async with next_process(tmp_path, store, {}) as one:
        assert sorted((r.id, r.output_tokens) for r in one.journal.ended) == [("g0", 3), ("g1", 0), ("g2", 4)]
        assert [s.tokens for s in one.limiter.settled] == [5 + 3 + 0 + 5 + 4]
        one.journal.close()


async def test_recovering_twice_charges_once(tmp_path: Path) -> None:
    store = MemoryBuckets(lambda: 0)
    await die(tmp_path, store, 7)
    for expected in (1, 0):
        async with next_process(tmp_path, store, {}) as one:
            assert len(one.journal.ended) == len(one.limiter.settled) == expected
            await one.meter.recover({})
            assert len(one.journal.ended) == expected
            one.journal.close()


async def test_a_limiter_that_is_away_does_not_hold_up_the_start(tmp_path: Path) -> None:
    store = MemoryBuckets(lambda: 0)
    await die(tmp_path, store, 7)
    async with rig(tmp_path, store=store) as one:
        one.limiter.fails = OSError("away")
        await one.meter.recover({})
        assert [r.outcome for r in one.journal.ended] == ["crashed"]
        one.journal.close()


async def test_what_was_recovered_may_not_begin_any_more(tmp_path: Path) -> None:
    store = MemoryBuckets(lambda: 0)
    await die(tmp_path, store, 0)
    engine = Metered(SimulatedEngine())
    async with next_process(tmp_path, store, {"w": engine}) as one:
        with pytest.raises(Conflict):
            await collect(engine, ask(request_id="g0"))
        one.journal.close()
