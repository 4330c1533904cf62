"""Counting next to the engine: whatever becomes of the reader, what was generated is known, once and to the token."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

import pytest

from inference.engines import metered
from inference.engines.fan_out import FanOut
from inference.engines.metered import Metered
from inference.engines.simulated import SimulatedEngine
from inference.engines.tool_calling import ToolCalling
from services.common import messages as m
from services.common.errors import AntiphonError, Conflict, EngineFailed
from services.common.messages import (
    WHOLE_PROMPT,
    Event,
    Finished,
    GenerationRequest,
    Prefilled,
    Spent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from services.common.ports import Engine
from tests.support.engines import ask, collect, over_http

Script = Callable[[GenerationRequest], list[Sequence[Event] | Exception | asyncio.Event]]
WORD = [TextDelta(0, "a", 2)]


class Scripted(SimulatedEngine):
    """Gives what the script says: batches, failures, and events that are waited for."""

    def __init__(self, script: Script):
        super().__init__()
        self._script = script

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        for item in self._script(request):
            if isinstance(item, Exception):
                raise item
            if isinstance(item, asyncio.Event):
                await item.wait()
            else:
                yield item


def scripted(*items: Sequence[Event] | Exception | asyncio.Event) -> Metered:
    return Metered(Scripted(lambda _: list(items)))


async def read(engine: Engine, request: GenerationRequest, most: int = 10**6) -> None:
    """At most so many batches of it; then the reader goes."""
    async with aclosing(engine.generate(request)) as stream:
        if most == 0:
            return
        async for _ in stream:
            most -= 1
            if most == 0:
                return


async def test_nothing_is_known_of_what_never_came_and_it_may_not_come_later() -> None:
    engine = Metered(SimulatedEngine())
    assert await engine.settle("one") is None
    assert await engine.settle("one") is None, "asking makes nothing known"
    with pytest.raises(Conflict):
        await collect(engine, ask(request_id="one"))
    assert (await engine.load()).running == 0
    await collect(engine, ask(request_id="two", max_tokens=1))


async def test_a_whole_answer_is_counted_as_its_usage_says() -> None:
    inner = SimulatedEngine()
    engine = Metered(inner)
    usage = (await collect(engine, ask(request_id="one", max_tokens=9))).usage()
    assert usage.completion_tokens == 9
    for _ in range(2):
        assert await engine.settle("one") == Spent(usage.prompt_tokens, 9)
    with pytest.raises(Conflict):
        await collect(engine, ask(request_id="one"))
    assert inner.generated == 9


async def test_what_has_no_id_is_not_kept_and_cannot_be_settled() -> None:
    engine = Metered(SimulatedEngine())
    assert await engine.settle("") is None
    await collect(engine, ask(max_tokens=2))
    assert await engine.settle("") is None
    await collect(engine, ask(max_tokens=2))


@pytest.mark.parametrize(
    ("items", "spent"),
    [
        ([], Spent(0)),
        ([[Prefilled(3)], [Prefilled(5)]], Spent(5)),
        ([[Prefilled(5)], [Prefilled(3)]], Spent(5)),
        ([[Prefilled(WHOLE_PROMPT)]], Spent(WHOLE_PROMPT)),
        ([[Prefilled(WHOLE_PROMPT)], WORD, WORD], Spent(WHOLE_PROMPT, 4)),
        ([[Prefilled(5)], WORD, [ToolCallDelta(0, 0, tokens=3)]], Spent(5, 5)),
        # The total of an engine whose deltas do not tell the number of their tokens.
        ([[Prefilled(WHOLE_PROMPT)], WORD, [Finished(0, "stop"), Usage(6, 9, 4)]], Spent(6, 9, 4)),
        ([WORD, WORD, [Usage(6, 3)]], Spent(6, 3)),
    ],
)
@pytest.mark.parametrize("end", ["end", "failure", "gone"])
async def test_every_event_that_tells_of_tokens_counts(items: list[Sequence[Event]], spent: Spent, end: str) -> None:
    tail = [EngineFailed("died")] if end == "failure" else [asyncio.Event()] if end == "gone" else []
    engine = scripted(*items, *tail)
    task = asyncio.create_task(read(engine, ask(request_id="one")))
    if end == "gone":
        for _ in range(9):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await engine.settle("one") == spent


async def test_a_reader_that_leaves_after_any_number_of_tokens_pays_for_those() -> None:
    for most in range(12):
        inner = SimulatedEngine()
        engine = Metered(inner)
        await read(engine, ask(request_id="one", max_tokens=10), most)
        spent = await engine.settle("one")
        assert (spent.completion_tokens if spent else 0) == inner.generated == min(most, 10)
        assert spent is None or spent.prompt_tokens == 6


async def test_settling_ends_what_still_runs_and_waits_for_its_last_batch() -> None:
    go = asyncio.Event()
    engine = scripted(WORD, go, WORD, WORD, [Finished(0, "stop"), Usage(1, 6)])
    got: list[Sequence[Event]] = []

    async def reader() -> None:
        async for batch in engine.generate(ask(request_id="one")):
            got.append(batch)

    reading = asyncio.create_task(reader())
    while not got:
        await asyncio.sleep(0)
    settling = [asyncio.create_task(engine.settle("one")) for _ in range(2)]
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in settling)
    go.set()
    assert [await task for task in settling] == [Spent(0, 4)] * 2, "the batch that came meanwhile counts"
    with pytest.raises(Conflict):
        await reading  # what is cut off never looks like an end
    assert got == [WORD]


async def test_an_engine_that_hangs_is_not_waited_for_and_its_late_tokens_go_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metered, "PATIENCE_S", 0.01)
    go = asyncio.Event()
    engine = scripted(WORD, go, WORD)
    stream = engine.generate(ask(request_id="one"))
    assert await anext(stream) == WORD
    late = asyncio.create_task(anext(stream))
    assert await engine.settle("one") == Spent(0, 2)
    go.set()
    with pytest.raises(Conflict):
        await late


async def test_choices_share_a_prompt_and_their_output_adds_up() -> None:
    inner = SimulatedEngine(itl=0.001)
    engine = FanOut(Metered(inner))
    whole = (await collect(engine, ask(request_id="whole", n=3, max_tokens=5))).usage()
    assert await engine.settle("whole") == Spent(whole.prompt_tokens, 15)
    inner.generated = 0
    await read(engine, ask(request_id="part", n=3, max_tokens=50), 4)
    spent = await engine.settle("part")
    assert spent == Spent(whole.prompt_tokens, inner.generated)
    assert inner.running == 0


async def test_choices_that_come_after_the_settlement_do_not_run() -> None:
    begun = asyncio.Event()
    engine = scripted(WORD, begun, WORD)
    first = engine.generate(ask(request_id="one"))
    await anext(first)
    settling = asyncio.create_task(engine.settle("one"))
    await asyncio.sleep(0)
    with pytest.raises(Conflict):
        await anext(engine.generate(ask(request_id="one")))
    begun.set()
    with pytest.raises(Conflict):
        await anext(first)
    assert await settling == Spent(0, 4)


ROLL = m.Tool("roll", "Roll a die")
CALL = '{"name": "roll", "arguments": {}}'
AGAIN = (
    m.Message(role="user", content="Roll!"),
    m.Message(role="assistant", tool_calls=(m.ToolCall("c1", "roll", "{}"),)),
    m.Message(role="tool", content="6", tool_call_id="c1"),
)


def _calls_again(request: GenerationRequest) -> list[Sequence[Event] | Exception | asyncio.Event]:
    if request.tools:
        return [[Prefilled(30)], [TextDelta(0, CALL, 8)], [Finished(0, "stop"), Usage(30, 8)]]
    return [[Prefilled(20)], [TextDelta(0, "Six", 1)], [TextDelta(0, ".", 1), Finished(0, "stop"), Usage(20, 2)]]


async def test_a_second_try_without_tools_has_a_prompt_of_its_own() -> None:
    engine = ToolCalling(Metered(Scripted(_calls_again)))
    usage = (await collect(engine, ask(messages=AGAIN, tools=(ROLL,), request_id="one"))).usage()
    assert await engine.settle("one") == Spent(usage.prompt_tokens, usage.completion_tokens) == Spent(50, 10)
    await read(engine, ask(messages=AGAIN, tools=(ROLL,), request_id="two"), 2)
    assert await engine.settle("two") == Spent(50, 9), "a prefill and a token of the second"


@pytest.mark.parametrize("inner", [SimulatedEngine(context_window=2), Scripted(lambda _: [EngineFailed("no")])])
async def test_what_fails_at_once_has_used_nothing(inner: Engine) -> None:
    engine = Metered(inner)
    with pytest.raises(AntiphonError):
        await collect(engine, ask(request_id="one"))
    assert await engine.settle("one") == Spent(0)


async def test_memory_is_bounded_however_long_others_run() -> None:
    now = 0.0
    held = asyncio.Event()
    inner = Scripted(lambda r: [WORD, held] if r.request_id.startswith("slow") else [[Usage(1, 1)]])
    engine = Metered(inner, lambda: now)
    slow = [engine.generate(ask(request_id=f"slow{i}")) for i in range(20)]
    for stream in slow:
        await anext(stream)
    for i in range(3000):
        now += 1
        await collect(engine, ask(request_id=f"r{i}"))
        if i % 3 == 0:
            await engine.settle(f"never{i}")
    assert len(engine._ended) < 2 * metered.REMEMBER_S
    assert await engine.settle("r2999") == Spent(1, 1)
    assert await engine.settle("r0") is None, "forgotten"
    for stream in slow:
        await stream.aclose()
    assert await engine.settle("slow7") == Spent(0, 2)


@pytest.mark.parametrize("n", [1, 3])
async def test_over_http_the_count_is_exact_wherever_the_reader_drops(n: int) -> None:
    inner = SimulatedEngine(itl=0.0005, length=60)
    source = random.Random(n)
    async with over_http(FanOut(ToolCalling(Metered(inner)))) as engine:
        for i in range(40):
            inner.generated = 0
            request = ask(request_id=f"r{i}", n=n)
            reader = asyncio.create_task(read(engine, request, source.randrange(0, 70 * n)))
            if source.random() < 0.5:
                await asyncio.sleep(source.random() * 0.05)
                reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
            spent = await engine.settle(request.request_id)
            assert inner.running == 0, "settled means over"
            assert (spent.completion_tokens if spent else 0) == inner.generated
            with pytest.raises(Conflict):
                await collect(engine, request)
        assert await engine.settle("never") is None
