"""To the OIDC provider, and back. What goes wrong is for the page to show: `/?signin_error=…`."""

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from gateway.oidc import Callback, OidcFailed, OidcProvider, Reason
from gateway.ports import GatewayPorts
from gateway.routes.cookie import enter
from services.common.account_messages import NewSession
from services.common.errors import AntiphonError, Forbidden, NotFound
from services.common.telemetry import log

COOKIE = "antiphon_oidc"
PATH = "/signin/oidc"
MAX_AGE = 600
_HEADERS = {"referrer-policy": "no-referrer", "cache-control": "no-store"}


def router(ports: GatewayPorts) -> APIRouter:
    routes = APIRouter(prefix=PATH, tags=["session"])

    @routes.get("", response_class=RedirectResponse)
    async def start(request: Request) -> Response:
        provider = _provider(ports)
        try:
            begun = await provider.start(_redirect_uri(provider, request))
        except OidcFailed as e:
            return _failed(e.reason, e)
        response = RedirectResponse(begun.url, 303, _HEADERS)
        response.set_cookie(
            COOKIE, begun.kept, max_age=MAX_AGE, path=PATH, httponly=True,
            samesite="lax",  # the provider's page sends the browser back, and strict cookies would stay behind
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return response

    @routes.get("/callback", response_class=RedirectResponse)
    async def callback(
        request: Request, state: str = "", code: str = "", error: str = "", iss: str | None = None
    ) -> Response:
        provider = _provider(ports)
        came = Callback(state=state, code=code, error=error, issuer=iss)
        try:
            session = await _session(ports, provider, came, request)
            response = await enter(ports, request, session, RedirectResponse("/", 303, _HEADERS))
        except OidcFailed as e:
            response = _failed(e.reason, e)
        except Forbidden as e:
            response = _failed("not_allowed", e)
        except AntiphonError as e:
            response = _failed("failed", e)
        response.delete_cookie(COOKIE, path=PATH)
        return response

    return routes


async def _session(ports: GatewayPorts, provider: OidcProvider, came: Callback, request: Request) -> NewSession:
    kept = request.cookies.get(COOKIE, "")
    identity = await provider.finish(_redirect_uri(provider, request), came, kept)
    return await ports.sign_in.with_identity(identity)


def _provider(ports: GatewayPorts) -> OidcProvider:
    if ports.oidc is None:
        raise NotFound("This server has no OIDC provider.")
    return ports.oidc


def _redirect_uri(provider: OidcProvider, request: Request) -> str:
    return provider.redirect_url or f"{request.url.scheme}://{request.url.netloc}{PATH}/callback"


def _failed(reason: Reason, error: Exception) -> Response:
    log.warning("oidc_sign_in_failed", reason=reason, error=str(error)[:500])
    return RedirectResponse(f"/?signin_error={reason}", 303, _HEADERS)
