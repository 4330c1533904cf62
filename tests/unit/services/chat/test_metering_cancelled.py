"""A turn that is closed or cancelled at any point: one record a generation, one settlement, nothing left open."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from services.common.messages import Admitted, Finished, Usage
from services.common.usage_messages import UsageRecord
from tests.unit.services.chat.metering_rig import Rig, rig, turns_of_the_loop

SHAPES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "one": ((), {}),
    "choices": (("a b c",), {"n": 2}),
    "prompts": (("a b c", "d e"), {"n": 2}),
}
shapes = pytest.mark.parametrize("shape", SHAPES)


def assert_counted(rig: Rig, records: list[UsageRecord]) -> None:
    """By the engine's own count; a prompt whose first token was made counts whole."""
    assert sum(r.output_tokens for r in records) == rig.inner.generated
    for record in records:
        assert record.prompt_tokens > 0 or record.output_tokens == 0


@shapes
async def test_closed_after_any_number_of_batches(shape: str, tmp_path: Path) -> None:
    prompts, fields = SHAPES[shape]
    most, ended = 0, False
    while not ended:
        async with rig(tmp_path / str(most), hesitates=True) as one:
            given = await one.read(one.turn(*prompts, **fields), most)
            ended = any(isinstance(e, Usage) for e in given)
        records = await one.squared()
        assert_counted(one, records)
        assert len(one.limiter.settled) == (most > 0)
        if most <= 1:
            assert records == [], "nothing began"
        if ended:
            assert {r.outcome for r in records} == {"finished"}
        most += 1
    assert most > 6


@shapes
@pytest.mark.parametrize("again", [None, 0, 1, 2, 3, 5], ids=lambda gap: f"again-after-{gap}")
async def test_cancelled_in_any_turn_of_the_loop_once_or_twice(shape: str, again: int | None, tmp_path: Path) -> None:
    prompts, fields = SHAPES[shape]
    steps, cancelled = 0, True
    while cancelled:
        async with rig(tmp_path / str(steps), hesitates=True) as one:
            task = asyncio.create_task(one.read(one.turn(*prompts, **fields)))
            await turns_of_the_loop(steps)
            cancelled = task.cancel()
            if again is not None:
                await turns_of_the_loop(again)
                task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert_counted(one, await one.squared())
        steps += 1
    assert steps >= 12


async def test_an_end_that_was_shown_is_in_the_journal_before_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        async for batch in one.turns.run(one.turn("a b", "c d e", n=2)):
            ends = sum(isinstance(e, Finished) for e in one.given)
            one.given += batch
            assert len(one.journal.ended) >= ends // 4
            if any(isinstance(e, Usage) for e in batch):
                assert [r.outcome for r in one.journal.ended] == ["finished"] * 2
    await one.squared()


async def test_closed_while_the_end_is_shown_is_finished(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        stream = one.turns.run(one.turn(max_tokens=1))
        assert isinstance((await anext(stream))[0], Admitted)
        assert any(isinstance(e, Finished) for e in await anext(stream))
        await stream.aclose()
    [record] = await one.squared()
    assert (record.outcome, record.output_tokens) == ("finished", 1)


async def test_what_was_never_iterated_was_never_admitted(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        await one.turns.run(one.turn()).aclose()
    assert one.limiter.reserved == []
    assert await one.squared() == []


async def test_an_end_of_the_process_waits_for_what_is_being_settled(tmp_path: Path) -> None:
    async with rig(tmp_path, hesitates=True) as one:
        task = asyncio.create_task(one.read(one.turn(max_tokens=50)))
        while not one.inner.generated:
            await asyncio.sleep(0)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert not one.limiter.settled, "it has not come to that yet"
    [record] = await one.squared()
    assert record.outcome == "cancelled"
