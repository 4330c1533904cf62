"""Keeps one child process alive: starts it, waits until it is ready, starts it again when it dies, stops it with us."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.common.errors import EngineFailed
from services.common.telemetry import ENGINE_RESTARTS, log

MAX_BACKOFF = 30.0
STEADY = 60.0
"""Seconds of life after which a death counts as the first again."""


class Supervisor:
    """The child gets a pipe at `READY_FD`, on which it writes one line (its URL) when it can serve.

    It must end by itself when its standard input closes: that is how it notices our own death, kill -9 included.
    """

    def __init__(self, name: str, command: Sequence[str], log_file: Path, env: Mapping[str, str] | None = None):
        self.name = name
        self._command = command
        self._env = {**os.environ, **(env or {})}
        self._log_file = log_file
        self._process: asyncio.subprocess.Process | None = None
        self._url: asyncio.Future[str] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self, timeout: float) -> None:
        """Return when the child is ready. `EngineFailed` quotes the end of its log if it dies first."""
        self._url = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_alive())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._url)
        except (TimeoutError, EngineFailed) as e:
            await self.stop()
            raise EngineFailed(f"{self.name} did not start. The end of {self._log_file}:\n{self._log_tail()}") from e

    async def url(self, timeout: float = 30.0) -> str:
        """Where the child listens now; while it is being restarted, wait for it, `timeout` seconds at most."""
        if self._url is None:
            raise EngineFailed(f"{self.name} is not running.")
        if self._url.done():
            return self._url.result()
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self._url)
        except TimeoutError:
            raise EngineFailed(f"{self.name} is restarting.", retry_after=5) from None

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._url and not self._url.done():
            self._url.cancel()
        self._url = None

    async def _keep_alive(self) -> None:
        failures = 0
        while True:
            born = time.monotonic()
            returncode = await self._run_once(first=failures == 0)
            failures = 1 if time.monotonic() - born > STEADY else failures + 1
            delay = min(MAX_BACKOFF, 0.25 * 2**failures)
            log.error("engine_died", worker=self.name, returncode=returncode, restart_in_s=delay)
            ENGINE_RESTARTS.labels(self.name).inc()
            await asyncio.sleep(delay)

    async def _run_once(self, first: bool) -> int:
        ready_read, ready_write = os.pipe()
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("ab") as output:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output,
                env={**self._env, "READY_FD": str(ready_write)}, pass_fds=(ready_write,), start_new_session=True,
            )  # fmt: skip
        os.close(ready_write)
        try:
            await self._wait_ready(ready_read, first)
            returncode = await process.wait()
            if self._url and self._url.done():  # else: callers already wait for the next child
                self._url = asyncio.get_running_loop().create_future()
            return returncode
        finally:
            await _end(process)

    async def _wait_ready(self, fd: int, first: bool) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb"))
        try:
            line = (await reader.readline()).decode().strip()
        finally:
            transport.close()
        assert self._url is not None
        if line:
            self._url.set_result(line)
        elif first:
            # A child that never served is not worth a second try: its command or its model is wrong.
            self._url.set_exception(EngineFailed(f"{self.name} died while starting."))

    def _log_tail(self, lines: int = 15) -> str:
        try:
            return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"


async def _end(process: asyncio.subprocess.Process, grace: float = 5.0) -> None:
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(grace):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
