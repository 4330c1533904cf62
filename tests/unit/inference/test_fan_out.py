import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

import pytest

from inference.engines.fan_out import FanOut
from services.common import messages as m
from services.common.errors import EngineFailed
from tests.support.engines import ask, broken, collect


class Choices:
    """Runs `script(number, request)` for each generation; counts how they ended."""

    def __init__(self, script: Callable[[int, m.GenerationRequest], AsyncGenerator[Sequence[m.Event], None]]):
        self._script = script
        self.requests: list[m.GenerationRequest] = []
        self.closed = 0

    async def generate(self, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
        self.requests.append(request)
        try:
            async for batch in self._script(len(self.requests) - 1, request):
                yield batch
        finally:
            self.closed += 1


async def two_words(number: int, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
    for word in (f"a{number} ", f"b{number}"):
        await asyncio.sleep(0)
        yield [m.TextDelta(0, word)]
    yield [m.Finished(0, "stop")]
    yield [m.Usage(10, 2, 5 if number == 0 else 10)]


async def endless(number: int, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
    while True:
        await asyncio.sleep(0)
        yield [m.TextDelta(0, "word ")]


async def test_each_choice_keeps_its_order_and_its_number() -> None:
    answer = await collect(FanOut(Choices(two_words)), ask(n=3))  # type: ignore[arg-type]
    assert {answer.text(i) for i in range(3)} == {"a0 b0", "a1 b1", "a2 b2"}
    assert answer.reasons() == {0: "stop", 1: "stop", 2: "stop"}


async def test_the_usage_comes_once_and_counts_the_prompt_once() -> None:
    answer = await collect(FanOut(Choices(two_words)), ask(n=3))  # type: ignore[arg-type]
    assert [e for e in answer.events if isinstance(e, m.Usage)] == [answer.usage()]
    assert (answer.usage().prompt_tokens, answer.usage().completion_tokens) == (10, 6)
    assert all(answer.batches), "no empty batch"


async def test_completions_add_up_where_no_prompt_is_counted() -> None:
    async def uncounted(number: int, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
        yield [m.TextDelta(0, "word"), m.Finished(0, "stop"), m.Usage(0, 4)]

    answer = await collect(FanOut(Choices(uncounted)), ask(n=3))  # type: ignore[arg-type]
    assert answer.usage() == m.Usage(0, 12)


@pytest.mark.parametrize(("seed", "seeds"), [(7, {7, 8, 9}), (None, {None})])
async def test_equal_seeds_would_make_equal_choices(seed: int | None, seeds: set[int | None]) -> None:
    inner = Choices(two_words)
    await collect(FanOut(inner), ask(n=3, seed=seed))  # type: ignore[arg-type]
    assert {r.sampling.seed for r in inner.requests} == seeds
    assert {r.n for r in inner.requests} == {1}


async def test_one_choice_is_the_engines_own_stream() -> None:
    inner = Choices(two_words)
    await collect(FanOut(inner), ask(seed=7))  # type: ignore[arg-type]
    assert inner.requests == [ask(seed=7)]


async def test_a_failure_of_one_choice_ends_the_others_and_the_whole() -> None:
    async def second_fails(number: int, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
        if number == 1:
            raise EngineFailed("gone")
        async for batch in endless(number, request):
            yield batch

    inner = Choices(second_fails)
    answer, error = await broken(FanOut(inner), ask(n=3))  # type: ignore[arg-type]
    assert isinstance(error, EngineFailed)
    assert inner.closed == len(inner.requests)
    assert answer.reasons() == {}


async def test_closing_the_answer_closes_every_choice() -> None:
    inner = Choices(endless)
    stream = FanOut(inner).generate(ask(n=4))  # type: ignore[arg-type]
    while len(inner.requests) < 4:
        await anext(stream)
    await stream.aclose()
    assert inner.closed == 4


async def test_a_slow_reader_holds_the_choices_back() -> None:
    made = 0

    async def counting(number: int, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
        nonlocal made
        async for batch in endless(number, request):
            made += 1
            yield batch

    stream = FanOut(Choices(counting)).generate(ask(n=2))  # type: ignore[arg-type]
    await anext(stream)
    for _ in range(2000):
        await asyncio.sleep(0)
    await stream.aclose()
    assert made < 200
