"""One generation: find who runs the model, and read its stream. Several of one request run side by side."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from services.common.errors import EngineFailed
from services.common.messages import Account, Event, GenerationRequest, RouteRequest, Usage
from services.common.ports import Engine, EventStream, Router
from services.common.streams import merge


class Placed(Struct, frozen=True):
    """A generation, and who runs it."""

    request: GenerationRequest
    engine: Engine
    worker: str
    model_class: str
    context_window: int = 0
    """0: not known."""


class Generation:
    """engines: by worker name, as the router gives them."""

    def __init__(self, router: Router, engines: Mapping[str, Engine]):
        self._router = router
        self._engines = engines

    async def place(self, request: GenerationRequest) -> Placed:
        """Errors: `ModelNotFound`; `EngineFailed` where no worker runs the model."""
        route = await self._router.route(RouteRequest(request.model, request.tenant))
        engine = self._engines.get(route.worker)
        if engine is None:
            raise EngineFailed(f"No worker runs {request.model} now.", retry_after=5)
        return Placed(request, engine, route.worker, route.model_class, route.context_window)

    async def engine(self, model: str, tenant: str) -> Engine:
        return (await self.place(GenerationRequest(model=model, tenant=tenant))).engine


async def side_by_side(streams: Sequence[EventStream], n: int) -> AsyncGenerator[Sequence[Event], None]:
    """Choice i of stream k becomes choice k·n + i; one usage, the sum, at the end."""
    prompt = completion = cached = 0
    async with aclosing(merge(streams)) as merged:
        async for number, batch in merged:
            out: list[Event] = []
            for event in batch:
                if isinstance(event, Usage):
                    prompt += event.prompt_tokens
                    completion += event.completion_tokens
                    cached += event.cached_tokens
                elif not isinstance(event, Account):
                    out.append(replace(event, index=number * n + event.index))
            if out:
                yield out
    yield [Usage(prompt, completion, cached)]
