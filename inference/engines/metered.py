"""Counting at the source: a wrapper next to the engine, which outlives whoever reads the stream.

A reader that goes away, or dies, does not know what was generated after the last token that it saw. This does.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from itertools import islice

from services.common.errors import Conflict
from services.common.messages import (
    WHOLE_PROMPT,
    Capabilities,
    Event,
    GenerationRequest,
    Load,
    Prefilled,
    Spent,
    TextDelta,
    TokenizeRequest,
    Tokens,
    ToolCallDelta,
    Usage,
)
from services.common.ports import Engine

REMEMBER_S = 900.0
PATIENCE_S = 5.0
"""How long `settle` waits for a generation whose reader has just gone."""


class _Count:
    """Of one request id, over all generations that were made for it."""

    def __init__(self) -> None:
        self.open = 0
        self.began = self.closed = False
        self.prompts: dict[int, int] = {}
        """By the number of tools shown: choices share a prompt, a second try without tools has one of its own."""
        self.output = self.cached = 0
        self.ended = asyncio.Event()
        self.at = 0.0

    def take(self, prompt: int, own: int, batch: Sequence[Event]) -> int:
        """own: the output of this generation alone so far; gives it with the batch. The engine's total is the truth."""
        before = own
        for event in batch:
            if isinstance(event, TextDelta | ToolCallDelta):
                own += event.tokens
            elif isinstance(event, Prefilled):
                if self.prompts.get(prompt) != WHOLE_PROMPT:
                    self.prompts[prompt] = max(event.tokens, self.prompts.get(prompt, WHOLE_PROMPT))
            elif isinstance(event, Usage):
                self.prompts[prompt], self.cached = event.prompt_tokens, event.cached_tokens
                own = event.completion_tokens
        self.output += own - before
        return own

    def spent(self) -> Spent:
        whole = WHOLE_PROMPT in self.prompts.values()
        return Spent(WHOLE_PROMPT if whole else sum(self.prompts.values()), self.output, self.cached)


class Metered:
    def __init__(self, inner: Engine, clock: Callable[[], float] = time.monotonic):
        self._inner = inner
        self._clock = clock
        self._running: dict[str, _Count] = {}
        self._ended: dict[str, _Count] = {}
        """In the order of their ends: the oldest are forgotten first."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        count = self._begin(request.request_id)
        own = 0
        try:
            async with aclosing(self._inner.generate(request)) as events:
                async for batch in events:
                    own = count.take(len(request.tools), own, batch)
                    if count.closed:
                        raise Conflict("This generation was settled while it ran.")
                    yield batch
        finally:
            self._end(request.request_id, count)

    def _begin(self, request_id: str) -> _Count:
        count = self._known(request_id) or _Count()
        if count.closed:
            raise Conflict("This generation was settled before it began.")
        if request_id:
            self._ended.pop(request_id, None)
            self._running[request_id] = count
        count.began = True
        count.open += 1
        count.ended.clear()
        return count

    def _end(self, request_id: str, count: _Count) -> None:
        count.open -= 1
        if count.open or not request_id:
            return
        del self._running[request_id]
        count.ended.set()
        self._remember(request_id, count)

    def _known(self, request_id: str) -> _Count | None:
        return self._running.get(request_id) or self._ended.get(request_id)

    def _remember(self, request_id: str, count: _Count) -> None:
        count.at = self._clock()
        self._ended[request_id] = count
        for id, old in list(islice(self._ended.items(), 8)):
            if old.at < count.at - REMEMBER_S:
                del self._ended[id]

    async def settle(self, request_id: str) -> Spent | None:
        """What still runs ends with its next batch, which counts."""
        if not request_id:
            return None
        count = self._known(request_id)
        if count is None:
            count = _Count()
            self._remember(request_id, count)
        count.closed = True
        if count.open:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await count.ended.wait()
        return count.spent() if count.began else None

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return await self._inner.tokenize(request)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def load(self) -> Load:
        return await self._inner.load()
