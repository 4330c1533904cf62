"""merge: several streams as one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.errors import EngineFailed
from services.common.streams import merge


class Source:
    """A stream of numbers that yields to the loop now and then, and knows whether it was closed."""

    def __init__(self, items: int, pause_every: int = 0, fail_at: int | None = None):
        self.items, self.pause_every, self.fail_at = items, pause_every, fail_at
        self.open = False

    async def stream(self) -> AsyncGenerator[int, None]:
        self.open = True
        try:
            for i in range(self.items):
                if i == self.fail_at:
                    raise EngineFailed(f"at {i}")
                if self.pause_every and i % self.pause_every == 0:
                    await asyncio.sleep(0)
                yield i
            if self.fail_at == self.items:
                raise EngineFailed(f"at {self.items}")
        finally:
            await asyncio.sleep(0)  # closing takes a moment, as a connection's does
            self.open = False


async def endless() -> AsyncGenerator[int, None]:
    await asyncio.Event().wait()
    yield 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 3)), max_size=5))
async def test_everything_comes_once_in_the_order_of_its_own_stream(shapes: list[tuple[int, int]]) -> None:
    sources = [Source(items, pause) for items, pause in shapes]
    got: dict[int, list[int]] = {i: [] for i in range(len(sources))}
    async for number, item in merge([s.stream() for s in sources]):
        got[number].append(item)
    assert got == {i: list(range(s.items)) for i, s in enumerate(sources)}
    assert not any(s.open for s in sources)


async def test_a_stream_that_waits_does_not_hold_up_the_others() -> None:
    async with aclosing(merge([endless(), Source(3).stream()])) as merged:
        assert [await anext(merged) for _ in range(3)] == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("fail_at", [0, 1, 5])
async def test_the_first_failure_ends_all(fail_at: int) -> None:
    bad, good = Source(5, 1, fail_at), Source(10_000, 1)
    seen: list[tuple[int, int]] = []

    async def read() -> None:
        async for got in merge([good.stream(), bad.stream()]):
            seen.append(got)

    with pytest.raises(EngineFailed, match=f"at {fail_at}"):
        await read()
    assert [item for number, item in seen if number == 1] == list(range(fail_at))
    assert not good.open
    assert not bad.open


@pytest.mark.parametrize("taken", [0, 1, 100])
async def test_closing_closes_all_even_while_they_wait_for_a_reader(taken: int) -> None:
    sources = [Source(10_000) for _ in range(3)]
    merged = merge([s.stream() for s in sources])
    for _ in range(taken):
        await anext(merged)
    if taken:
        await asyncio.sleep(0)
        assert any(s.open for s in sources)
    await merged.aclose()
    assert not any(s.open for s in sources)


async def test_a_reader_that_is_cancelled_closes_all() -> None:
    sources = [Source(1), Source(1)]

    async def read() -> None:
        async with aclosing(merge([*(s.stream() for s in sources), endless()])) as merged:
            async for _ in merged:
                pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(s.open for s in sources)


async def test_a_slow_reader_is_not_run_over() -> None:
    source = Source(10_000)
    made = 0

    async def counted() -> AsyncGenerator[int, None]:
        nonlocal made
        async with aclosing(source.stream()) as items:
            async for item in items:
                made += 1
                yield item

    async with aclosing(merge([counted()])) as merged:
        await anext(merged)
        await asyncio.sleep(0.01)
        assert made < 200
