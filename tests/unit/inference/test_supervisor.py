import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from inference.supervisor import Supervisor
from services.common.errors import EngineFailed
from tests.support.engines import alive, gone, orphaned

READY = """
import os, sys, time
with os.fdopen(int(os.environ["READY_FD"]), "w") as ready:
    ready.write(f"http://child/{os.getpid()}\\n")
sys.stdin.buffer.read()
"""
DEAF = READY.replace("sys.stdin.buffer.read()", "time.sleep(600)")
Make = Callable[[str], Supervisor]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Supervisor] = []

    def build(code: str) -> Supervisor:
        made.append(Supervisor("child", [sys.executable, "-c", code], tmp_path / "logs" / "child.log"))
        return made[-1]

    yield build
    for supervisor in made:
        await supervisor.stop()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_start_returns_when_the_child_is_ready(make: Make) -> None:
    child = make(READY)
    await child.start(20)
    assert await child.url() == f"http://child/{child.pid}"


@pytest.mark.parametrize(
    "code", ["import sys; sys.exit('no such model')", "import os; print('no such model', flush=True); os.abort()"]
)
async def test_a_child_that_dies_before_it_is_ready_is_reported_with_the_end_of_its_log(make: Make, code: str) -> None:
    child = make(code)
    with pytest.raises(EngineFailed, match="no such model"):
        await child.start(20)
    with pytest.raises(EngineFailed):
        await child.url()


async def test_a_command_that_does_not_exist_is_reported_at_once(tmp_path: Path) -> None:
    child = Supervisor("child", [str(tmp_path / "missing")], tmp_path / "log")
    async with asyncio.timeout(10):
        with pytest.raises(EngineFailed):
            await child.start(600)


async def test_a_child_that_is_not_ready_in_time_is_stopped(make: Make) -> None:
    child = make("import sys; sys.stdin.buffer.read()")
    with pytest.raises(EngineFailed):
        await child.start(0.5)
    assert child.pid is not None
    assert not alive(child.pid)


async def test_a_start_that_is_cancelled_leaves_no_process(make: Make) -> None:
    child = make("import sys; sys.stdin.buffer.read()")
    task = asyncio.create_task(child.start(60))
    while child.pid is None:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not alive(child.pid)


async def test_a_killed_child_comes_back_and_url_waits_for_it(make: Make) -> None:
    child = make(READY)
    await child.start(20)
    for _ in range(2):
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        while await child.url() == f"http://child/{first}":
            await asyncio.sleep(0)
        assert await child.url() == f"http://child/{child.pid}"
        assert child.pid != first


async def test_url_gives_up_while_the_child_stays_away(make: Make) -> None:
    child = make(READY)
    await child.start(20)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    await gone(child.pid)
    await asyncio.sleep(0.05)
    with pytest.raises(EngineFailed) as failed:
        await child.url(timeout=0.01)
    assert failed.value.retry_after


async def test_the_pauses_between_restarts_grow(make: Make, tmp_path: Path) -> None:
    births = tmp_path / "births"
    birth = f"import time; open({str(births)!r}, 'a').write(str(time.time()) + ' ')"
    child = make(birth + READY.replace("sys.stdin.buffer.read()", "sys.exit(1)"))
    await child.start(20)
    while len(births.read_text().split()) < 4:
        await asyncio.sleep(0.05)
    pauses = [float(b) - float(a) for a, b in pairwise(births.read_text().split())]
    assert pauses[0] < pauses[1] < pauses[2]


@pytest.mark.parametrize("code", [READY, DEAF], ids=["obedient", "deaf"])
async def test_stop_leaves_no_process_and_no_open_file(make: Make, code: str) -> None:
    before, child = open_files(), make(code)
    await child.start(20)
    pid = child.pid
    assert pid is not None
    await child.stop()
    assert not alive(pid)
    for _ in range(3):
        await asyncio.sleep(0)  # transports close in the next turn of the loop
    assert open_files() <= before + 1  # the loop's own watcher of children
    with pytest.raises(EngineFailed):
        await child.url()


async def test_who_waits_while_the_child_is_stopped_hears_of_it_and_is_not_cancelled(make: Make) -> None:
    child = make(READY)
    await child.start(20)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    await gone(child.pid)
    await asyncio.sleep(0.05)
    waiting = asyncio.create_task(child.url())
    await asyncio.sleep(0)
    await child.stop()
    with pytest.raises(EngineFailed):
        await waiting


async def test_stop_during_a_restart_leaves_no_process(make: Make) -> None:
    child = make(READY)
    await child.start(20)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    await gone(child.pid)
    await child.stop()
    last = child.pid
    await asyncio.sleep(1)
    assert child.pid == last
    assert not alive(last)


async def test_a_parent_that_is_killed_takes_its_child_with_it(tmp_path: Path) -> None:
    pid = await orphaned([sys.executable, "-c", READY], tmp_path / "log")
    async with asyncio.timeout(2):
        await gone(pid)
