"""Idempotency keys as files: rights, full disks, bounds, and a process that is killed."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.idempotency import Claim, Known
from gateway.idempotency_files import FileIdempotency
from services.common.errors import Overloaded

PRINT = b"f" * 32


def claim(name: str = "a" * 64) -> Claim:
    return Claim(name, PRINT, os.urandom(16))


async def kept(store: FileIdempotency, name: str, answer: bytes) -> None:
    mine = claim(name)
    assert await store.claim(mine) is None
    await store.keep(mine, answer)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def size(folder: Path) -> int:
    return sum((folder / name).stat().st_size for name in names(folder))


async def until(happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happens():
            await asyncio.sleep(0.01)


@contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: the kernel cuts the write that does, and refuses the next."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o755)
    store = FileIdempotency(folder)
    await kept(store, "a" * 64, b"secret")
    assert await store.claim(claim("b" * 64)) is None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {(folder / name).stat().st_mode & 0o777 for name in names(folder)} == {0o600}
    assert names(folder) == ["a" * 64 + ".answer", "b" * 64 + ".running"]


async def test_an_answer_without_room_is_remembered_as_run(tmp_path: Path) -> None:
    store = FileIdempotency(tmp_path)
    mine = claim()
    assert await store.claim(mine) is None
    with disk_full_at(4096), capture_logs() as logs:
        await store.keep(mine, b"x" * 10_000)
    assert [entry["event"] for entry in logs] == ["idempotent_answer_not_kept"]
    assert names(tmp_path) == [f"{mine.name}.answer"]
    assert await store.claim(claim()) == Known("finished", PRINT, b"")
    assert await FileIdempotency(tmp_path).claim(claim()) == Known("finished", PRINT, b"")


async def test_a_claim_without_room_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    store = FileIdempotency(tmp_path)
    for size in (0, 10):
        with disk_full_at(size), pytest.raises(Overloaded) as refused:
            await store.claim(claim())
        assert refused.value.status == 503
        assert names(tmp_path) == []
    assert await store.claim(claim()) is None


async def test_a_folder_that_has_gone_refuses_claims(tmp_path: Path) -> None:
    store = FileIdempotency(tmp_path / "keys")
    (tmp_path / "keys").rmdir()
    with pytest.raises(Overloaded):
        await store.claim(claim())


async def test_beyond_the_bound_the_oldest_answers_go_but_not_that_they_were_given(tmp_path: Path) -> None:
    store = FileIdempotency(tmp_path, max_bytes=2000)
    keys = [str(n) * 64 for n in range(5)]
    for age, name in zip((500, 400, 300, 200), keys[:4], strict=True):
        await kept(store, name, b"x" * 400)
        path = tmp_path / f"{name}.answer"
        stamp = path.stat().st_mtime - age
        os.utime(path, (stamp, stamp))
    await kept(store, keys[4], b"x" * 400)
    await until(lambda: size(tmp_path) <= 1800)
    found = [await store.claim(claim(name)) for name in keys]
    assert found[0] == Known("finished", PRINT, b"")
    assert found[-1] == Known("finished", PRINT, b"x" * 400)
    assert [bool(f and f.answer) for f in found] == sorted(bool(f and f.answer) for f in found)
    assert size(tmp_path) > 1000, "more was forgotten than needed"
    oldest = tmp_path / f"{keys[0]}.answer"
    newest = tmp_path / f"{keys[4]}.answer"
    assert oldest.stat().st_mtime < newest.stat().st_mtime - 400, "forgetting must not make it younger"


async def test_a_start_sweeps_what_has_expired_and_keeps_the_rest(tmp_path: Path) -> None:
    old = FileIdempotency(tmp_path)
    for number in range(300):
        await kept(old, f"old{number}", b"x")
        os.utime(tmp_path / f"old{number}.answer", (1, 1))
    await kept(old, "new", b"y")
    (tmp_path / "torn.part").write_bytes(b"half")
    fresh = FileIdempotency(tmp_path)
    assert await fresh.claim(claim("other")) is None
    await until(lambda: names(tmp_path) == ["new.answer", "other.running"])
    assert await fresh.claim(claim("new")) == Known("finished", PRINT, b"y")


KILLED = """
import asyncio, os, sys
from pathlib import Path
from gateway.idempotency import Claim
from gateway.idempotency_files import FileIdempotency

async def main():
    store = FileIdempotency(Path(sys.argv[1]))
    done, running = Claim("done", b"f" * 32, b"1" * 16), Claim("running", b"f" * 32, b"2" * 16)
    assert await store.claim(done) is None and await store.claim(running) is None
    await store.keep(done, b"an answer")
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_answers_survive_kill_9_and_unfinished_claims_do_not(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    ) as child:  # fmt: skip
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGKILL)

    async def found(name: str) -> Known | None:
        return await store.claim(claim(name))

    store = FileIdempotency(tmp_path)
    assert asyncio.run(found("done")) == Known("finished", PRINT, b"an answer")
    assert asyncio.run(found("running")) is None
