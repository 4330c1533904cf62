"""Signing in to the web app: with an API key, or with the link that the start-up prints."""

import hmac

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from gateway.auth import COOKIE, LOCAL, require_same_origin, session_token
from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from services.common.errors import InvalidApiKey

MAX_AGE = 30 * 24 * 3600


class SignIn(Wire):
    key: str


def router(ports: GatewayPorts) -> APIRouter:
    routes = APIRouter(tags=["session"])

    async def open_session(tenant: str, response: Response, secure: bool) -> Response:
        token = await ports.sessions.open(tenant)
        response.set_cookie(COOKIE, token, max_age=MAX_AGE, httponly=True, samesite="strict", secure=secure)
        return response

    @routes.get("/api/session")
    async def who(request: Request) -> dict[str, bool]:
        await ports.auth.by_cookie(request.headers.get("cookie", ""))
        return {"authenticated": True}

    @routes.post("/api/session", status_code=204)
    async def sign_in(body: SignIn, request: Request) -> Response:
        require_same_origin(request.headers.get("origin"), request.headers.get("host"))
        principal = await ports.auth.by_key(b"Bearer " + body.key.strip().encode("utf-8", "replace"))
        return await open_session(principal.tenant, Response(status_code=204), request.url.scheme == "https")

    @routes.delete("/api/session", status_code=204)
    async def sign_out(request: Request) -> Response:
        require_same_origin(request.headers.get("origin"), request.headers.get("host"))
        if token := session_token(request.headers.get("cookie", "")):
            await ports.sessions.close(token)
        response = Response(status_code=204)
        response.delete_cookie(COOKIE)
        return response

    @routes.get("/signin", response_class=RedirectResponse)
    async def sign_in_by_link(token: str, request: Request) -> Response:
        if not hmac.compare_digest(token.encode(), ports.signin_token.encode()):
            raise InvalidApiKey("This sign-in link is no longer good. The server prints a new one at each start.")
        response = RedirectResponse("/", 303, {"referrer-policy": "no-referrer", "cache-control": "no-store"})
        return await open_session(LOCAL.tenant, response, request.url.scheme == "https")

    return routes
