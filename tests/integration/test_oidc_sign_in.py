"""Signing in to the real product through a real OIDC provider, by HTTP and in Chromium."""

import html
import re
import shutil
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import sync_playwright

from benchmarks.page_browser import ARGS
from services.accounts.cache import FRESH_S
from tests.conftest import MakeServer
from tests.support.oidc_provider import OidcProvider, Person
from tests.support.organisations import PASSWORD, installation, taken
from tests.support.server import Server

ROLES = '{"ops": "admin"}'


@pytest.fixture(scope="module")
def served() -> Iterator[OidcProvider]:
    with OidcProvider() as made:
        yield made


@pytest.fixture
def provider(served: OidcProvider) -> OidcProvider:
    served.people = [Person(), Person("bob@example.com", "bobs password", "bob-1", "Bob", groups=["ops"])]
    served.faults = set()
    return served


@pytest.fixture
def server(start_server: MakeServer, provider: OidcProvider) -> Server:
    return start_server(**provider.settings(), OIDC_GROUP_ROLES=ROLES, OIDC_DEFAULT_ROLE="member")


def through(browser: httpx.Client, person: Person, decision: str = "allow") -> httpx.Response:
    """From our page over the provider's form and back; the answer that our callback gives."""
    away = browser.get("/signin/oidc")
    assert away.status_code == 303, away.text
    page = httpx.get(away.headers["location"])
    fields = {k: html.unescape(v) for k, v in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', page.text)}
    fields |= {"email": person.email, "password": person.password, "decision": decision}
    back = httpx.post(f"{_origin(away)}/login", data=fields)
    assert back.headers["location"].startswith(str(browser.base_url))
    return browser.get(back.headers["location"])


def _origin(answer: httpx.Response) -> str:
    parts = urlsplit(answer.headers["location"])
    return f"{parts.scheme}://{parts.netloc}"


def test_groups_give_roles_and_sessions_are_the_servers(server: Server, provider: OidcProvider) -> None:
    for person, role in zip(provider.people, ("member", "admin"), strict=True):
        with httpx.Client(base_url=server.url) as browser:
            assert browser.get("/api/signin").json()["oidc"] == {"name": "Test provider"}
            assert through(browser, person).headers["location"] == "/"
            session = browser.get("/api/session").json()
            assert (session["user"]["email"], session["role"]) == (person.email, role)
            assert browser.delete("/api/session").status_code == 204
            assert browser.get("/api/session").status_code == 401
    assert provider.client_secret not in server.log


def test_keys_rotate_while_the_server_runs(server: Server, provider: OidcProvider) -> None:
    for _ in range(2):
        with httpx.Client(base_url=server.url) as browser:
            assert through(browser, provider.people[0]).headers["location"] == "/"
        provider.rotate()


def test_nobody_gets_an_owners_rights_by_signing_up_with_the_owners_address(
    start_server: MakeServer, provider: OidcProvider
) -> None:
    """Not even in the seconds for which the gateway still takes a session, or a key, that has ended."""
    server = start_server(**provider.settings(), OIDC_GROUP_ROLES='{"ops": "owner"}', OIDC_DEFAULT_ROLE="member")
    with installation(server) as place:
        owner, ceo = place.browser(), provider.people[1]
        assert owner.get(server.signin).status_code == 303
        first = {"email": "first@example.com", "password": PASSWORD}
        taken(owner.post("/api/signup", json=first))
        invite = taken(owner.post("/api/organization/invites", json={}))["token"]
        evil, account = place.browser(), {"email": ceo.email, "password": PASSWORD}
        taken(evil.post("/api/signup", json=account | {"invite": invite}))
        key = taken(evil.post("/api/organization/api_keys", json={}))["secret"]
        program = place.program(key)
        theirs = evil.get("/api/session").json()["user"]["id"]
        secret = taken(evil.post("/api/conversations", json={"system_prompt": "of the imposter"}))["id"]
        assert program.get("/api/conversations").status_code == 200
        browser = place.browser()
        assert through(browser, ceo).headers["location"] == "/"
        tries = [
            evil.post("/api/organization/api_keys", json={}),
            evil.post("/api/account/password", json={"new": "another long one"}),
            evil.post("/api/organization/invites", json={"role": "owner"}),
        ]
        assert all(answer.status_code in (401, 403, 404) for answer in tries), [answer.text for answer in tries]
        session = browser.get("/api/session").json()
        assert (session["role"], session["user"]["email"]) == ("owner", ceo.email)
        assert session["user"]["id"] != theirs
        assert browser.get(f"/api/conversations/{secret}").status_code == 404
        assert browser.get("/api/conversations").json()["data"] == []
        ours = taken(browser.post("/api/conversations", json={"system_prompt": "of the owner"}))["id"]
        for http in (evil, program):
            assert http.get(f"/api/conversations/{ours}").status_code in (401, 404)
        time.sleep(FRESH_S + 0.2)
        assert evil.get("/api/session").status_code == 401
        assert program.get("/v1/models").status_code == 401
        assert place.browser().post("/api/session", json=account).status_code == 401


@pytest.mark.parametrize(
    "fault", ["nonce", "audience", "issuer", "expired", "unsigned", "hmac", "foreign_key", "foreign_answer"]
)
def test_what_cannot_be_believed_signs_nobody_in(server: Server, provider: OidcProvider, fault: str) -> None:
    provider.faults = {fault}
    with httpx.Client(base_url=server.url) as browser:
        assert through(browser, provider.people[0]).headers["location"] == "/?signin_error=provider"
        assert browser.get("/api/session").status_code == 401


def test_refusals_and_absences_are_told_to_the_page(start_server: MakeServer, provider: OidcProvider) -> None:
    server = start_server(**provider.settings(), OIDC_GROUP_ROLES=ROLES)
    with httpx.Client(base_url=server.url) as browser:
        assert through(browser, provider.people[0], "deny").headers["location"] == "/?signin_error=denied"
        assert through(browser, provider.people[0]).headers["location"] == "/?signin_error=not_allowed"
        provider.faults = {"down"}
        callback = browser.get("/signin/oidc/callback?state=x&code=y")
        assert callback.headers["location"] == "/?signin_error=expired"
        assert browser.get("/api/session").status_code == 401


def test_settings_that_cannot_work_end_the_start(start_server: MakeServer) -> None:
    with pytest.raises(AssertionError, match="ANTIPHON_OIDC_ISSUER"):
        start_server(OIDC_ISSUER="http://idp.example", OIDC_CLIENT_ID="x")


@pytest.mark.browser
def test_a_person_signs_in_with_a_browser(server: Server, provider: OidcProvider) -> None:
    """The strict cookie that the callback sets is there for the page that it leads to."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "This test needs Chromium: run `make machine`."
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGS)
        try:
            page = chromium.new_page()
            page.goto(f"{server.url}/signin/oidc")
            page.get_by_label("E-mail").fill(provider.people[0].email)
            page.get_by_label("Password").fill(provider.people[0].password)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(f"{server.url}/")
            session = page.evaluate("async () => (await fetch('/api/session')).json()")
            assert session["user"]["email"] == provider.people[0].email
            cookies = {cookie["name"]: cookie for cookie in page.context.cookies(server.url)}
            assert set(cookies) == {"antiphon_session"}
            assert (cookies["antiphon_session"]["httpOnly"], cookies["antiphon_session"]["sameSite"]) == (
                True,
                "Strict",
            )
            assert page.evaluate("document.cookie") == ""
        finally:
            chromium.close()
