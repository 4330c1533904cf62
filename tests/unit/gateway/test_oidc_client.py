"""The OIDC flow against a provider on loopback, honest or not. The browser's part is played by a plain HTTP client."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from pydantic import ValidationError

from gateway.oidc import Begun, Callback, OidcFailed
from gateway.oidc_client import OidcClient
from gateway.oidc_http import FRESH_S, Provider
from gateway.oidc_settings import OidcSettings, is_safe_url
from services.common.account_messages import ExternalIdentity
from tests.support.oidc_provider import OidcProvider, Person

BACK = "http://localhost/signin/oidc/callback"


@pytest.fixture(scope="module")
def served() -> Iterator[OidcProvider]:
    with OidcProvider() as made:
        yield made


@pytest.fixture
def provider(served: OidcProvider) -> OidcProvider:
    served.people = [Person()]
    served.faults = set()
    served.claims_in = "id_token"
    served.client_auth = ["client_secret_basic"]
    served.requests.clear()
    return served


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def client(provider: OidcProvider, clock: Clock | None = None, **more: Any) -> OidcClient:
    settings = OidcSettings(
        issuer=provider.issuer, client_id=provider.client_id, client_secret=provider.client_secret, **more
    )
    return OidcClient(settings, Provider(provider.issuer, clock or time.monotonic, timeout_s=2))


async def browsed(provider: OidcProvider, begun: Begun, decision: str = "allow", person: int = 0) -> Callback:
    """What the provider sends the browser back with, once somebody has filled in its page."""
    who = provider.people[person]
    form = {k: v[0] for k, v in parse_qs(urlsplit(begun.url).query).items()}
    form |= {"email": who.email, "password": who.password, "decision": decision}
    async with httpx.AsyncClient() as browser:
        assert (await browser.get(begun.url)).status_code == 200
        answer = await browser.post(f"{provider.issuer}/login", data=form)
    assert answer.status_code == 303, answer.text
    query = {k: v[0] for k, v in parse_qs(urlsplit(answer.headers["location"]).query).items()}
    return Callback(
        state=query["state"], code=query.get("code", ""), error=query.get("error", ""), issuer=query["iss"]
    )  # fmt: skip


async def signed_in(provider: OidcProvider, oidc: OidcClient | None = None) -> ExternalIdentity:
    oidc = oidc or client(provider)
    begun = await oidc.start(BACK)
    return await oidc.finish(BACK, await browsed(provider, begun), begun.kept)


async def test_a_person_comes_back_as_the_provider_vouches(provider: OidcProvider) -> None:
    provider.people[0].groups = ["staff", "admins"]
    assert await signed_in(provider) == ExternalIdentity(
        issuer=provider.issuer, subject="ada-1", email="ada@example.com", email_verified=True, name="Ada",
        groups=("staff", "admins"),
    )  # fmt: skip
    assert "/userinfo" not in provider.requests


async def test_userinfo_adds_what_the_token_lacks(provider: OidcProvider) -> None:
    provider.claims_in = "userinfo"
    provider.people[0].verified = False
    found = await signed_in(provider)
    assert (found.email, found.email_verified, found.name) == ("ada@example.com", False, "Ada")
    assert provider.requests.count("/userinfo") == 1


@pytest.mark.parametrize(
    ("claim", "claims", "groups"),
    [("groups", {"groups": "one"}, ("one",)), ("roles", {"roles": ["a", 1, None, "b"]}, ("a", "b")),
     ("realm_access.roles", {"realm_access": {"roles": ["r"]}}, ("r",)),
     ("https://a.b/groups", {"https://a.b/groups": ["g"]}, ("g",)),
     ("groups", {"groups": {"a": 1}}, ()), ("realm_access.roles", {"realm_access": []}, ())],
)  # fmt: skip
async def test_groups_are_found_under_the_claim_that_is_set(
    provider: OidcProvider, claim: str, claims: dict[str, Any], groups: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = provider.people[0].claims() | {"groups": []}
    monkeypatch.setattr(provider.people[0], "claims", lambda: base | claims)
    assert (await signed_in(provider, client(provider, groups_claim=claim))).groups == groups


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_the_client_names_itself_as_the_provider_wants_it(provider: OidcProvider, method: str) -> None:
    provider.client_auth = [method]
    assert (await signed_in(provider)).subject == "ada-1"


@pytest.mark.parametrize(
    ("fault", "why"),
    [("nonce", "nonce"), ("audience", "aud"), ("azp", "azp"), ("issuer", "iss"), ("expired", "expired"),
     ("early", "in the future"), ("unsigned", "algorithm"), ("hmac", "algorithm"), ("foreign_key", "signature"),
     ("no_id_token", "there is none"), ("no_email", "e-mail"), ("foreign_answer", "another issuer")],
)  # fmt: skip
async def test_what_cannot_be_believed_signs_nobody_in(provider: OidcProvider, fault: str, why: str) -> None:
    oidc = client(provider)
    provider.faults = {fault}
    with pytest.raises(OidcFailed, match=f"(?i){why}") as failed:
        await signed_in(provider, oidc)
    assert failed.value.reason == "provider"


async def test_userinfo_about_somebody_else_is_not_believed(provider: OidcProvider) -> None:
    provider.claims_in, provider.faults = "userinfo", {"other_userinfo"}
    with pytest.raises(OidcFailed, match="somebody else"):
        await signed_in(provider)


@pytest.mark.parametrize("fault", ["down", "slow", "moved", "huge", "nonsense", "http_endpoints", "foreign_metadata"])
async def test_a_provider_that_cannot_be_used_is_told_at_the_start(provider: OidcProvider, fault: str) -> None:
    provider.faults = {fault}
    with pytest.raises(OidcFailed) as failed:
        await client(provider).start(BACK)
    assert failed.value.reason == "provider"


@pytest.mark.parametrize("fault", ["down", "slow", "moved", "huge", "nonsense"])
async def test_a_provider_that_fails_later_is_told_too(provider: OidcProvider, fault: str) -> None:
    oidc = client(provider)
    begun = await oidc.start(BACK)
    came = await browsed(provider, begun)
    provider.faults = {fault}
    with pytest.raises(OidcFailed) as failed:
        await oidc.finish(BACK, came, begun.kept)
    assert failed.value.reason == "provider"


async def test_nobody_listens(provider: OidcProvider) -> None:
    settings = OidcSettings(issuer="http://127.0.0.1:9", client_id="x")
    with pytest.raises(OidcFailed) as failed:
        await OidcClient(settings).start(BACK)
    assert failed.value.reason == "provider"


async def test_keys_rotate(provider: OidcProvider) -> None:
    oidc = client(provider)
    await signed_in(provider, oidc)
    await signed_in(provider, oidc)
    assert provider.requests.count("/jwks") == 1
    provider.rotate()
    assert (await signed_in(provider, oidc)).subject == "ada-1"
    assert provider.requests.count("/jwks") == 2


async def test_the_discovery_document_is_kept_for_a_while(provider: OidcProvider) -> None:
    clock = Clock()
    oidc = client(provider, clock)
    await oidc.start(BACK)
    await oidc.start(BACK)
    assert provider.requests.count("/.well-known/openid-configuration") == 1
    clock.now += FRESH_S + 1
    await oidc.start(BACK)
    assert provider.requests.count("/.well-known/openid-configuration") == 2


async def test_who_refuses_is_not_signed_in(provider: OidcProvider) -> None:
    oidc = client(provider)
    begun = await oidc.start(BACK)
    with pytest.raises(OidcFailed) as failed:
        await oidc.finish(BACK, await browsed(provider, begun, "deny"), begun.kept)
    assert failed.value.reason == "denied"


@pytest.mark.parametrize("kept", ["", "x", "x.y.z", "..", "\xff.\xff.\xff"])
async def test_another_browsers_answer_is_worth_nothing(provider: OidcProvider, kept: str) -> None:
    oidc = client(provider)
    begun = await oidc.start(BACK)
    with pytest.raises(OidcFailed) as failed:
        await oidc.finish(BACK, await browsed(provider, begun), kept)
    assert failed.value.reason == "expired"
    assert "/token" not in provider.requests, "the code was spent"


async def test_a_code_is_good_once_and_only_with_the_verifier_that_asked_for_it(provider: OidcProvider) -> None:
    oidc = client(provider)
    begun = await oidc.start(BACK)
    came = await browsed(provider, begun)
    await oidc.finish(BACK, came, begun.kept)
    with pytest.raises(OidcFailed) as failed:
        await oidc.finish(BACK, came, begun.kept)
    assert failed.value.reason == "expired"
    begun = await oidc.start(BACK)
    came = await browsed(provider, begun)
    state, nonce, _ = begun.kept.split(".")
    with pytest.raises(OidcFailed) as failed:
        await oidc.finish(BACK, came, f"{state}.{nonce}.{'v' * 64}")
    assert failed.value.reason == "expired"


async def test_every_start_has_secrets_of_its_own_and_shows_none_but_those_it_must(provider: OidcProvider) -> None:
    oidc = client(provider)
    first, second = await oidc.start(BACK), await oidc.start(BACK)
    assert not set(first.kept.split(".")) & set(second.kept.split("."))
    verifier = first.kept.split(".")[2]
    assert len(verifier) >= 43
    assert verifier not in first.url
    assert verifier not in repr(first)
    assert provider.client_secret not in first.url
    assert provider.client_secret not in repr(oidc._settings)


@pytest.mark.parametrize(
    ("url", "safe"),
    [("https://idp.example", True), ("https://idp.example/realms/x", True), ("http://127.0.0.1:8080", True),
     ("http://localhost:1", True), ("http://[::1]:1", True), ("http://idp.example", False), ("ftp://127.0.0.1", False),
     ("https://", False), ("https://user@idp.example", False), ("https://idp.example/#x", False), ("http://[", False),
     ("http://localhost.evil.example", False), ("//idp.example", False), ("", False)],
)  # fmt: skip
def test_only_https_and_loopback_are_safe(url: str, safe: bool) -> None:
    assert is_safe_url(url) is safe


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"issuer": "http://idp.example", "client_id": "x"}, "ISSUER"), ({"issuer": "https://idp.example"}, "CLIENT_ID"),
     ({"issuer": "https://idp.example", "client_id": "x", "scopes": "email"}, "SCOPES")],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ValidationError, match=f"ANTIPHON_OIDC_{named}"):
        OidcSettings(**settings)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ISSUER": "https://idp.example", "CLIENT_ID": "c", "CLIENT_SECRET": "s3cret", "GROUP_ROLES": '{"ops": "admin"}',
        "DEFAULT_ROLE": "member",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"ANTIPHON_OIDC_{name}", value)
    settings = OidcSettings()
    assert (settings.group_roles, settings.default_role, settings.tenant) == ({"ops": "admin"}, "member", "local")
    assert "s3cret" not in repr(settings)
    monkeypatch.setenv("ANTIPHON_OIDC_GROUP_ROLES", '{"ops": "emperor"}')
    with pytest.raises(ValidationError):
        OidcSettings()
