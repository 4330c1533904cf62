"""When each key was last used, written behind the request's back: no request waits for it or fails with it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from services.common.telemetry import log

CAPACITY = 10_000


class LastUsed:
    """Tells `write` of each key at most once in `every_s`. What cannot be written is dropped."""

    def __init__(self, write: Callable[[Mapping[str, float]], Awaitable[None]], every_s: float):
        self._write = write
        self._every_s = every_s
        self._told: dict[str, float] = {}
        self._waiting: dict[str, float] = {}
        self._writer: asyncio.Task[None] | None = None

    def note(self, key_id: str, now: float) -> None:
        """Never waits."""
        if now - self._told.get(key_id, -self._every_s) < self._every_s:
            return
        if len(self._told) >= CAPACITY:
            self._told.clear()
        self._told[key_id] = self._waiting[key_id] = now
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Waits for what is being written."""
        if self._writer:
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer

    async def _work(self) -> None:
        while self._waiting:
            times, self._waiting = self._waiting, {}
            try:
                await self._write(times)
            except Exception as e:
                log.warning("last_used_not_written", cause=type(e).__name__)
