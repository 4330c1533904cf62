"""Asking an OIDC provider: within seconds, within a megabyte, and never anybody whom it redirects to."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from gateway.oidc import OidcFailed
from gateway.oidc_settings import is_safe_url

TIMEOUT_S = 5.0
MAX_BYTES = 1 << 20
FRESH_S = 3600.0
_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}
"""A compressed answer could be larger than it looks."""

Document = dict[str, Any]
Clock = Callable[[], float]


async def ask(
    url: str, *, form: str | None = None, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> Document:
    """GET, or POST where there is a form; the JSON object that a 200 holds. Errors: `OidcFailed`."""
    status, body = await _exchange(url, form, {**_HEADERS, **(headers or {})}, timeout_s)
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise OidcFailed("provider", f"{url} answered {status} with no JSON object.")
    if status != 200:
        error = str(found.get("error", ""))[:100]
        raise OidcFailed("expired" if error == "invalid_grant" else "provider", f"{url} answered {status} {error!r}.")
    return found


async def _exchange(url: str, form: str | None, headers: dict[str, str], timeout_s: float) -> tuple[int, bytes]:
    try:
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(
                "GET" if form is None else "POST", url, data=form, headers=headers, allow_redirects=False
            ) as answer,
        ):
            body = bytearray()
            async for chunk in answer.content.iter_chunked(1 << 16):
                body += chunk
                if len(body) > MAX_BYTES:
                    raise OidcFailed("provider", f"{url} answered with more than {MAX_BYTES} bytes.")
            return answer.status, bytes(body)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
        raise OidcFailed("provider", f"{url} cannot be asked: {type(e).__name__}.") from e


class Metadata(msgspec.Struct, frozen=True):
    """The part of a discovery document that we use."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class Provider:
    """What the provider says of itself and of its keys, asked again after an hour, and the keys also on demand."""

    def __init__(self, issuer: str, clock: Clock = time.monotonic, timeout_s: float = TIMEOUT_S):
        self._issuer = issuer.rstrip("/")
        self._clock = clock
        self._timeout_s = timeout_s
        self._metadata: tuple[float, Metadata] | None = None
        self._keys: tuple[float, Document] | None = None

    async def metadata(self) -> Metadata:
        now = self._clock()
        if self._metadata is None or now - self._metadata[0] > FRESH_S:
            url = f"{self._issuer}/.well-known/openid-configuration"
            self._metadata = now, self._checked(await ask(url, timeout_s=self._timeout_s))
        return self._metadata[1]

    async def keys(self, *, anew: bool = False) -> Document:
        """A JSON Web Key Set."""
        now = self._clock()
        if anew or self._keys is None or now - self._keys[0] > FRESH_S:
            self._keys = now, await ask((await self.metadata()).jwks_uri, timeout_s=self._timeout_s)
        return self._keys[1]

    async def post(self, url: str, form: str, headers: Mapping[str, str]) -> Document:
        return await ask(url, form=form, headers=headers, timeout_s=self._timeout_s)

    async def get(self, url: str, headers: Mapping[str, str]) -> Document:
        return await ask(url, headers=headers, timeout_s=self._timeout_s)

    def _checked(self, document: Document) -> Metadata:
        try:
            found = msgspec.convert(document, Metadata)
        except msgspec.ValidationError as e:
            raise OidcFailed("provider", f"The discovery document cannot be used: {e}.") from None
        if found.issuer.rstrip("/") != self._issuer:
            raise OidcFailed("provider", f"The discovery document is of another issuer, {found.issuer[:200]!r}.")
        for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri, found.userinfo_endpoint):
            if url is not None and not is_safe_url(url):
                raise OidcFailed("provider", f"The discovery document names {url[:200]!r}, which is not https.")
        return found
