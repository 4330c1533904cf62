"""Signing in through an OIDC provider: what the routes and `gateway.oidc_client` say to each other.

Kept apart from it, because its cryptography takes long to import and most installations have no provider.
"""

from typing import Literal, Protocol

from msgspec import Struct

from services.common.account_messages import ExternalIdentity

Reason = Literal["denied", "expired", "provider", "not_allowed", "failed"]
"""What the page shows. denied: by the person or the provider. expired: begun elsewhere, twice or too long ago.
provider: away, slow, or it says what cannot be believed. not_allowed: nobody here. failed: a fault of ours."""


class OidcFailed(Exception):
    """The message is for the log; the page shows the reason."""

    def __init__(self, reason: Reason, message: str):
        super().__init__(message)
        self.reason: Reason = reason


class Begun(Struct, frozen=True):
    url: str
    """Where the browser goes."""
    kept: str
    """What it keeps meanwhile, in a cookie that no script reads."""

    def __repr__(self) -> str:
        return "Begun(…)"


class Callback(Struct, frozen=True, kw_only=True):
    """The query that the browser came back with."""

    state: str
    code: str = ""
    error: str = ""
    issuer: str | None = None

    def __repr__(self) -> str:
        return f"Callback(error={self.error!r})"


class OidcProvider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def redirect_url(self) -> str | None:
        """Where the provider sends browsers back to; None: to the address that they came from."""
        ...

    async def start(self, redirect_uri: str) -> Begun:
        """Errors: `OidcFailed`."""
        ...

    async def finish(self, redirect_uri: str, came: Callback, kept: str) -> ExternalIdentity:
        """Errors: `OidcFailed`."""
        ...
