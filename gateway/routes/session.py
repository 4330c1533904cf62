"""Signing in to the web app with a password, an API key, or the link that the start-up prints; and signing out."""

import hmac
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from pydantic import Field
from starlette.responses import RedirectResponse, Response

from gateway.auth import LOCAL, require_scope
from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import cookie_session, require_own_page
from gateway.routes.cookie import enter, leave
from services.common.account_messages import AuditEntry, NewSession, PasswordSignIn, Principal, Ref
from services.common.errors import InvalidRequest, NotFound, NotSignedIn

Email = Annotated[str, Field(max_length=1000)]
Password = Annotated[str, Field(max_length=1000)]


class Credentials(Wire):
    email: Email | None = None
    password: Password | None = None
    key: str | None = None


def router(ports: GatewayPorts) -> APIRouter:
    routes = APIRouter(tags=["session"])
    Caller = Annotated[Principal, Depends(cookie_session(ports.auth))]  # noqa: N806 (a type)

    @routes.get("/api/signin")
    async def ways() -> dict[str, Any]:
        oidc = {"name": ports.oidc.name} if ports.oidc else None
        return {"empty": await ports.sign_in.empty(), "password": True, "key": True, "oidc": oidc}

    @routes.get("/api/session")
    async def session(who: Caller) -> dict[str, Any]:
        return await described(ports, who)

    @routes.post("/api/session", status_code=204)
    async def sign_in(body: Credentials, request: Request) -> Response:
        require_own_page(request)
        opened = await _session(ports, body, request.client.host if request.client else "")
        return await enter(ports, request, opened, Response(status_code=204))

    @routes.delete("/api/session", status_code=204)
    async def sign_out(request: Request) -> Response:
        require_own_page(request)
        return await leave(ports, request, Response(status_code=204))

    @routes.delete("/api/session/all", status_code=204)
    async def sign_out_everywhere(who: Caller, request: Request) -> Response:
        await ports.sessions.close_all(Ref(who.tenant, who.user_id, who.actor))
        return await leave(ports, request, Response(status_code=204))

    @routes.get("/signin", response_class=RedirectResponse)
    async def sign_in_by_link(token: str, request: Request) -> Response:
        if not hmac.compare_digest(token.encode(), ports.signin_token.encode()):
            raise NotSignedIn("This sign-in link is no longer good. The server prints a new one at each start.")
        await ports.audit.append(AuditEntry(tenant=LOCAL.tenant, actor=LOCAL.actor, action="signin.link"))
        response = RedirectResponse("/", 303, {"referrer-policy": "no-referrer"})
        return await enter(ports, request, NewSession(tenant=LOCAL.tenant), response)

    return routes


async def _session(ports: GatewayPorts, given: Credentials, address: str) -> NewSession:
    if given.key is not None and given.email is None and given.password is None:
        who = await ports.keys.authenticate(given.key.strip())
        require_scope(who, "conversations")
        return NewSession(tenant=who.tenant, user_id=who.user_id, key_id=who.key_id)
    if given.key is None and given.email is not None and given.password is not None:
        attempt = PasswordSignIn(email=given.email, password=given.password, address=address)
        return await ports.sign_in.with_password(attempt)
    raise InvalidRequest("Give email and password, or key.", param="email" if given.key is None else "key")


async def described(ports: GatewayPorts, who: Principal) -> dict[str, Any]:
    organisation = await ports.organisations.organisation(who.tenant)
    shown = ("id", "name", "tier", "region", "operator")
    return {
        "authenticated": True,
        "user": await _user(ports, who),
        "role": who.role,
        "organisation": {name: getattr(organisation, name) for name in shown},
        "scopes": who.scopes,
    }


async def _user(ports: GatewayPorts, who: Principal) -> dict[str, Any] | None:
    """None for the owner of the machine and for a service account."""
    if not who.user_id:
        return None
    try:
        member = msgspec.structs.asdict(await ports.members.member(Ref(who.tenant, who.user_id)))
    except NotFound:
        return None
    return {name: member[name] for name in ("id", "email", "name", "has_password")}
