import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engines.simulated import SimulatedEngine
from services.common import messages as m
from services.common.errors import ContextLengthExceeded
from tests.support.engines import ask, collect


@given(st.integers(1, 80), st.integers(0, 200), st.integers(1, 30))
async def test_a_stop_string_cuts_exactly_there_wherever_tokens_end(limit: int, start: int, length: int) -> None:
    engine = SimulatedEngine()
    whole = (await collect(engine, ask(temperature=0, max_tokens=limit))).text()
    stop = whole[start : start + length] or "nowhere to be found"
    answer = await collect(engine, ask(temperature=0, max_tokens=limit, stop=(stop,)))
    assert answer.text() == whole.split(stop)[0]
    assert answer.reasons()[0] == ("stop" if stop in whole or limit >= 64 else "length")
    assert answer.tokens() == answer.usage().completion_tokens <= limit


@given(st.integers(0, 400))
async def test_a_continued_answer_equals_the_undisturbed_one(place: int) -> None:
    engine, request = SimulatedEngine(), ask(temperature=0)
    whole = (await collect(engine, request)).text()
    messages = (*request.messages, m.Message(role="assistant", content=whole[:place]))
    rest = await collect(engine, ask(temperature=0, messages=messages, continue_last=True))
    assert whole[:place] + rest.text() == whole
    assert rest.reasons() == {0: "stop"}


async def test_an_answer_depends_on_prompt_and_seed_alone() -> None:
    async def text(**fields: object) -> str:
        return (await collect(SimulatedEngine(), ask(**fields))).text()  # type: ignore[arg-type]

    assert await text(seed=1) == await text(seed=1)
    assert await text(seed=1) != await text(seed=2)
    assert await text(seed=1) != await text(seed=1, text="Another question")
    assert await text() != await text()


async def test_prompt_and_completion_fit_the_window_together() -> None:
    engine = SimulatedEngine(context_window=20)
    answer = await collect(engine, ask(prompt="w " * 15))
    assert answer.usage() == m.Usage(15, 5)
    assert answer.reasons() == {0: "length"}
    with pytest.raises(ContextLengthExceeded):
        await collect(engine, ask(prompt="w " * 20))


async def test_what_was_cancelled_no_longer_runs_and_is_still_counted() -> None:
    engine = SimulatedEngine(itl=0.001)
    stream = engine.generate(ask())
    await anext(stream)
    assert (await engine.load()).running == 1
    await stream.aclose()
    assert (await engine.load()).running == 0
    made = engine.generated
    await asyncio.sleep(0.01)
    assert engine.generated == made == 1
