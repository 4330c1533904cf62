"""OpenID Connect's authorization code flow with PKCE (S256), state and nonce, for a confidential or public client."""

import hmac
import secrets
import time
from collections.abc import Iterable
from typing import Any

from authlib.common.security import generate_token  # type: ignore[import-untyped]
from authlib.oauth2.auth import ClientAuth  # type: ignore[import-untyped]
from authlib.oauth2.rfc6749.parameters import (  # type: ignore[import-untyped]
    prepare_grant_uri,
    prepare_token_request,
)
from authlib.oauth2.rfc7636 import create_s256_code_challenge  # type: ignore[import-untyped]
from authlib.oidc.core import CodeIDToken  # type: ignore[import-untyped]
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, Key, OctKey, OKPKey, RSAKey

from gateway.oidc import Begun, Callback, OidcFailed
from gateway.oidc_http import Clock, Document, Metadata, Provider
from gateway.oidc_settings import OidcSettings
from services.common.account_messages import ExternalIdentity

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by public keys alone: not "none", and no HMAC, for which a public key could pass as the secret."""
LEEWAY_S = 60
"""That two clocks may differ by."""
MAX_GROUPS = 1000


class OidcClient:
    """The port `OidcProvider`, spoken to one provider."""

    def __init__(self, settings: OidcSettings, provider: Provider | None = None, clock: Clock = time.time):
        assert settings.issuer, "without an issuer there is no provider"
        self._settings = settings
        self._provider = provider or Provider(settings.issuer)
        self._clock = clock

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def redirect_url(self) -> str | None:
        return self._settings.redirect_url

    async def start(self, redirect_uri: str) -> Begun:
        metadata = await self._provider.metadata()
        state, nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32), generate_token(64)
        url = prepare_grant_uri(
            metadata.authorization_endpoint, self._settings.client_id, "code", redirect_uri=redirect_uri,
            scope=self._settings.scopes, state=state, nonce=nonce, code_challenge_method="S256",
            code_challenge=create_s256_code_challenge(verifier),
        )  # fmt: skip
        return Begun(url, f"{state}.{nonce}.{verifier}")

    async def finish(self, redirect_uri: str, came: Callback, kept: str) -> ExternalIdentity:
        state, _, rest = kept.partition(".")
        nonce, _, verifier = rest.partition(".")
        if not (verifier and hmac.compare_digest(state.encode(), came.state.encode())):
            raise OidcFailed("expired", "The state is not the one that this browser was given.")
        metadata = await self._provider.metadata()
        self._require_issuer(metadata, came)
        if came.error or not came.code:
            raise OidcFailed(
                "denied" if came.error == "access_denied" else "provider", f"It answered {came.error[:100]!r}."
            )
        tokens = await self._exchange(metadata, came.code, redirect_uri, verifier)
        claims = await self._verified(metadata, tokens, nonce)
        return self._identity(metadata, await self._completed(metadata, tokens, claims))

    def _require_issuer(self, metadata: Metadata, came: Callback) -> None:
        """RFC 9207: an answer that another provider has given must not be taken to this one."""
        needed = metadata.authorization_response_iss_parameter_supported
        if (came.issuer is not None or needed) and came.issuer != metadata.issuer:
            raise OidcFailed("provider", "The answer comes from another issuer.")

    async def _exchange(self, metadata: Metadata, code: str, redirect_uri: str, verifier: str) -> Document:
        body = prepare_token_request(
            "authorization_code", code=code, redirect_uri=redirect_uri, code_verifier=verifier
        )  # fmt: skip
        secret = self._settings.client_secret
        methods = metadata.token_endpoint_auth_methods_supported
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        client = ClientAuth(
            self._settings.client_id, secret.get_secret_value() if secret else "", method if secret else "none"
        )
        headers = {"content-type": "application/x-www-form-urlencoded"}
        url, headers, body = client.prepare("POST", metadata.token_endpoint, headers, body)
        return await self._provider.post(url, body, headers)

    async def _verified(self, metadata: Metadata, tokens: Document, nonce: str) -> Document:
        """The claims of the id_token: signed by the provider, for us, now, in answer to this very request."""
        try:
            token = await self._decoded(tokens.get("id_token"))
            claims = CodeIDToken(
                token.claims,
                token.header,
                options={
                    "iss": {"essential": True, "value": metadata.issuer},
                    "aud": {"essential": True, "value": self._settings.client_id},
                    "nonce": {"essential": True, "value": nonce},
                },
                params={
                    "nonce": nonce,
                    "client_id": self._settings.client_id,
                    "access_token": tokens.get("access_token"),
                },
            )
            claims.validate(now=int(self._clock()), leeway=LEEWAY_S)
        except (JoseError, ValueError, TypeError) as e:
            raise OidcFailed("provider", f"The id_token cannot be believed: {e}") from None
        if not (isinstance(claims["sub"], str) and 0 < len(claims["sub"]) <= 255):
            raise OidcFailed("provider", "The id_token names nobody.")
        return dict(claims)

    async def _decoded(self, id_token: Any) -> jwt.Token:
        """Keys rotate: where none of those that are known fits, they are asked for once more."""
        if not isinstance(id_token, str):
            raise ValueError("there is none")
        kid = jws.extract_compact(id_token.encode()).headers().get("kid")
        fitting = _fitting(await self._provider.keys(), kid) or _fitting(await self._provider.keys(anew=True), kid)
        for key in fitting[:-1]:  # several only where the token does not say which
            try:
                return jwt.decode(id_token, key, algorithms=ALGORITHMS)
            except JoseError:
                continue
        if not fitting:
            raise ValueError("no key of the provider fits")
        return jwt.decode(id_token, fitting[-1], algorithms=ALGORITHMS)

    async def _completed(self, metadata: Metadata, tokens: Document, claims: Document) -> Document:
        """With what userinfo adds, where the id_token lacks something that we need."""
        missing = "email" not in claims or (
            self._settings.group_roles and _claim(claims, self._settings.groups_claim) is None
        )
        access_token = tokens.get("access_token")
        if not (missing and metadata.userinfo_endpoint and isinstance(access_token, str)):
            return claims
        more = await self._provider.get(metadata.userinfo_endpoint, {"authorization": f"Bearer {access_token}"})
        if more.get("sub") != claims["sub"]:
            raise OidcFailed("provider", "userinfo is about somebody else.")
        return more | claims

    def _identity(self, metadata: Metadata, claims: Document) -> ExternalIdentity:
        email = claims.get("email")
        if not isinstance(email, str) or not email:
            raise OidcFailed("provider", "The provider gives no e-mail address; is the scope `email` asked for?")
        name = claims.get("name") or claims.get("preferred_username") or ""
        return ExternalIdentity(
            issuer=metadata.issuer,
            subject=claims["sub"],
            email=email,
            email_verified=claims.get("email_verified") in (True, "true"),  # some providers write it as a text
            name=name if isinstance(name, str) else "",
            groups=_texts(_claim(claims, self._settings.groups_claim)),
        )


def _fitting(document: Document, kid: Any) -> list[Key]:
    keys = [key for key in _signing_keys(document.get("keys")) if kid is None or key.kid == kid]
    return keys[:20]


def _signing_keys(documents: Any) -> Iterable[Key]:
    """A set may also hold keys for other uses and of kinds that we do not know."""
    for document in documents if isinstance(documents, list) else ():
        try:
            key = JWKRegistry.import_key(document)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, RSAKey | ECKey | OKPKey) and not isinstance(key, OctKey) and key.get("use") != "enc":
            yield key


def _claim(claims: Document, path: str) -> Any:
    """A claim of this very name, or what the dots of the name reach, as in realm_access.roles."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _texts(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str))[:MAX_GROUPS]
