"""Making an account: by an invite, or as the first user of an empty installation."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.auth import has_role, is_admin
from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import require_own_page
from gateway.routes.cookie import enter
from gateway.routes.session import Email, Password
from gateway.routes.shapes import Name
from services.common.account_messages import Principal, Registration
from services.common.errors import Forbidden, NotSignedIn


class SignUp(Wire):
    email: Email
    password: Password
    name: Name = ""
    invite: str | None = None


def router(ports: GatewayPorts) -> APIRouter:
    routes = APIRouter(tags=["session"])

    @routes.post("/api/signup", status_code=204)
    async def sign_up(body: SignUp, request: Request) -> Response:
        require_own_page(request)
        if body.invite:
            asked = Registration(email=body.email, password=body.password, name=body.name, invite=body.invite)
        else:
            owner = await _owner_of_the_machine(ports, request)
            asked = Registration(
                email=body.email, password=body.password, name=body.name, tenant=owner.tenant, space=owner.space
            )
        session = await ports.sign_in.register(asked)
        return await enter(ports, request, session, Response(status_code=204))

    @routes.get("/api/invites/{token}")
    async def invitation(token: str) -> dict[str, Any]:
        invite = await ports.invites.invite(token)
        shown: dict[str, Any] = {name: getattr(invite, name) for name in ("email", "role", "organisation")}
        return shown | {"expires": int(invite.expires)}

    return routes


async def _owner_of_the_machine(ports: GatewayPorts, request: Request) -> Principal:
    """Who may become the first user. A key that lacks rights must not gain them by making an account."""
    refusal = Forbidden("Ask for an invitation: accounts are made by invite links.")
    if not await ports.sign_in.empty():
        raise refusal
    refusal = Forbidden("The first account is made by the owner: open the sign-in link that the server printed.")
    try:
        who = await ports.auth.by_cookie(request.headers.get("cookie", ""))
    except NotSignedIn:
        raise refusal from None
    if who.user_id or not (has_role(who, "owner") and is_admin(who)):
        raise refusal
    return who
