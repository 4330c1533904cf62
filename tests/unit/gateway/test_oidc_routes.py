"""The browser's way to an OIDC provider and back, over the real routes and services and a provider on loopback."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from gateway.auth import COOKIE
from gateway.oidc_client import OidcClient
from gateway.oidc_http import Provider
from gateway.oidc_settings import OidcSettings
from gateway.routes import oidc as routes
from services.accounts.roles import OidcMapping
from tests.support.house import House, furnished, house
from tests.support.oidc_provider import OidcProvider, Person

MAPPING = OidcMapping(tenant="local", default_role="member", groups={"ops": "admin"})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnished(tmp_path_factory.mktemp("house") / "template.db")


@pytest.fixture(scope="module")
def served() -> Iterator[OidcProvider]:
    with OidcProvider() as made:
        yield made


@pytest.fixture
def provider(served: OidcProvider) -> OidcProvider:
    served.people, served.faults = [Person()], set()
    return served


@pytest.fixture
async def home(template: Path, tmp_path: Path, provider: OidcProvider) -> AsyncIterator[House]:
    async with opened(template, tmp_path, provider, MAPPING) as made:
        yield made


@asynccontextmanager
async def opened(
    template: Path, folder: Path, provider: OidcProvider, mapping: OidcMapping | None, redirect_url: str | None = None
) -> AsyncIterator[House]:
    settings = OidcSettings(
        issuer=provider.issuer, client_id=provider.client_id, client_secret=provider.client_secret, name="Work",
        redirect_url=redirect_url, group_roles={"ops": "admin"},
    )  # fmt: skip
    oidc = OidcClient(settings, Provider(provider.issuer, timeout_s=2))
    async with house(template, folder, oidc=oidc, mapping=mapping) as made:
        yield made


async def sent(browser: httpx.AsyncClient) -> str:
    """Where the browser is sent to."""
    answer = await browser.get(routes.PATH)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def came_back(provider: OidcProvider, url: str, decision: str = "allow") -> str:
    """The path and query that the provider sends it back to."""
    form = {k: v[0] for k, v in parse_qs(urlsplit(url).query).items()}
    form |= {"email": provider.people[0].email, "password": provider.people[0].password, "decision": decision}
    async with httpx.AsyncClient() as elsewhere:
        answer = await elsewhere.post(f"{provider.issuer}/login", data=form)
    back = urlsplit(answer.headers["location"])
    return f"{back.path}?{back.query}"


async def signed_in(home: House, provider: OidcProvider, browser: httpx.AsyncClient) -> httpx.Response:
    return await browser.get(await came_back(provider, await sent(browser)))


async def test_a_person_signs_in_and_a_group_makes_an_admin(home: House, provider: OidcProvider) -> None:
    browser = home.client(origin="http://localhost")
    assert (await browser.get("/api/signin")).json()["oidc"] == {"name": "Work"}
    answer = await signed_in(home, provider, browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    session = (await browser.get("/api/session")).json()
    assert (session["user"]["email"], session["user"]["has_password"], session["role"]) == (
        "ada@example.com", False, "member",
    )  # fmt: skip
    provider.people[0].groups = ["ops"]
    former = browser.cookies[COOKIE]
    await signed_in(home, provider, browser)
    assert (await browser.get("/api/session")).json()["role"] == "admin"
    assert (await home.client(cookie=f"{COOKIE}={former}").get("/api/session")).status_code == 401
    assert len(await home.ports.members.members("local")) == 1
    assert "signin.oidc" in await home.actions()


async def test_who_has_no_password_may_set_one_in_a_session(home: House, provider: OidcProvider) -> None:
    browser = home.client(origin="http://localhost")
    await signed_in(home, provider, browser)
    assert (await browser.post("/api/account/password", json={"new": "quite a long one"})).status_code == 204
    assert (await browser.get("/api/session")).json()["user"]["has_password"] is True


async def test_the_cookie_of_the_way_is_lax_short_lived_and_for_the_way_alone(home: House) -> None:
    for base, secure in (("http://localhost", False), ("https://chat.example", True)):
        browser = home.client(base)
        answer = await browser.get(routes.PATH)
        cookie = answer.headers["set-cookie"].lower()
        for flag in ("httponly", "samesite=lax", "path=/signin/oidc", "max-age=600"):
            assert flag in cookie
        assert ("secure" in cookie) is secure
        assert answer.headers["cache-control"] == "no-store"
        query = parse_qs(urlsplit(answer.headers["location"]).query)
        assert query["redirect_uri"] == [f"{base}/signin/oidc/callback"]
        assert query["code_challenge_method"] == ["S256"]
        assert query["state"][0] in answer.headers["set-cookie"]


async def test_the_callbacks_address_may_be_set(template: Path, tmp_path: Path, provider: OidcProvider) -> None:
    url = "https://chat.example/signin/oidc/callback"
    async with opened(template, tmp_path, provider, MAPPING, url) as home:
        browser = home.client()
        location = await sent(browser)
        assert parse_qs(urlsplit(location).query)["redirect_uri"] == [url]
        assert (await browser.get(await came_back(provider, location))).headers["location"] == "/"


@pytest.mark.parametrize(
    ("decision", "fault", "reason"),
    [("deny", None, "denied"), ("allow", "nonce", "provider"), ("allow", "down", "provider"), ("allow", "unsigned", "provider"),
     ("allow", "foreign_answer", "provider")],
)  # fmt: skip
async def test_what_goes_wrong_is_for_the_page_to_show(
    home: House, provider: OidcProvider, decision: str, fault: str | None, reason: str
) -> None:
    browser = home.client()
    location = await sent(browser)
    if fault:
        provider.faults = {fault}
    answer = await browser.get(await came_back(provider, location, decision))
    assert (answer.status_code, answer.headers["location"]) == (303, f"/?signin_error={reason}")
    assert COOKIE not in browser.cookies
    assert routes.COOKIE not in browser.cookies


async def test_a_provider_that_is_down_is_for_the_page_to_show(
    template: Path, tmp_path: Path, provider: OidcProvider
) -> None:
    provider.faults = {"down"}
    async with opened(template, tmp_path, provider, MAPPING) as home:
        assert await sent(home.client()) == "/?signin_error=provider"


async def test_another_browser_cannot_finish_what_this_one_began(home: House, provider: OidcProvider) -> None:
    mine, attacked = home.client(), home.client()
    back = await came_back(provider, await sent(mine))
    for browser in (attacked, home.client(cookie=f"{routes.COOKIE}=x.y.z")):
        assert (await browser.get(back)).headers["location"] == "/?signin_error=expired"
        assert COOKIE not in browser.cookies
    await sent(attacked)
    assert (await attacked.get(back)).headers["location"] == "/?signin_error=expired"
    assert (await mine.get(back)).headers["location"] == "/"
    assert (await mine.get(back)).headers["location"] == "/?signin_error=expired", "a callback is good once"


@pytest.mark.parametrize(
    "query", ["", "?state=", "?state=x&code=y", "?error=access_denied", "?state=%00&code=%ED%A0%80"]
)
async def test_a_callback_that_nobody_began(home: House, query: str) -> None:
    answer = await home.client().get(f"{routes.PATH}/callback{query}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?signin_error=expired")


async def test_who_is_not_mapped_is_not_allowed(template: Path, tmp_path: Path, provider: OidcProvider) -> None:
    async with opened(template, tmp_path, provider, OidcMapping(tenant="local", groups={"ops": "admin"})) as home:
        browser = home.client()
        assert (await signed_in(home, provider, browser)).headers["location"] == "/?signin_error=not_allowed"
        provider.people[0].groups = ["ops"]
        assert (await signed_in(home, provider, browser)).headers["location"] == "/"
        provider.people = [Person(subject="eve", verified=False, groups=["ops"])]
        assert (await signed_in(home, provider, home.client())).headers["location"] == "/?signin_error=not_allowed"


async def test_without_a_provider_there_is_nothing(template: Path, tmp_path: Path) -> None:
    async with house(template, tmp_path) as home:
        for path in (routes.PATH, f"{routes.PATH}/callback?state=x&code=y"):
            assert (await home.client().get(path)).status_code == 404
