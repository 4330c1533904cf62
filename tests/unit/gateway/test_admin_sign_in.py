"""Signing in, up and out of the web app: sessions, invites, one's own account."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.auth import COOKIE
from services.common import account_messages as a
from tests.support.house import LINK, PASSWORD, House, furnished, house

FIRST = {"email": "First@Example.com", "password": PASSWORD, "name": "First"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnished(tmp_path_factory.mktemp("house") / "template.db")


@pytest.fixture
async def home(template: Path, tmp_path: Path) -> AsyncIterator[House]:
    async with house(template, tmp_path) as made:
        yield made


def error(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    found = answer.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return answer.status_code, found["code"], found["param"]


async def test_the_first_user_comes_by_the_printed_link_and_becomes_the_owner(home: House) -> None:
    browser = await home.owner_of_the_machine()
    assert (await browser.get("/api/signin")).json() == {"empty": True, "password": True, "key": True, "oidc": None}
    before = (await browser.get("/api/session")).json()
    assert before == {
        "authenticated": True, "user": None, "role": "owner", "scopes": [*a.USER_SCOPES, "admin", "operator"],
        "organisation": {"id": "local", "name": "Local", "tier": "free", "region": "", "operator": True},
    }  # fmt: skip
    former = browser.cookies[COOKIE]
    assert (await browser.post("/api/signup", json=FIRST)).status_code == 204
    after = (await browser.get("/api/session")).json()
    user = after.pop("user")
    assert after == {name: value for name, value in before.items() if name != "user"}
    assert user == {"id": user["id"], "email": "first@example.com", "name": "First", "has_password": True}
    member = await home.ports.members.member(a.Ref("local", user["id"]))
    assert (member.role, member.space) == ("owner", "local")
    kept = home.client(cookie=f"{COOKIE}={former}")
    assert error(await kept.get("/api/session")) == (401, "not_signed_in", None)
    assert "signin.link" in await home.actions()
    assert (await browser.get("/api/signin")).json()["empty"] is False


async def test_a_second_user_needs_an_invite(home: House) -> None:
    await home.person("owner")
    browser = await home.owner_of_the_machine()
    answer = await browser.post("/api/signup", json=FIRST)
    assert error(answer) == (403, "forbidden", None)
    assert "invit" in answer.json()["error"]["message"]


async def test_strangers_and_weak_keys_do_not_become_the_first_user(home: House) -> None:
    for fields in ({"scopes": ("conversations",)}, {"scopes": ALL_BUT_ADMIN}):
        made = await home.ports.keys.create_key(a.NewKey(tenant="local", **fields))
        browser = home.client(origin="http://localhost")
        assert (await browser.post("/api/session", json={"key": made.secret})).status_code == 204
        assert error(await browser.post("/api/signup", json=FIRST))[0] == 403
    answer = await home.client().post("/api/signup", json=FIRST)
    assert error(answer)[0] == 403
    assert "link" in answer.json()["error"]["message"]
    assert await home.ports.sign_in.empty()


ALL_BUT_ADMIN: tuple[a.Scope, ...] = a.USER_SCOPES


async def test_a_server_without_keys_lets_its_owner_make_the_first_account(template: Path, tmp_path: Path) -> None:
    async with house(template, tmp_path, open_to_all=True) as home:
        browser = home.client(origin="http://localhost")
        assert (await browser.get("/api/session")).json()["user"] is None
        assert (await browser.post("/api/signup", json=FIRST)).status_code == 204
        assert [m.role for m in await home.ports.members.members("local")] == ["owner"]


async def test_an_invite_shows_itself_and_is_good_once(home: House) -> None:
    asked = a.NewInvite(tenant="other", role="admin", email="new@example.com")
    made = await home.ports.invites.create_invite(asked)
    browser = home.client(origin="http://localhost")
    shown = (await browser.get(f"/api/invites/{made.token}")).json()
    assert shown == {"email": "new@example.com", "role": "admin", "organisation": "Other", "expires": int(made.expires)}
    body = {"email": "new@example.com", "password": PASSWORD, "invite": made.token}
    assert (await browser.post("/api/signup", json=body)).status_code == 204
    session = (await browser.get("/api/session")).json()
    assert (session["role"], session["organisation"]["id"]) == ("admin", "other")
    assert set(session["scopes"]) == {*a.USER_SCOPES, "admin"}
    for token in (made.token, "inv-x", "%00", "\u2028"):
        assert error(await browser.get(f"/api/invites/{token}"))[0] == 404
        again = await browser.post("/api/signup", json=body | {"email": "b@example.com", "invite": token})
        assert error(again)[0] == 404


async def test_a_password_signs_in_and_replaces_who_was_signed_in(home: House) -> None:
    member, browser = await home.person("member")
    former = browser.cookies[COOKIE]
    answer = await browser.post("/api/session", json={"email": " Member@local.example ", "password": PASSWORD})
    assert (answer.status_code, answer.content) == (204, b"")
    cookie = answer.headers["set-cookie"].lower()
    assert all(flag in cookie for flag in ("httponly", "samesite=strict", "path=/", "max-age=2592000"))
    assert "secure" not in cookie
    assert answer.headers["cache-control"] == "no-store"
    assert browser.cookies[COOKIE] != former
    assert (await home.client(cookie=f"{COOKIE}={former}").get("/api/session")).status_code == 401
    assert (await browser.get("/api/session")).json()["user"]["id"] == member.id


async def test_over_https_the_cookie_is_secure(home: House) -> None:
    await home.person("member")
    browser = home.client("https://chat.example", origin="https://chat.example")
    answer = await browser.post("/api/session", json={"email": "member@local.example", "password": PASSWORD})
    assert "Secure" in answer.headers["set-cookie"]


async def test_wrong_and_unknown_are_told_alike_and_guessing_is_slowed_down(home: House) -> None:
    await home.person("member")
    browser = home.client()
    texts = set()
    for email in ("member@local.example", "nobody@local.example"):
        answer = await browser.post("/api/session", json={"email": email, "password": "wrong password"})
        assert error(answer) == (401, "not_signed_in", None)
        assert "set-cookie" not in answer.headers
        texts.add(answer.text)
    assert len(texts) == 1
    for _ in range(10):
        answer = await browser.post("/api/session", json={"email": "member@local.example", "password": "wrong"})
    assert error(answer)[:2] == (429, "too_many_attempts")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    "body",
    [{}, {"email": "a@b.c"}, {"password": "x"}, {"email": "a@b.c", "password": "x", "key": "sk-x"},
     {"key": "sk-x", "email": "a@b.c"}, {"key": 1}, {"email": "a@b.c", "password": "x", "admin": True},
     {"email": None, "password": None, "key": None}],
)  # fmt: skip
async def test_credentials_are_one_or_the_other(home: House, body: dict[str, Any]) -> None:
    status, _, param = error(await home.client().post("/api/session", json=body))
    assert (status, param in ("email", "password", "key", "admin")) == (400, True)


async def test_a_key_signs_in_as_itself_and_its_end_is_the_sessions(home: House) -> None:
    made = await home.ports.keys.create_key(a.NewKey(tenant="local"))
    browser = home.client(origin="http://localhost")
    assert (await browser.post("/api/session", json={"key": f" {made.secret}\n"})).status_code == 204
    session = (await browser.get("/api/session")).json()
    assert (session["user"], session["scopes"]) == (None, list(a.USER_SCOPES))
    await home.ports.keys.revoke_key(a.Ref("local", made.id))
    assert (await browser.get("/api/session")).status_code == 401


@pytest.mark.parametrize(
    ("key", "status", "code"), [("sk-wrong", 401, "invalid_api_key"), ("", 401, "invalid_api_key")]
)
async def test_a_wrong_key_signs_nobody_in(home: House, key: str, status: int, code: str) -> None:
    assert error(await home.client().post("/api/session", json={"key": key}))[:2] == (status, code)


async def test_a_key_without_conversations_is_none_for_the_web_app(home: House) -> None:
    made = await home.ports.keys.create_key(a.NewKey(tenant="local", scopes=("model.request",)))
    answer = await home.client().post("/api/session", json={"key": made.secret})
    assert error(answer)[:2] == (403, "missing_scope")
    assert "`conversations`" in answer.text
    as_bearer = home.client(authorization=f"Bearer {made.secret}")
    assert error(await as_bearer.get("/api/organization"))[:2] == (403, "missing_scope")


async def test_signing_out_here_and_everywhere(home: House) -> None:
    _, first = await home.person("member")
    second, third = home.client(origin="http://localhost"), home.client(origin="http://localhost")
    for browser in (second, third):
        await browser.post("/api/session", json={"email": "member@local.example", "password": PASSWORD})
    _, bystander = await home.person("admin")
    assert (await second.delete("/api/session")).status_code == 204
    assert [(await b.get("/api/session")).status_code for b in (first, second, third)] == [200, 401, 200]
    assert (await third.delete("/api/session/all")).status_code == 204
    assert [(await b.get("/api/session")).status_code for b in (first, second, third)] == [401, 401, 401]
    assert (await bystander.get("/api/session")).status_code == 200
    assert (await home.client().delete("/api/session")).status_code == 204, "signing out twice is no error"


async def test_ones_own_name_and_password(home: House) -> None:
    member, browser = await home.person("member")
    renamed = await browser.patch("/api/account", json={"name": "Ada"})
    assert (renamed.json()["name"], renamed.json()["object"]) == ("Ada", "organization.user")
    elsewhere = home.client(origin="http://localhost")
    await elsewhere.post("/api/session", json={"email": member.email, "password": PASSWORD})
    new = {"current": PASSWORD, "new": "another long one"}
    assert (await browser.post("/api/account/password", json=new)).status_code == 204
    assert (await browser.get("/api/session")).status_code == 200
    assert (await elsewhere.get("/api/session")).status_code == 401
    for password, status in ((PASSWORD, 401), ("another long one", 204)):
        answer = await elsewhere.post("/api/session", json={"email": member.email, "password": password})
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("body", "expected"),
    [({"current": "wrong one here", "new": "another long one"}, (400, "wrong_password", "current")),
     ({"new": "another long one"}, (400, "missing_required_parameter", "current")),
     ({"current": PASSWORD, "new": "short"}, (400, None, "new"))],
)  # fmt: skip
async def test_a_password_is_changed_by_who_knows_it(
    home: House, body: dict[str, str], expected: tuple[int, str | None, str]
) -> None:
    member, browser = await home.person("member")
    assert error(await browser.post("/api/account/password", json=body)) == expected
    assert (await browser.get("/api/session")).status_code == 200
    signed_in = await browser.post("/api/session", json={"email": member.email, "password": PASSWORD})
    assert signed_in.status_code == 204


async def test_a_key_does_not_change_its_owners_account(home: House) -> None:
    member, _ = await home.person("member")
    made = await home.ports.keys.create_key(a.NewKey(tenant="local", owner=member.id))
    by_key, by_session = home.client(authorization=f"Bearer {made.secret}"), home.client(origin="http://localhost")
    await by_session.post("/api/session", json={"key": made.secret})
    for client, status in ((by_key, 401), (by_session, 403), (await home.owner_of_the_machine(), 403)):
        assert (await client.patch("/api/account", json={"name": "x"})).status_code == status
        body = {"current": PASSWORD, "new": "another long one"}
        assert (await client.post("/api/account/password", json=body)).status_code == status


@pytest.mark.parametrize("token", ["", "wrong", LINK[:-1], LINK + "x", "%ED%A0%80", "%00"])
async def test_only_the_printed_link_signs_in(home: House, token: str) -> None:
    answer = await home.client().get(f"/signin?token={token}")
    assert error(answer)[:2] == (401, "not_signed_in")
    assert "set-cookie" not in answer.headers


async def test_the_link_may_be_used_again_and_leaves_no_trace_of_itself(home: House) -> None:
    for _ in range(2):
        answer = await home.client().get(f"/signin?token={LINK}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"


WRITES = [
    ("POST", "/api/session"), ("DELETE", "/api/session"), ("DELETE", "/api/session/all"), ("POST", "/api/signup"),
    ("PATCH", "/api/account"), ("POST", "/api/account/password"), ("PATCH", "/api/organization"),
    ("POST", "/api/organization/invites"), ("POST", "/api/organization/api_keys"), ("POST", "/api/organizations"),
    ("DELETE", "/api/organization/users/user_1"), ("DELETE", "/api/organization/api_keys/key_1"),
]  # fmt: skip


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example", "http://localhost:81"]
)
async def test_another_sites_page_writes_nothing(home: House, origin: str) -> None:
    _, browser = await home.person("owner")
    before = await home.actions()
    bodies: dict[str, dict[str, Any]] = {
        "/api/session": {"email": "owner@local.example", "password": PASSWORD},
        "/api/signup": FIRST,
        "/api/account": {"name": "taken"},
        "/api/account/password": {"current": PASSWORD, "new": "another long one"},
    }
    for method, path in WRITES:
        answer = await browser.request(method, path, json=bodies.get(path, {"name": "x"}), headers={"origin": origin})
        assert error(answer)[:2] == (403, "forbidden"), (method, path)
        assert "set-cookie" not in answer.headers
    assert await home.actions() == before


async def test_a_form_of_another_kind_is_no_body(home: House) -> None:
    """What a page may send across sites without asking the browser first is not JSON."""
    _, browser = await home.person("owner")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = await browser.patch("/api/account", content=b'{"name": "x"}', headers={"content-type": kind})
        assert answer.status_code == 400, kind


async def test_cookies_are_no_key_and_headers_say_nothing(home: House) -> None:
    _, browser = await home.person("owner")
    for path in ("/v1/organization", "/v1/organization/users", "/v1/usage", "/v1/organizations", "/v1/tiers"):
        assert error(await browser.get(path))[:2] == (401, "invalid_api_key")
    token = browser.cookies[COOKIE]
    as_key = home.client(authorization=f"Bearer {token}")
    assert error(await as_key.get("/v1/organization"))[:2] == (401, "invalid_api_key")
    spoofed = {
        "openai-organization": "other", "openai-project": "p", "x-forwarded-for": "127.0.0.1", "x-forwarded-user": "root",
        "x-forwarded-host": "evil.example", "x-forwarded-proto": "https", "x-user": "root", "x-tenant": "other",
        "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1;host=evil.example;proto=https",
    }  # fmt: skip
    member, plain = await home.person("member")
    assert (await plain.get("/api/organization", headers=spoofed)).json()["id"] == "local"
    assert (await plain.get("/api/organization/users", headers=spoofed)).status_code == 403
    credentials = {"email": member.email, "password": PASSWORD}
    answer = await plain.post("/api/session", json=credentials, headers=spoofed)
    assert answer.status_code == 204
    assert "Secure" not in answer.headers["set-cookie"]
    entries = await home.ports.audit.entries(a.AuditQuery(tenant="local", action="signin.password"))
    assert entries[0].details["address"].startswith("203.0.113")
