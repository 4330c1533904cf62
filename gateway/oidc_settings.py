"""Settings of signing in through an OIDC provider."""

from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from services.common.account_messages import Role
from services.common.settings import Settings


class OidcSettings(Settings):
    model_config = SettingsConfigDict(env_prefix="ANTIPHON_OIDC_")

    issuer: str | None = Field(None, description="The provider's issuer URL; without it there is no OIDC sign-in.")
    client_id: str = Field("", description="What the provider knows this installation as.")
    client_secret: SecretStr | None = Field(None, description="None for a public client, which has PKCE alone.")
    name: str = Field("single sign-on", max_length=100, description="What the sign-in page calls the provider.")
    scopes: str = Field("openid email profile", description="What the provider is asked for, separated by spaces.")
    groups_claim: str = Field("groups", description="The claim that lists groups; dots reach into objects.")
    group_roles: dict[str, Role] = Field({}, description="Which group gives which role; the highest counts.")
    default_role: Role | None = Field(None, description="Of people in none of these groups; unset: they are refused.")
    tenant: str = Field("local", description="The organisation that people who sign in so belong to.")
    redirect_url: str | None = Field(
        None, description="…/signin/oidc/callback as browsers reach it; unset: as each request says."
    )

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.issuer is None:
            return self
        if not is_safe_url(self.issuer):
            raise ValueError("ANTIPHON_OIDC_ISSUER must be an https URL (http on loopback only)")
        if not self.client_id:
            raise ValueError("ANTIPHON_OIDC_ISSUER needs ANTIPHON_OIDC_CLIENT_ID")
        if "openid" not in self.scopes.split():
            raise ValueError("ANTIPHON_OIDC_SCOPES must hold openid")
        return self


def is_safe_url(url: str) -> bool:
    """https, or a loopback address: nothing in between can read or change what is sent there."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.username is not None or parts.fragment or not host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
