"""Which models there are, and which worker runs each."""

from collections.abc import Mapping, Sequence

from services.common.errors import ModelNotFound
from services.common.messages import ModelCard, Route, RouteRequest


class StaticRouter:
    """workers: the worker of each model that generates. An embedding model has a card but no worker."""

    def __init__(self, cards: Sequence[ModelCard], workers: Mapping[str, str]):
        self._cards = tuple(cards)
        windows = {card.id: card.context_window for card in cards}
        self._routes = {
            model: Route(model, worker, context_window=windows.get(model, 0)) for model, worker in workers.items()
        }

    async def models(self) -> Sequence[ModelCard]:
        return self._cards

    async def route(self, request: RouteRequest) -> Route:
        route = self._routes.get(request.model)
        if route is None:
            raise ModelNotFound.named(request.model)
        return route
