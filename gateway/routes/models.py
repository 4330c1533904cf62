"""GET /v1/models and /v1/models/{id}."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from gateway.ports import GatewayPorts
from gateway.routes.access import api_key
from services.chat.permission import may_use
from services.common.account_messages import Principal
from services.common.errors import ModelNotFound
from services.common.messages import ModelCard


def router(ports: GatewayPorts) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["models"])
    Caller = Annotated[Principal, Depends(api_key(ports.auth, "model.read"))]  # noqa: N806 (a type)

    async def usable(who: Principal) -> list[ModelCard]:
        tier = ports.tiers.tier(who.tier)
        return [card for card in await ports.router.models() if may_use(card.id, tier, who)]

    @routes.get("")
    async def list_models(who: Caller) -> dict[str, Any]:
        return {"object": "list", "data": [_model(card) for card in await usable(who)]}

    @routes.get("/{model:path}")
    async def get_model(model: str, who: Caller) -> dict[str, Any]:
        for card in await usable(who):
            if card.id == model:
                return _model(card)
        raise ModelNotFound.named(model)

    return routes


def _model(card: ModelCard) -> dict[str, Any]:
    """max_model_len as vLLM says it: clients that know it can size their prompts."""
    model: dict[str, Any] = {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owned_by}
    return model | ({"max_model_len": card.context_window} if card.context_window else {})
