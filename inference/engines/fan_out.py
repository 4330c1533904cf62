"""n > 1 for engines that make one choice a request: a wrapper that runs n of them side by side."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from services.common.messages import (
    Account,
    Capabilities,
    Event,
    GenerationRequest,
    Load,
    Spent,
    TokenizeRequest,
    Tokens,
    Usage,
)
from services.common.ports import Engine, EventStream
from services.common.streams import merge


class FanOut:
    def __init__(self, inner: Engine):
        self._inner = inner

    def generate(self, request: GenerationRequest) -> EventStream:
        return self._inner.generate(request) if request.n == 1 else self._many(request)

    async def _many(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        choices = [self._inner.generate(_choice(request, index)) for index in range(request.n)]
        usage = Usage()
        async with aclosing(merge(choices)) as merged:
            async for index, batch in merged:
                out: list[Event] = []
                for event in batch:
                    if isinstance(event, Usage):
                        usage = _add(usage, event)
                    elif isinstance(event, Account):
                        out += [event] if index == 0 else []  # the choices share one prompt
                    else:
                        out.append(replace(event, index=index))
                if out:
                    yield out
        yield [usage]

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return await self._inner.tokenize(request)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def load(self) -> Load:
        return await self._inner.load()

    async def settle(self, request_id: str) -> Spent | None:
        return await self._inner.settle(request_id)


def _choice(request: GenerationRequest, index: int) -> GenerationRequest:
    seed = request.sampling.seed
    # The same seed would make n equal choices.
    return replace(request, n=1, sampling=replace(request.sampling, seed=None if seed is None else seed + index))


def _add(total: Usage, one: Usage) -> Usage:
    """The choices share one prompt, so it counts once; it is cached only as far as the first choice found it so."""
    first = one if total == Usage() else total
    return replace(first, completion_tokens=total.completion_tokens + one.completion_tokens)
