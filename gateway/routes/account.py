"""One's own account. Only a person changes it, in the web app: a key that leaked must not take its owner's account."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import cookie_session
from gateway.routes.cookie import enter
from gateway.routes.session import Password
from gateway.routes.shapes import Name, shape
from services.common.account_messages import MemberPatch, NewPassword, NewSession, Principal, Ref
from services.common.errors import Forbidden, InvalidRequest, NotSignedIn


class PatchAccount(Wire):
    name: Name


class ChangePassword(Wire):
    current: Password | None = None
    new: Password


def router(ports: GatewayPorts) -> APIRouter:
    routes = APIRouter(prefix="/api/account", tags=["session"])
    Caller = Annotated[Principal, Depends(cookie_session(ports.auth))]  # noqa: N806 (a type)

    @routes.patch("")
    async def patch(body: PatchAccount, who: Caller) -> dict[str, Any]:
        _require_person(who)
        patch = MemberPatch(tenant=who.tenant, id=who.user_id, name=body.name, actor=who.actor)
        return shape(await ports.members.update_member(patch))

    @routes.post("/password", status_code=204)
    async def change_password(body: ChangePassword, who: Caller, request: Request) -> Response:
        _require_person(who)
        member = await ports.members.member(Ref(who.tenant, who.user_id))
        if member.has_password and body.current is None:
            raise InvalidRequest("Give the current password, too.", param="current", code="missing_required_parameter")
        await _set(ports, who, body, had_one=member.has_password)
        session = NewSession(tenant=who.tenant, user_id=who.user_id)
        return await enter(ports, request, session, Response(status_code=204))

    return routes


async def _set(ports: GatewayPorts, who: Principal, given: ChangePassword, *, had_one: bool) -> None:
    current = given.current if had_one else None
    change = NewPassword(tenant=who.tenant, user_id=who.user_id, current=current, new=given.new, actor=who.actor)
    try:
        await ports.sign_in.set_password(change)
    except NotSignedIn:  # whose 401 would tell the page that its session is over
        raise InvalidRequest("The current password is not right.", param="current", code="wrong_password") from None


def _require_person(who: Principal) -> None:
    if not who.user_id or who.key_id:
        raise Forbidden("Sign in as a person to do this: not by a key, and not by the server's link.")
