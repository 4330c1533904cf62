"""The real engine, killed and orphaned for real."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from services.common import messages as m
from services.common.errors import EngineFailed
from tests.support.engines import WINDOW, ask, collect, gone, llama_command, llama_engine, orphaned

pytestmark = pytest.mark.engine

BACK_S = 20
CHILD_GONE_S = 2


@pytest.mark.parametrize("words", [0, 5], ids=["before the first token", "mid-stream"])
async def test_a_killed_engine_fails_its_streams_and_serves_the_next_request(tmp_path: Path, words: int) -> None:
    async with llama_engine(tmp_path / "log") as engine:
        events: list[m.Event] = []

        async def read() -> None:
            async for batch in engine.generate(ask("Count to ten thousand.", max_tokens=900, temperature=0)):
                events.extend(batch)

        task = asyncio.create_task(read())
        while len(events) < words or not (words or (await engine.load()).running):
            await asyncio.sleep(0.01)
        assert engine.supervisor.pid is not None
        os.kill(engine.supervisor.pid, signal.SIGKILL)
        with pytest.raises(EngineFailed):
            await task
        assert not any(isinstance(e, m.Finished | m.Usage) for e in events)
        async with asyncio.timeout(BACK_S):
            answer = await collect(engine, ask(max_tokens=3))
        assert answer.usage().completion_tokens == 3


async def test_load_tells_of_a_dead_engine_and_of_its_return(tmp_path: Path) -> None:
    async with llama_engine(tmp_path / "log") as engine:
        assert engine.supervisor.pid is not None
        os.kill(engine.supervisor.pid, signal.SIGKILL)
        async with asyncio.timeout(BACK_S):
            while (await engine.load()).healthy:
                await asyncio.sleep(0.01)
            while not (await engine.load()).healthy:
                await asyncio.sleep(0.05)


async def test_load_tells_how_many_wait_when_there_are_more_than_slots(tmp_path: Path) -> None:
    async with llama_engine(tmp_path / "log") as engine:
        many = [asyncio.create_task(collect(engine, ask(max_tokens=40))) for _ in range(12)]
        async with asyncio.timeout(BACK_S):
            while not (load := await engine.load()).waiting or not load.running:
                await asyncio.sleep(0.01)
        assert load.running + load.waiting <= 12
        await asyncio.gather(*many)
        assert await engine.load() == m.Load(healthy=True)


async def test_a_refused_request_harms_nobody_else(tmp_path: Path) -> None:
    async with llama_engine(tmp_path / "log") as engine:
        pid = engine.supervisor.pid
        others = [asyncio.create_task(collect(engine, ask(f"Say {i}.", max_tokens=12))) for i in range(3)]
        bad = [
            ask("sea " * WINDOW * 2), ask(output_schema={"type": 12}), ask(prompt=(10**9,)), ask(prompt=()),
            ask(output_schema={"type": "string", "pattern": "(" * 500}),
        ]  # fmt: skip
        for outcome in await asyncio.gather(*(collect(engine, r) for r in bad), return_exceptions=True):
            assert isinstance(outcome, Exception)
            assert getattr(outcome, "status", None) == 400
        for answer in await asyncio.gather(*others):
            assert answer.text()
        assert engine.supervisor.pid == pid


async def test_a_killed_parent_takes_the_real_engine_with_it(tmp_path: Path) -> None:
    pid = await orphaned(llama_command(), tmp_path / "log")
    async with asyncio.timeout(CHILD_GONE_S):
        await gone(pid)
