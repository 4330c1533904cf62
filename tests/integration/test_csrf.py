"""Another site's page changes nothing, with whatever the browser adds to its requests; and cookies are no keys."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.openapi_routes import Operation, operations
from tests.support.organisations import MAKERS, PASSWORD, Installation, Organisation, Things, installation
from tests.support.server import SIMULATED, Server

OPEN_SESSION = ("/api/session", "/api/signup")
"""Asked by somebody who is not signed in, too: another site must not sign a browser in as somebody of its choice."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("csrf")
    with Server(home, model=SIMULATED, EMBEDDING_MODEL="none") as server, installation(server) as made:
        yield made


@pytest.fixture(scope="module")
def acme(place: Installation) -> Organisation:
    return place.organisation("Acme")


@pytest.fixture(scope="module")
def writes(place: Installation) -> list[Operation]:
    found = [o for o in operations(place.server.url) if o.writes and o.path.startswith("/api/")]
    assert len(found) >= 24
    return found


def foreign(server: Server) -> list[dict[str, str]]:
    """The headers that browsers add to what other sites' pages send."""
    host, port = "127.0.0.1", server.port
    origins = (
        "https://evil.example", "null", "", f"http://{host}", f"http://{host}:{port + 1}", f"http://evil.{host}:{port}",
        f"http://{host}:{port}.evil.example", f"http://evil.example/{host}:{port}", f"http://evil@{host}:{port}",
        f"http://localhost:{port}", f"{host}:{port}", "http://[", "file://",
    )  # fmt: skip
    without = [{"sec-fetch-site": site} for site in ("cross-site", "same-site")]
    downgraded = {"origin": server.url, "sec-fetch-site": "cross-site"}  # from http:// to https:// of the same host
    return [*({"origin": origin} for origin in origins), *without, downgraded]


@contextmanager
def cookie_alone(http: httpx.Client) -> Iterator[httpx.Client]:
    """The browser of a person who has another site's page open, without our page's Origin."""
    with httpx.Client(base_url=http.base_url, cookies=http.cookies, timeout=60) as made:
        assert made.get("/api/session").status_code == 200
        yield made


def state(acme: Organisation, conversation: str) -> dict[str, str]:
    """Everything that an owner sees, but for the log of sign-ins."""
    paths = (
        "/api/session", "/api/organization", "/api/organization/users", "/api/organization/invites", "/api/conversations",
        "/api/organization/projects", "/api/organization/service_accounts", f"/api/conversations/{conversation}",
        "/api/organization/audit_logs?limit=200",
    )  # fmt: skip
    found = {path: acme.owner.browser.get(path) for path in paths}
    assert all(answer.status_code == 200 for answer in found.values())
    keys = acme.owner.browser.get("/api/organization/api_keys").json()["data"]
    return {path: answer.text for path, answer in found.items()} | {
        "keys": str([(k["id"], k["revoked"]) for k in keys])
    }


def test_no_write_is_taken_from_another_site(acme: Organisation, place: Installation, writes: list[Operation]) -> None:
    things = Things(acme, acme.owner)
    ids = [{name: things[name] for name in operation.in_path} for operation in writes]
    before = state(acme, things["conversation_id"])
    organisations = place.operator.get("/api/organizations").text
    checked = 0
    for operation, named in zip(writes, ids, strict=True):
        victim = place.operator if "/organizations" in operation.path else acme.owner.browser
        with cookie_alone(victim) as http:
            for headers in foreign(place.server):
                http.headers = httpx.Headers(headers)
                answer = operation.request(http, named)
                where = (str(operation), headers, answer.text)
                assert answer.status_code == 403, where
                assert answer.json()["error"]["code"] == "forbidden", where
                assert "set-cookie" not in answer.headers, where
                checked += 1
    assert checked >= 24 * 16
    assert state(acme, things["conversation_id"]) == before
    assert place.operator.get("/api/organizations").text == organisations


def test_the_same_writes_are_taken_from_the_own_page(
    acme: Organisation, place: Installation, writes: list[Operation]
) -> None:
    """The control: what refused the requests above was where they came from."""
    for operation in writes:
        person = acme.join("owner")  # some of them end the session
        things = Things(acme, person)
        http = place.operator if "/organizations" in operation.path else person.browser
        named = {name: things[name] for name in operation.in_path}
        http.headers["sec-fetch-site"] = "same-origin"
        answer = operation.request(http, named)
        refused_anyway = operation.path in OPEN_SESSION and operation.method == "POST"
        assert answer.status_code in ((401, 403) if refused_anyway else (200, 201, 204)), (str(operation), answer.text)
        assert "another site" not in answer.text


def test_another_site_signs_nobody_in_or_out(acme: Organisation, place: Installation) -> None:
    right = {"email": acme.owner.email, "password": PASSWORD}
    with httpx.Client(base_url=place.server.url) as stranger:
        for body in (right, {"key": acme.owner.key["secret"]}):
            for headers in foreign(place.server):
                answer = stranger.post("/api/session", json=body, headers=headers)
                assert answer.status_code == 403, headers
                assert "set-cookie" not in answer.headers
            assert stranger.post("/api/session", json=body).status_code == 204, "the control"
            assert stranger.delete("/api/session", headers={"origin": "https://evil.example"}).status_code == 403
            assert stranger.get("/api/session").status_code == 200


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json"],
)
def test_a_form_of_another_site_is_refused_whatever_it_says_of_itself(
    acme: Organisation, place: Installation, content_type: str
) -> None:
    """What a page may send across sites without asking first."""
    headers = {"content-type": content_type, "origin": "https://evil.example", "sec-fetch-mode": "no-cors"}
    with cookie_alone(acme.owner.browser) as http:
        answer = http.post("/api/organization/projects", content=b'{"name": "forged"}', headers=headers)
        assert answer.status_code == 403
        override = {"x-http-method-override": "DELETE", "x-method-override": "DELETE"}
        user = acme.member.id
        answer = http.get(f"/api/organization/users/{user}?_method=DELETE", headers=override)
        assert answer.status_code == 200
    assert "forged" not in acme.owner.browser.get("/api/organization/projects").text
    assert acme.owner.browser.get(f"/api/organization/users/{user}").status_code == 200


def test_no_answer_lets_another_site_read_it(acme: Organisation, place: Installation) -> None:
    asking = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for operation in operations(place.server.url):
        path = operation.path.format(**dict.fromkeys(operation.in_path, "x"))
        answer = acme.owner.browser.options(path, headers=asking)
        assert answer.status_code in (401, 404, 405), (path, answer.status_code)
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    read = acme.owner.browser.get("/api/session", headers={"origin": "https://evil.example"})
    assert not [name for name in read.headers if name.startswith("access-control-")]


def test_reading_changes_nothing(acme: Organisation, place: Installation) -> None:
    """A link or an image of another site may GET whatever it likes, with the cookie where SameSite lets it."""
    things = Things(acme, acme.owner)
    assert all(things[name] for name in MAKERS)
    before = state(acme, things["conversation_id"])
    for operation in operations(place.server.url):
        if not operation.writes and not operation.path.startswith("/signin"):
            named = {name: things[name] if name in MAKERS else "x" for name in operation.in_path}
            for method in ("GET", "HEAD"):
                acme.owner.browser.request(method, operation.path.format(**named))
    assert state(acme, things["conversation_id"]) == before


def test_cookies_are_no_keys(acme: Organisation, place: Installation) -> None:
    things = Things(acme, acme.owner)
    checked = 0
    for operation in operations(place.server.url):
        if operation.path.startswith("/v1/"):
            named = {name: "simulated" if name == "model" else things[name] for name in operation.in_path}
            answer = operation.request(acme.owner.browser, named)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key"), str(operation)
            checked += 1
    assert checked >= 25
    token = acme.owner.browser.cookies["antiphon_session"]
    for scheme in ("Bearer", "bearer", "Cookie", "Basic"):
        headers = {"authorization": f"{scheme} {token}"}
        for path in ("/v1/models", "/api/conversations", "/v1/organization"):
            assert httpx.get(f"{place.server.url}{path}", headers=headers).status_code == 401


def test_the_cookie_is_the_browsers_alone(acme: Organisation, place: Installation) -> None:
    with httpx.Client(base_url=place.server.url) as http:
        first = http.post("/api/session", json={"email": acme.owner.email, "password": PASSWORD})
        old = http.cookies["antiphon_session"]
        attributes = {part.strip().lower() for part in first.headers["set-cookie"].split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= attributes
        assert not [a for a in attributes if a.startswith("domain")], "sub-domains would get it"
        assert first.headers["cache-control"] == "no-store"
        http.post("/api/session", json={"email": acme.owner.email, "password": PASSWORD})
        assert http.cookies["antiphon_session"] != old, "a session is rotated at sign-in"
    cookie = {"cookie": f"antiphon_session={old}"}
    assert httpx.get(f"{place.server.url}/api/session", headers=cookie).status_code == 401
    planted = {"cookie": "antiphon_session=ses-" + "A" * 43}
    answer = httpx.post(
        f"{place.server.url}/api/session", json={"email": acme.owner.email, "password": PASSWORD}, headers=planted
    )
    assert "A" * 43 not in answer.headers["set-cookie"], "a session that somebody planted is taken over"


def test_behind_a_proxy_with_tls_the_cookie_is_secure(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"EMBEDDING_MODEL": "none", "TRUSTED_PROXIES": "127.0.0.1"}
    with Server(tmp_path_factory.mktemp("tls"), model=SIMULATED, **settings) as server:
        headers = {"x-forwarded-proto": "https", "x-forwarded-for": "198.51.100.7"}
        answer = httpx.post(f"{server.url}/api/session", json={"key": server.key}, headers=headers)
        assert answer.status_code == 204
        assert "; secure" in answer.headers["set-cookie"].lower()
