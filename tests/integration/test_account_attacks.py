"""Nobody gets a right that nobody gave them: by what they write into bodies, paths and names, or by being quick."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from services.accounts.cache import FRESH_S
from tests.conftest import MakeServer
from tests.support.openapi_routes import VALID, operations
from tests.support.organisations import MAKERS, PASSWORD, Installation, Organisation, Things, installation, taken
from tests.support.server import SIMULATED, Server

OURS = "/api/organization"
STRANGE = (
    "%00", "a%00b", "%0d%0aset-cookie:%20x=1", "%F0%9F%98%80", "%ED%A0%80", "%ff", "..%2f..%2f", "%2e%2e%2f", "'%20OR%201=1--",
    "%25", "%E2%80%AE", "a" * 201, "a" * 20_000,
)  # fmt: skip
FOREIGN_FIELDS = {
    "tenant": "local", "organization": "local", "operator": True, "user_id": "x", "space": "local", "actor": "cli",
    "digest": "x", "secret": "sk-x", "revoked": False, "created": 0, "accepted_by": "", "has_password": False,
    "__class__": "x", "__proto__": {}, "id ": "x",
}  # fmt: skip
"""What a body must not set, although what it makes has it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("attacked")
    with Server(home, model=SIMULATED, EMBEDDING_MODEL="none") as server, installation(server) as made:
        yield made


@pytest.fixture(scope="module")
def acme(place: Installation) -> Organisation:
    return place.organisation("Acme")


def refused(answer: httpx.Response) -> None:
    assert answer.status_code == 403, answer.text
    assert answer.json()["error"]["code"] in ("forbidden", "missing_scope")


def at_once(calls: list[Callable[[], httpx.Response]]) -> list[int]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return sorted(answer.status_code for answer in pool.map(lambda call: call(), calls))


@pytest.mark.parametrize("door", [0, 1], ids=["key", "cookie"])
def test_nobody_makes_anybody_more_than_they_are(acme: Organisation, door: int) -> None:
    member, admin = acme.member.doors("/api/")[door], acme.admin.doors("/api/")[door]
    for person in acme.people:
        for role in ("member", "admin", "owner"):
            refused(member.patch(f"{OURS}/users/{person.id}", json={"role": role}))
    refused(admin.patch(f"{OURS}/users/{acme.admin.id}", json={"role": "owner"}))
    refused(admin.patch(f"{OURS}/users/{acme.member.id}", json={"role": "owner"}))
    for call in ("patch", "delete"):
        body = {"json": {"role": "member"}} if call == "patch" else {}
        refused(getattr(admin, call)(f"{OURS}/users/{acme.owner.id}", **body))
    refused(member.post(f"{OURS}/invites", json={}))
    refused(admin.post(f"{OURS}/invites", json={"role": "owner"}))
    refused(admin.patch(OURS, json={"monthly_budget": None}))
    assert [p.browser.get("/api/session").json()["role"] for p in acme.people] == ["owner", "admin", "member"]


def test_nobody_makes_a_key_that_can_more(acme: Organisation) -> None:
    def made(http: httpx.Client, **body: Any) -> httpx.Response:
        return http.post(f"{OURS}/api_keys", json=body)

    for scope in ("admin", "operator"):
        refused(made(acme.member.browser, scopes=[scope]))
    refused(made(acme.owner.browser, scopes=["operator"]))
    for owner in (acme.owner.id, acme.member.id):
        refused(made(acme.admin.browser, owner=owner))
    for scope in ("admin", "conversations"):
        refused(made(acme.admin.browser, owner="", scopes=[scope]))
    refused(made(acme.member.browser, owner=""))
    refused(made(acme.member.browser, owner=Things(acme, acme.owner)["owner"]))


def test_a_weak_key_makes_nothing_stronger(acme: Organisation, place: Installation) -> None:
    weak = acme.owner.new_key(scopes=["model.request", "usage.read", "conversations"])
    program, browser = place.program(weak["secret"]), place.browser()
    taken(browser.post("/api/session", json={"key": weak["secret"]}))
    for http in (program, browser):
        for body in ({}, {"scopes": ["admin"]}, {"owner": ""}):
            refused(http.post(f"{OURS}/api_keys", json=body))
        refused(http.delete(f"{OURS}/api_keys/{acme.owner.key['id']}"))
        refused(http.get(f"{OURS}/users"))
        refused(http.patch(OURS, json={"name": "taken"}))
        refused(http.get(f"/api/usage?user_id={acme.member.id}"))
    refused(browser.post("/api/account/password", json={"new": "another long one"}))
    refused(browser.patch("/api/account", json={"name": "taken"}))
    assert program.post("/api/account/password", json={"new": "another long one"}).status_code == 401
    narrow = acme.owner.new_key(models=["other"], scopes=["admin", "model.request", "model.read"])
    http = place.program(narrow["secret"])
    refused(http.post(f"{OURS.replace('/api', '/v1')}/api_keys", json={"models": [SIMULATED]}))
    for models in ([], None):
        key = taken(http.post("/v1/organization/api_keys", json={"models": models}))
        assert key["models"] == ["other"]
        assert place.program(key["secret"]).post("/v1/chat/completions", json=VALID["ChatRequest"]).status_code == 404


def test_no_body_sets_what_is_not_its_to_set(acme: Organisation, place: Installation) -> None:
    things = Things(acme, acme.owner)
    for operation in operations(place.server.url):
        if operation.schema and operation.path.startswith("/api/"):
            path = operation.path.format(**{name: things[name] for name in operation.in_path})
            http = place.operator if "/organizations" in path else acme.owner.browser
            for name, value in FOREIGN_FIELDS.items():
                answer = http.request(operation.method, path, json={**(operation.body() or {}), name: value})
                error = answer.json()["error"]
                assert (answer.status_code, error["code"], error["param"]) == (400, "unknown_parameter", name), path
    for name in ("tier", "operator", "suspended", "region"):
        answer = acme.owner.browser.patch(OURS, json={name: "enterprise"})
        assert answer.json()["error"]["code"] == "unknown_parameter"


def test_headers_that_merely_say_so_change_nobody(acme: Organisation, place: Installation) -> None:
    names = ("openai-organization", "openai-project", "x-tenant", "x-organization", "x-user", "x-role")
    headers = dict.fromkeys(names, "local")
    headers |= {
        "x-forwarded-user": acme.owner.id,
        "x-forwarded-for": "127.0.0.1",
        "x-original-url": "/v1/organizations",
    }
    for http in acme.member.doors("/api/"):
        assert http.get("/api/session" if http is acme.member.browser else OURS, headers=headers).status_code == 200
        assert http.get(OURS, headers=headers).json()["id"] == acme.id
        refused(http.get(f"{OURS}/users", headers=headers))
        refused(http.get("/api/organizations", headers=headers))


def test_strange_ids_are_refused_on_every_route(acme: Organisation, place: Installation) -> None:
    checked = 0
    for operation in operations(place.server.url):
        for slot in set(operation.in_path) & set(MAKERS):
            http = acme.owner.doors(operation.path)[-1]
            http = place.operator if operation.path.startswith("/api/organizations") else http
            for id in (*STRANGE, acme.member.id.upper(), f"%20{acme.member.id}", f"{acme.member.id}%00"):
                answer = http.request(
                    operation.method, operation.path.replace(f"{{{slot}}}", id), json=operation.body()
                )
                assert answer.status_code in (400, 403, 404, 405), (str(operation), id[:50], answer.text)
                assert "set-cookie" not in answer.headers
                checked += 1
    assert checked >= 300


def test_no_redirect_leads_away(acme: Organisation, place: Installation) -> None:
    paths = [o.path.replace("{", "").replace("}", "") for o in operations(place.server.url) if "signin" not in o.path]
    away = {"host": "evil.example", "x-forwarded-host": "evil.example"}
    for path in (
        *(f"{path}/" for path in paths),
        "//evil.example",
        "/%5cevil.example",
        "/signin?token=x&next=//evil.example",
    ):
        answer = acme.owner.browser.get(path, headers=away)
        assert "location" not in answer.headers, path
    link = place.server.signin.replace(place.server.url, "")
    for query in ("&next=https://evil.example", "&redirect=//evil.example", "&return_to=%0d%0aset-cookie:x"):
        assert place.browser().get(link + query, headers=away).headers["location"] == "/"


@pytest.mark.parametrize("name", ["a\nb", "a\r\nset-cookie: x", "a\0b", "\x1b[31m", "\u202egpj", "a\u2028b", "x" * 201])
def test_names_cannot_break_a_line_or_a_log(acme: Organisation, name: str) -> None:
    browser = acme.owner.browser
    for path in (f"{OURS}/projects", f"{OURS}/service_accounts", f"{OURS}/api_keys"):
        assert browser.post(path, json={"name": name}).status_code == 400, path
    for path in (OURS, "/api/account"):
        assert browser.patch(path, json={"name": name}).status_code == 400, path


def test_names_are_not_in_the_audit_log_and_cannot_forge_it(acme: Organisation) -> None:
    forged = '"},{"action":"key.create","actor":"owner'
    taken(acme.owner.browser.patch("/api/account", json={"name": forged}))
    taken(acme.owner.browser.post(f"{OURS}/projects", json={"name": forged}))
    page = acme.owner.browser.get(f"{OURS}/audit_logs?limit=200")
    assert json.dumps(forged)[1:-1] not in page.text
    assert "project.create" in {entry["action"] for entry in page.json()["data"]}


@pytest.mark.parametrize(("taken_by", "imitation"), [("mike", "mi\u212ae"), ("KIM", "\u212aim"), ("kaé", "\u212aaé")])
def test_letters_that_only_look_alike_are_nobodys_address(acme: Organisation, taken_by: str, imitation: str) -> None:
    def sign_up(email: str) -> httpx.Response:
        invite = taken(acme.owner.browser.post(f"{OURS}/invites", json={}))["token"]
        with httpx.Client(base_url=acme.place.server.url) as http:
            return http.post("/api/signup", json={"email": email, "password": PASSWORD, "invite": invite})

    assert sign_up(f"{taken_by}@example.org").status_code == 204
    assert sign_up(f"{taken_by.upper()}@EXAMPLE.org").status_code == 409
    answer = sign_up(f"{imitation}@example.org")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "email")


def test_an_invite_makes_one_account_and_an_address_is_one_account(acme: Organisation, place: Installation) -> None:
    def invite() -> str:
        return str(taken(acme.owner.browser.post(f"{OURS}/invites", json={}))["token"])

    def sign_up(email: str, token: str) -> Callable[[], httpx.Response]:
        body = {"email": email, "password": PASSWORD, "invite": token}
        return lambda: httpx.post(f"{place.server.url}/api/signup", json=body, timeout=60)

    one = invite()
    assert at_once([sign_up(f"racer{n}@example.org", one) for n in range(8)]) == [204] + [404] * 7
    assert at_once([sign_up("racer@Example.org", invite()) for _ in range(8)]) == [204] + [409] * 7


def test_two_owners_who_turn_on_each_other_leave_one(acme: Organisation) -> None:
    other = acme.join("owner")

    def demotes(by: httpx.Client, whom: str) -> Callable[[], httpx.Response]:
        return lambda: by.patch(f"{OURS}/users/{whom}", json={"role": "member"})

    seen = at_once([demotes(acme.owner.browser, other.id), demotes(other.browser, acme.owner.id)])
    assert seen in ([200, 403], [200, 409]), seen
    users = acme.admin.browser.get(f"{OURS}/users").json()["data"]
    assert [user["role"] for user in users].count("owner") == 1
    roles = {user["id"]: user["role"] for user in users}
    winner, loser = (acme.owner, other) if roles[acme.owner.id] == "owner" else (other, acme.owner)
    taken(winner.browser.patch(f"{OURS}/users/{loser.id}", json={"role": "owner"}))


def test_of_many_first_users_one_becomes_the_owner(start_server: MakeServer) -> None:
    server = start_server()
    with installation(server) as place:
        browsers = [place.browser() for _ in range(8)]
        for browser in browsers:
            assert browser.get(server.signin).status_code == 303

        def first(number: int) -> Callable[[], httpx.Response]:
            body = {"email": f"first{number}@example.org", "password": PASSWORD}
            return lambda: browsers[number].post("/api/signup", json=body)

        assert at_once([first(number) for number in range(8)]) == [204] + [403] * 7
        users = place.operator.get(f"{OURS}/users").json()["data"]
        assert [user["role"] for user in users] == ["owner"]
        late = place.browser()
        body = {"email": "late@example.org", "password": PASSWORD}
        assert late.post("/api/signup", json=body).status_code == 403
        assert late.post("/api/signup", json=body | {"invite": ""}).status_code == 403


def test_who_was_removed_or_made_less_has_nothing_left_of_it(acme: Organisation) -> None:
    gone, less = acme.join("admin"), acme.join("admin")
    for person in (gone, less):
        assert person.program.get("/v1/organization/users").status_code == 200
    taken(acme.owner.browser.delete(f"{OURS}/users/{gone.id}"))
    taken(acme.owner.browser.patch(f"{OURS}/users/{less.id}", json={"role": "member"}))
    time.sleep(FRESH_S + 0.2)
    for http in gone.doors("/api/"):
        assert http.get(OURS).status_code == 401
    for http in less.doors("/api/"):
        refused(http.get(f"{OURS}/users"))
        refused(http.post(f"{OURS}/invites", json={}))
        refused(http.post(f"{OURS}/api_keys", json={"scopes": ["admin"]}))


def test_an_invite_is_no_way_back(acme: Organisation, place: Installation) -> None:
    """Whoever leaves, or is made less, has made invites while they still could."""
    gone, less, revoked = acme.join("owner"), acme.join("owner"), acme.join("owner")
    invites = [
        taken(http.post(path, json={"role": role}))["token"]
        for person in (gone, less, revoked)
        for role in ("owner", "admin")
        for http, path in ((person.browser, f"{OURS}/invites"), (person.program, "/v1/organization/invites"))
    ]
    taken(acme.owner.browser.delete(f"{OURS}/users/{gone.id}"))
    taken(acme.owner.browser.patch(f"{OURS}/users/{less.id}", json={"role": "admin"}))
    taken(acme.owner.browser.delete(f"{OURS}/api_keys/{revoked.key['id']}"))

    def sign_up(number: int, token: str) -> int:
        shown = httpx.get(f"{place.server.url}/api/invites/{token}").status_code
        body = {"email": f"back{number}@example.org", "password": PASSWORD, "invite": token}
        answer = httpx.post(f"{place.server.url}/api/signup", json=body)
        assert (shown, answer.status_code) in ((404, 404), (200, 204))
        return answer.status_code

    assert [sign_up(*each) for each in enumerate(invites)] == [
        *(404, 404, 404, 404),
        *(404, 404, 204, 204),
        *(204, 404, 204, 404),
    ]


def test_guesses_tell_nothing_of_who_is_there(acme: Organisation, place: Installation) -> None:
    guesses = [{"email": email, "password": "a wrong one"} for email in (acme.member.email, "nobody@example.org")]
    known, unknown = (httpx.post(f"{place.server.url}/api/session", json=guess) for guess in guesses)
    assert known.status_code == unknown.status_code == 401
    assert known.content == unknown.content
    assert set(known.headers) == set(unknown.headers)
