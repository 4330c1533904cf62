"""Who may call a FastAPI route: a dependency each for the API and for the web app, and what may be asked of both.

Each leaves who it was in the scope, as `principal`, for the access log.
"""

from collections.abc import Awaitable, Callable

from fastapi import Request

from gateway.auth import Authenticator, require_role, require_same_origin, require_scope
from services.common.account_messages import Principal, Role, Scope

Access = Callable[[Request], Awaitable[Principal]]


def api_key(auth: Authenticator, scope: Scope | None = None) -> Access:
    """Cookies count for nothing here."""

    async def check(request: Request) -> Principal:
        who = await auth.by_key(request.headers.get("authorization", "").encode("latin-1"))
        request.scope["principal"] = who
        if scope:
            require_scope(who, scope)
        return who

    return check


def web_session(auth: Authenticator) -> Access:
    """The cookie, with the page's own Origin on writes; or a key with the scope `conversations`, for programs."""
    by_key = api_key(auth, "conversations")
    by_cookie = cookie_session(auth)

    async def check(request: Request) -> Principal:
        return await (by_key if "authorization" in request.headers else by_cookie)(request)

    return check


def cookie_session(auth: Authenticator) -> Access:
    """The cookie alone, with the page's own Origin on writes."""

    async def check(request: Request) -> Principal:
        if request.method not in ("GET", "HEAD"):
            require_own_page(request)
        who = await auth.by_cookie(request.headers.get("cookie", ""))
        request.scope["principal"] = who
        return who

    return check


def needs(access: Access, scope: Scope, role: Role = "member") -> Access:
    async def check(request: Request) -> Principal:
        who = await access(request)
        require_role(who, role)  # first: to be told of a scope helps nobody who may not have it
        require_scope(who, scope)
        return who

    return check


def require_own_page(request: Request) -> None:
    """Errors: `Forbidden` for a write that another site's page has sent."""
    headers = request.headers
    require_same_origin(headers.get("origin"), headers.get("host"), headers.get("sec-fetch-site"))
