"""The static router: every model that generates has its worker, and nothing else is known."""

import pytest

from services.common.errors import ModelNotFound
from services.common.messages import ModelCard, Route, RouteRequest
from services.router.catalog import StaticRouter

CARDS = [ModelCard(id="a", created=1), ModelCard(id="b", created=2), ModelCard(id="e", created=3, kind="embedding")]


async def test_a_model_goes_to_its_worker_and_cards_keep_their_order() -> None:
    router = StaticRouter(CARDS, {"a": "w1", "b": "w2"})
    assert await router.route(RouteRequest("b", "anyone")) == Route("b", "w2")
    assert [c.id for c in await router.models()] == ["a", "b", "e"]


@pytest.mark.parametrize("model", ["", "A", "a ", "e", "nothing\x00", "x" * 300])
async def test_what_does_not_generate_here_is_not_found_by_its_name(model: str) -> None:
    with pytest.raises(ModelNotFound) as refusal:
        await StaticRouter(CARDS, {"a": "w1"}).route(RouteRequest(model))
    assert (refusal.value.status, refusal.value.param, refusal.value.wire_code) == (404, "model", "model_not_found")
    assert model in refusal.value.message
