"""One generation: find who runs the model, and read its stream."""

from collections.abc import Mapping

from services.common.errors import EngineFailed
from services.common.messages import GenerationRequest, RouteRequest
from services.common.ports import Engine, EventStream, Router


class Generation:
    """engines: by worker name, as the router gives them."""

    def __init__(self, router: Router, engines: Mapping[str, Engine]):
        self._router = router
        self._engines = engines

    async def stream(self, request: GenerationRequest) -> EventStream:
        """Errors before the first token surface on the first step of the stream, but for `ModelNotFound`: at once."""
        return (await self.engine(request.model, request.tenant)).generate(request)

    async def engine(self, model: str, tenant: str) -> Engine:
        route = await self._router.route(RouteRequest(model, tenant))
        engine = self._engines.get(route.worker)
        if engine is None:
            raise EngineFailed(f"No worker runs {model} now.", retry_after=5)
        return engine
