"""Keeps one child process alive: starts it, waits until it is ready, starts it again when it dies, stops it with us."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

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
        self._task = asyncio.create_task(self._keep_alive(timeout))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._url)
        except asyncio.CancelledError:
            await self.stop()
            raise
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

    async def settle(self, timeout: float = 0.5) -> None:
        """If the child is just dying, return when that is known and `url()` waits for the next one."""
        if self._process:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._process.wait()
                    await asyncio.sleep(0)

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._url and not self._url.done():
            # Not cancel(): those who wait for it were not cancelled.
            self._fail(EngineFailed(f"{self.name} was stopped."))
        self._url = None

    def _fail(self, error: EngineFailed) -> None:
        assert self._url is not None
        self._url.set_exception(error)
        self._url.exception()  # whether or not anybody waits for it

    async def _keep_alive(self, ready_timeout: float) -> None:
        failures = 0
        while True:
            born = time.monotonic()
            try:
                returncode = await self._run_once(ready_timeout, first=failures == 0)
            except OSError as e:  # no such program, no process or file to be had
                log.error("engine_not_started", worker=self.name, error=str(e))
                if failures == 0:
                    return self._fail(EngineFailed(f"{self.name} cannot be started: {e}"))
                returncode = -1
            failures = 1 if time.monotonic() - born > STEADY else failures + 1
            delay = min(MAX_BACKOFF, 0.25 * 2**failures)
            log.error("engine_died", worker=self.name, returncode=returncode, restart_in_s=delay)
            ENGINE_RESTARTS.labels(self.name).inc()
            await asyncio.sleep(delay)

    async def _run_once(self, ready_timeout: float, first: bool) -> int:
        self._process, ready = await self._spawn()
        try:
            if await self._becomes_ready(ready, ready_timeout, first):
                await self._process.wait()
        finally:
            await _end(self._process)
        if self._url and self._url.done():  # else: callers already wait for the next child
            self._url = asyncio.get_running_loop().create_future()
        return self._process.returncode or 0

    async def _spawn(self) -> tuple[asyncio.subprocess.Process, BinaryIO]:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        ready_read, ready_write = os.pipe()
        ready = os.fdopen(ready_read, "rb")
        try:
            with self._log_file.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output,
                    env={**self._env, "READY_FD": str(ready_write)}, pass_fds=(ready_write,), start_new_session=True,
                )  # fmt: skip
        except BaseException:
            ready.close()
            raise
        finally:
            os.close(ready_write)
        return process, ready

    async def _becomes_ready(self, ready: BinaryIO, timeout: float, first: bool) -> bool:
        loop, reader, line = asyncio.get_running_loop(), asyncio.StreamReader(), ""
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), ready)
        try:
            async with asyncio.timeout(timeout):
                line = (await reader.readline()).decode().strip()
        except TimeoutError:
            log.error("engine_not_ready", worker=self.name, after_s=timeout)
        finally:
            transport.close()
        assert self._url is not None
        if line:
            self._url.set_result(line)
        elif first:
            # A child that never served is not worth a second try: its command or its model is wrong.
            self._fail(EngineFailed(f"{self.name} died while starting."))
        return bool(line)

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
