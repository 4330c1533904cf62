"""What the owners of the operator's organisation manage: all organisations, and a look at the tiers."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.auth import require_role, require_scope
from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import Access
from gateway.routes.members import made_invite
from gateway.routes.organisation import PatchOrganisation
from gateway.routes.shapes import Id, IdField, Name, listed, shape
from services.common.account_messages import NewInvite, NewOrganisation, OrganisationPatch, Principal
from services.common.errors import Conflict, Forbidden


class CreateOrganisation(Wire):
    name: Name
    tier: IdField = "free"
    region: IdField = ""


class PatchAnyOrganisation(PatchOrganisation):
    tier: IdField | None = None
    region: IdField | None = None
    suspended: bool | None = None


def router(ports: GatewayPorts, prefix: str, access: Access) -> APIRouter:
    routes = APIRouter(prefix=prefix, tags=["operator"])
    Operator = Annotated[Principal, Depends(_operator(ports, access))]  # noqa: N806 (a type)

    @routes.get("/organizations")
    async def organisations(_: Operator) -> dict[str, Any]:
        return listed(await ports.organisations.organisations())

    @routes.post("/organizations", status_code=201)
    async def create(body: CreateOrganisation, who: Operator, response: Response) -> dict[str, Any]:
        response.headers["cache-control"] = "no-store"
        asked = NewOrganisation(name=body.name, tier=body.tier, region=body.region, actor=who.actor)
        made = await ports.organisations.create_organisation(asked)
        first = NewInvite(tenant=made.id, role="owner", actor=who.actor)
        return shape(made) | {"invite": await made_invite(ports, first)}

    @routes.patch("/organizations/{organization_id}")
    async def patch(organization_id: Id, body: PatchAnyOrganisation, who: Operator) -> dict[str, Any]:
        if organization_id == who.tenant and body.suspended:
            raise Conflict("Your own organisation cannot be suspended: nobody could take it back.", param="suspended")
        changed = OrganisationPatch(
            id=organization_id, name=body.name, tier=body.tier, region=body.region, monthly_budget=body.budget(),
            suspended=body.suspended, actor=who.actor,
        )  # fmt: skip
        return shape(await ports.organisations.update_organisation(changed))

    @routes.get("/tiers")
    async def tiers(_: Operator) -> dict[str, Any]:
        found = [{"object": "tier", **msgspec.to_builtins(tier)} for tier in ports.tiers.all().values()]
        return {"object": "list", "data": found}

    return routes


def _operator(ports: GatewayPorts, access: Access) -> Access:
    """The organisation is asked for each time: whether it is the operator's may have changed since the key was made."""

    async def check(request: Request) -> Principal:
        who = await access(request)
        require_role(who, "owner")
        require_scope(who, "operator")
        if not (await ports.organisations.organisation(who.tenant)).operator:
            raise Forbidden("This is for the owners of the operator's organisation.")
        return who

    return check
