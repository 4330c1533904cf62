"""Secrets that are shown once: 256 random bits, of which only a digest is kept."""

import hashlib
import hmac
import re
import secrets

from services.common.errors import InvalidApiKey, NotSignedIn

MIN_PEPPER_BYTES = 16


def bad_key() -> InvalidApiKey:
    """One answer, whatever is wrong with a key: it tells nothing about those that there are."""
    return InvalidApiKey("Incorrect API key provided.")


def bad_session() -> NotSignedIn:
    return NotSignedIn("The session is unknown or has ended. Sign in again.")


class SecretKind:
    """One kind of secret, told by its prefix, which also keeps the digests of two kinds apart."""

    def __init__(self, prefix: str, pepper: bytes):
        if len(pepper) < MIN_PEPPER_BYTES:
            raise ValueError(f"A pepper has at least {MIN_PEPPER_BYTES} bytes.")
        self._prefix = prefix
        self._pepper = pepper
        self._shape = re.compile(re.escape(prefix) + "[A-Za-z0-9_-]{43}")
        self._decoy = prefix + "." * 43

    def new(self) -> str:
        return self._prefix + secrets.token_urlsafe(32)

    def digest(self, secret: str) -> str | None:
        """HMAC-SHA256 in hex; None if the text cannot be such a secret.

        It is safe to look a digest up by equality: how far two of them agree says nothing about the secret.
        """
        return self._hmac(secret) if self._shape.fullmatch(secret) else None

    def digest_of_any(self, secret: str) -> str:
        """As `digest`, but what cannot be such a secret gets a digest that none has, by the same work."""
        return self._hmac(secret if self._shape.fullmatch(secret) else self._decoy)

    def _hmac(self, text: str) -> str:
        return hmac.new(self._pepper, text.encode(), hashlib.sha256).hexdigest()
