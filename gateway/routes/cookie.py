"""The web app's cookie: the session that it names is opened, replaced and taken away here alone."""

from fastapi import Request
from starlette.responses import Response

from gateway.auth import COOKIE, session_token
from gateway.ports import GatewayPorts
from services.common.account_messages import NewSession

MAX_AGE = 30 * 24 * 3600


async def enter(ports: GatewayPorts, request: Request, session: NewSession, response: Response) -> Response:
    """Signs the browser in. Who was signed in there no longer is: a token from before is worth nothing afterwards."""
    token = await ports.sessions.open(session)
    await _close(ports, request)
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, token, max_age=MAX_AGE, httponly=True, samesite="strict", secure=secure)
    response.headers["cache-control"] = "no-store"
    return response


async def leave(ports: GatewayPorts, request: Request, response: Response) -> Response:
    await _close(ports, request)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response


async def _close(ports: GatewayPorts, request: Request) -> None:
    if token := session_token(request.headers.get("cookie", "")):
        await ports.sessions.close(token)
