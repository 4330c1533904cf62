"""Who may call a FastAPI route: a dependency each for the API and for the web app."""

from collections.abc import Awaitable, Callable

from fastapi import Request

from gateway.auth import Authenticator, require_same_origin
from services.common.messages import Principal

Access = Callable[[Request], Awaitable[Principal]]


def api_key(auth: Authenticator) -> Access:
    async def check(request: Request) -> Principal:
        return await auth.by_key(request.headers.get("authorization", "").encode("latin-1"))

    return check


def web_session(auth: Authenticator) -> Access:
    """The cookie, with the page's own Origin on writes; or a key, for programs."""
    by_key = api_key(auth)

    async def check(request: Request) -> Principal:
        if "authorization" in request.headers:
            return await by_key(request)
        if request.method not in ("GET", "HEAD"):
            require_same_origin(request.headers.get("origin"), request.headers.get("host"))
        return await auth.by_cookie(request.headers.get("cookie", ""))

    return check
