"""n > 1 for engines that make one choice a request: a wrapper that runs n of them side by side."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from services.common.messages import Capabilities, Event, GenerationRequest, Load, TokenizeRequest, Tokens, Usage
from services.common.ports import Engine


class FanOut:
    def __init__(self, inner: Engine):
        self._inner = inner

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        stream = self._inner.generate(request) if request.n == 1 else self._many(request)
        async with aclosing(stream) as events:
            async for batch in events:
                yield batch

    async def _many(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        queue: asyncio.Queue[Sequence[Event] | BaseException | None] = asyncio.Queue(maxsize=64)
        tasks = [asyncio.create_task(self._one(request, index, queue)) for index in range(request.n)]
        usage, left = Usage(), request.n
        try:
            while left:
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    left -= 1
                    continue
                for event in item:
                    if isinstance(event, Usage):
                        usage = _add(usage, event)
                yield [event for event in item if not isinstance(event, Usage)]
            yield [usage]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, request: GenerationRequest, index: int, queue: "asyncio.Queue[Any]") -> None:
        seed = request.sampling.seed
        sampling = replace(request.sampling, seed=None if seed is None else seed + index)
        try:
            async with aclosing(self._inner.generate(replace(request, n=1, sampling=sampling))) as events:
                async for batch in events:
                    await queue.put([e if isinstance(e, Usage) else replace(e, index=index) for e in batch])
            await queue.put(None)
        except Exception as e:
            await queue.put(e)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return await self._inner.tokenize(request)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def load(self) -> Load:
        return await self._inner.load()


def _add(total: Usage, one: Usage) -> Usage:
    """The choices share one prompt, so it counts once; it is cached only as far as the first choice found it so."""
    if not total.prompt_tokens:
        return one
    return replace(total, completion_tokens=total.completion_tokens + one.completion_tokens)
