"""One's own organisation."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import Access, needs
from gateway.routes.shapes import Money, Name, shape
from services.common.account_messages import OrganisationPatch, Principal

NO_LIMIT = -1


class PatchOrganisation(Wire):
    name: Name | None = None
    monthly_budget: Money | None = None

    def budget(self) -> int | None:
        """As the port wants it: null takes the limit away, and what is not given stays."""
        if "monthly_budget" not in self.model_fields_set:
            return None
        return NO_LIMIT if self.monthly_budget is None else self.monthly_budget


def router(ports: GatewayPorts, prefix: str, access: Access) -> APIRouter:
    routes = APIRouter(prefix=f"{prefix}/organization", tags=["organization"])
    Caller = Annotated[Principal, Depends(access)]  # noqa: N806 (a type)
    Owner = Annotated[Principal, Depends(needs(access, "admin", "owner"))]  # noqa: N806

    @routes.get("")
    async def get(who: Caller) -> dict[str, Any]:
        return shape(await ports.organisations.organisation(who.tenant))

    @routes.patch("")
    async def patch(body: PatchOrganisation, who: Owner) -> dict[str, Any]:
        changed = OrganisationPatch(id=who.tenant, name=body.name, monthly_budget=body.budget(), actor=who.actor)
        return shape(await ports.organisations.update_organisation(changed))

    return routes
