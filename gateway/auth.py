"""Who is asking. Never from a header that merely says so: from an API key, or from the web app's own cookie."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import cookie_parser

from services.common.account_messages import ROLES, USER_SCOPES, Principal, Role, Scope
from services.common.account_ports import Keys, Sessions
from services.common.errors import Forbidden, InvalidApiKey, Misdirected, MissingScope, NotSignedIn

COOKIE = "antiphon_session"
LOCAL = Principal(
    tenant="local", space="local", role="owner", scopes=(*USER_SCOPES, "admin", "operator"), tier="enterprise"
)
"""The owner of the machine: whoever asks a server without keys."""


class Authenticator:
    """open_to_all: no key is asked for. Only for a server that listens on loopback alone.

    region: of this gateway; "" serves all. hosts: of the other regions. Content of an organisation at home in another
    region neither comes in here nor is computed here: `Misdirected`.
    """

    def __init__(
        self, keys: Keys, sessions: Sessions, *, open_to_all: bool = False, region: str = "", hosts: Mapping[str, str] = {},
    ):  # fmt: skip
        self._keys = keys
        self._sessions = sessions
        self._region = region
        self._hosts = hosts
        self.open_to_all = open_to_all

    async def by_key(self, authorization: bytes) -> Principal:
        """For /v1: a bearer key, and nothing else. Errors: `InvalidApiKey`."""
        if self.open_to_all:
            return LOCAL
        scheme, _, secret = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not secret:
            raise InvalidApiKey("No API key was given. Send it as `Authorization: Bearer sk-…`.")
        return self._at_home(await self._keys.authenticate(secret.strip().decode("latin-1")))

    async def by_cookie(self, cookies: str) -> Principal:
        """For /api. Errors: `NotSignedIn`."""
        if self.open_to_all:
            return LOCAL
        token = session_token(cookies)
        if not token:
            raise NotSignedIn("You are not signed in.")
        return self._at_home(await self._sessions.resolve(token))

    def _at_home(self, who: Principal) -> Principal:
        if self._region and who.region and who.region != self._region:
            host = self._hosts.get(who.region)
            where = f": use {host}" if host else ""
            raise Misdirected(f"Your organisation is at home in the region {who.region}{where}.")
        return who

    async def by_either(self, authorization: bytes, cookies: str) -> Principal:
        """As the web app's routes take them: a key where one is sent, else the cookie."""
        return await (self.by_key(authorization) if authorization else self.by_cookie(cookies))


def session_token(cookies: str) -> str:
    """Found whatever the other cookies look like: every server on localhost, on any port, shares them with us."""
    return cookie_parser(cookies).get(COOKIE, "")


def has_role(principal: Principal, role: Role) -> bool:
    return ROLES.index(principal.role) >= ROLES.index(role)


def is_admin(principal: Principal) -> bool:
    """An admin's key without the scope is a member's."""
    return has_role(principal, "admin") and "admin" in principal.scopes


def require_role(principal: Principal, role: Role) -> None:
    """Errors: `Forbidden`."""
    if not has_role(principal, role):
        raise Forbidden(f"This needs the role {role}, and yours is {principal.role}.")


def require_scope(principal: Principal, scope: Scope) -> None:
    """Errors: `MissingScope`, whose message names the scope."""
    if scope not in principal.scopes:
        what = "this API key" if principal.key_id else "your session"
        raise MissingScope(f"This needs the scope `{scope}`, which {what} does not have.")


def require_same_origin(origin: str | None, host: str | None, site: str | None = None) -> None:
    """`Forbidden` for a write that another site's page has sent. Clients that are no browsers send neither header.

    site: Sec-Fetch-Site, which also comes where a browser leaves the Origin out, and tells http from https.
    """
    foreign = origin is not None and not (host and _netloc(origin) == host)
    if foreign or site in ("cross-site", "same-site"):
        raise Forbidden("This request came from another site's page.")


def require_loopback_host(host: str | None) -> None:
    """`Forbidden` for a name that only an attacker's DNS gives to loopback (DNS rebinding)."""
    if _hostname(host or "") not in ("localhost", "127.0.0.1", "::1"):
        raise Forbidden("A server without keys answers to loopback names only.")


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
