"""The people of an organisation, and those whom it invites. Nobody gives, or touches, a role above their own."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.responses import Response

from gateway.auth import require_role
from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import Access, needs
from gateway.routes.shapes import Id, Name, listed, ref, shape
from services.common.account_messages import MemberPatch, NewInvite, Principal, Role

DAY_S = 24 * 3600.0


class PatchMember(Wire):
    name: Name | None = None
    role: Role | None = None


class CreateInvite(Wire):
    email: Name = ""
    role: Role = "member"
    expires_in_days: Annotated[int, Field(ge=1, le=90)] = 7


def router(ports: GatewayPorts, prefix: str, access: Access) -> APIRouter:
    routes = APIRouter(prefix=f"{prefix}/organization", tags=["organization"])
    Admin = Annotated[Principal, Depends(needs(access, "admin", "admin"))]  # noqa: N806 (a type)

    @routes.get("/users")
    async def users(who: Admin) -> dict[str, Any]:
        return listed(await ports.members.members(who.tenant))

    @routes.get("/users/{user_id}")
    async def user(user_id: Id, who: Admin) -> dict[str, Any]:
        return shape(await ports.members.member(ref(who, user_id)))

    @routes.patch("/users/{user_id}")
    async def patch_user(user_id: Id, body: PatchMember, who: Admin) -> dict[str, Any]:
        require_role(who, (await ports.members.member(ref(who, user_id))).role)
        require_role(who, body.role or "member")
        patch = MemberPatch(tenant=who.tenant, id=user_id, name=body.name, role=body.role, actor=who.actor)
        return shape(await ports.members.update_member(patch))

    @routes.delete("/users/{user_id}", status_code=204)
    async def remove_user(user_id: Id, who: Admin) -> Response:
        named = ref(who, user_id)
        require_role(who, (await ports.members.member(named)).role)
        await ports.members.remove_member(named)
        return Response(status_code=204)

    @routes.get("/invites")
    async def invites(who: Admin) -> dict[str, Any]:
        return listed(await ports.invites.invites(who.tenant))

    @routes.post("/invites", status_code=201)
    async def invite(body: CreateInvite, who: Admin, response: Response) -> dict[str, Any]:
        response.headers["cache-control"] = "no-store"
        require_role(who, body.role)
        return await made_invite(
            ports,
            NewInvite(
                tenant=who.tenant, email=body.email, role=body.role, lifetime_s=body.expires_in_days * DAY_S,
                actor=who.actor,
            ),
        )  # fmt: skip

    @routes.delete("/invites/{invite_id}", status_code=204)
    async def remove_invite(invite_id: Id, who: Admin) -> Response:
        await ports.invites.remove_invite(ref(who, invite_id))
        return Response(status_code=204)

    return routes


async def made_invite(ports: GatewayPorts, asked: NewInvite) -> dict[str, Any]:
    """With its token and the path of its link: the only time that they are shown."""
    made = await ports.invites.create_invite(asked)
    return shape(made) | {"token": made.token, "path": f"/invite/{made.token}"}
