"""Idempotency keys of one process, as files: `<name>.running` while the first request runs, then `<name>.answer`.

Written without waiting for a disk: what was written survives kill -9 of this process, because the kernel holds it. A
file begins with the fingerprint; one with nothing after it is of an answer that could not be kept.
"""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

from gateway.idempotency import LIFETIME_S, Claim, Known
from services.common.errors import Overloaded
from services.common.telemetry import log

_FINGERPRINT = 32
_SWEEP_S = 600.0
_BATCH = 100
"""Files that a sweep looks at before it lets others run."""


class FileIdempotency:
    """max_bytes: of all answers. Beyond it the oldest are forgotten, but not that they were given.

    Errors: `OSError` for a folder that cannot be used. No other process may use it at the same time.
    """

    def __init__(self, folder: Path, *, lifetime_s: float = LIFETIME_S, max_bytes: int = 1 << 30):
        self._folder = folder
        self._lifetime_s = lifetime_s
        self._most = max_bytes
        self._size = 0
        self._next_sweep = 0.0
        self._sweeping: asyncio.Task[None] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        for entry in os.scandir(folder):
            if entry.name.endswith(".answer"):
                self._size += entry.stat().st_size
            else:  # of a process that died
                os.unlink(entry.path)

    async def claim(self, claim: Claim) -> Known | None:
        self._sweep_in_time()
        try:
            return self._finished(claim.name) or self._take(claim)
        except OSError as e:
            raise _away(e) from e

    async def renew(self, claim: Claim) -> None:
        """A claim here lasts as long as its process."""

    async def keep(self, claim: Claim, answer: bytes) -> None:
        try:
            if not self._is_held(claim):
                return
            if answer:
                self._replace(claim, answer)
            else:
                self._forget(claim)
        except OSError as e:
            raise _away(e) from e
        if self._size > self._most:
            self._next_sweep = 0.0
            self._sweep_in_time()

    async def release(self, claim: Claim) -> None:
        try:
            if self._is_held(claim):
                self._path(claim.name, "running").unlink()
        except OSError as e:
            raise _away(e) from e

    def _path(self, name: str, state: str) -> Path:
        return self._folder / f"{name}.{state}"

    def _finished(self, name: str) -> Known | None:
        path = self._path(name, "answer")
        with suppress(FileNotFoundError):
            if path.stat().st_mtime + self._lifetime_s < time.time():
                self._remove(path)
                return None
            data = path.read_bytes()
            return Known("finished", data[:_FINGERPRINT], data[_FINGERPRINT:])
        return None

    def _take(self, claim: Claim) -> Known | None:
        path = self._path(claim.name, "running")
        try:
            _write_new(path, claim.fingerprint + claim.holder)
        except FileExistsError:
            return Known("running", path.read_bytes()[:_FINGERPRINT])
        return None

    def _is_held(self, claim: Claim) -> bool:
        try:
            return self._path(claim.name, "running").read_bytes() == claim.fingerprint + claim.holder
        except FileNotFoundError:
            return False

    def _replace(self, claim: Claim, answer: bytes) -> None:
        """Whole or not at all; where there is no room for it, that it has run."""
        part = self._path(claim.name, "part")
        try:
            _write_new(part, claim.fingerprint + answer)
            os.replace(part, self._path(claim.name, "answer"))
            self._path(claim.name, "running").unlink()
            self._size += _FINGERPRINT + len(answer)
        except OSError as e:
            log.error("idempotent_answer_not_kept", error=e.strerror)
            self._forget(claim)

    def _forget(self, claim: Claim) -> None:
        """Takes no room on the disk, so that it works on a full one."""
        running = self._path(claim.name, "running")
        os.truncate(running, _FINGERPRINT)
        os.utime(running)
        os.replace(running, self._path(claim.name, "answer"))
        self._size += _FINGERPRINT

    def _remove(self, path: Path) -> None:
        self._size -= path.stat().st_size
        path.unlink()

    def _sweep_in_time(self) -> None:
        now = time.monotonic()
        if now >= self._next_sweep and (self._sweeping is None or self._sweeping.done()):
            self._next_sweep = now + _SWEEP_S
            self._sweeping = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        """In steps on the loop rather than in a thread, which could remove a file that was made again meanwhile."""
        left: list[tuple[int, Path]] = []
        try:
            for number, path in enumerate(self._folder.glob("*.answer")):
                if number % _BATCH == 0:
                    await asyncio.sleep(0)
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    if stat.st_mtime + self._lifetime_s < time.time():
                        self._remove(path)
                    elif stat.st_size > _FINGERPRINT:
                        left.append((stat.st_mtime_ns, path))
            if self._size > self._most:
                await self._shrink(left)
        except OSError as e:
            log.error("idempotency_sweep_failed", error=e.strerror)

    async def _shrink(self, answers: list[tuple[int, Path]]) -> None:
        for number, (time_ns, path) in enumerate(sorted(answers)):
            if self._size <= self._most * 0.9:
                return
            if number % _BATCH == 0:
                await asyncio.sleep(0)
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                os.truncate(path, _FINGERPRINT)
                os.utime(path, ns=(time_ns, time_ns))
                self._size -= size - _FINGERPRINT


def _write_new(path: Path, data: bytes) -> None:
    """Errors: `FileExistsError`; any other `OSError`, and then there is no such file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            if file.write(data) != len(data):
                raise OSError(28, "No space left on device")
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _away(error: OSError) -> Overloaded:
    return Overloaded(f"Idempotency keys cannot be kept: {error.strerror}. Try again.", retry_after=5)
