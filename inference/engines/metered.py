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
        self.closed = False
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
        self._counts: dict[str, _Count] = {}

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        count = self._counts.setdefault(request.request_id, _Count()) if request.request_id else _Count()
        if count.closed:
            raise Conflict("This generation was settled before it began.")
        count.open += 1
        own = 0
        try:
            async with aclosing(self._inner.generate(request)) as events:
                async for batch in events:
                    if count.closed:
                        return
                    own = count.take(len(request.tools), own, batch)
                    yield batch
        finally:
            count.open -= 1
            self._end(request.request_id, count)

    def _end(self, request_id: str, count: _Count) -> None:
        if count.open or not request_id:
            return
        count.ended.set()
        self._remember(request_id, count)

    def _remember(self, request_id: str, count: _Count) -> None:
        """The counts in the order of their ends: the oldest are forgotten first."""
        count.at = self._clock()
        self._counts.pop(request_id, None)
        self._counts[request_id] = count
        for id, old in list(islice(self._counts.items(), 8)):
            if not old.open and old.at < count.at - REMEMBER_S:
                del self._counts[id]

    async def settle(self, request_id: str) -> Spent | None:
        count = self._counts.get(request_id)
        if count is None:
            count = _Count()
            count.closed = True
            self._remember(request_id, count)
            return None
        if count.open:
            count.ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await count.ended.wait()
        count.closed = True
        return count.spent()

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return await self._inner.tokenize(request)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def load(self) -> Load:
        return await self._inner.load()
