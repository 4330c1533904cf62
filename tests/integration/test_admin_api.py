"""The admin API of the real product, over HTTP, as a small company would use it."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.web import begin, conversation, finish
from tests.support.server import Server, until

PASSWORD = "quite a long one"
MISSING = "0" * 32
CHAT = {"model": "simulated", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}


class Company:
    """One installation: its owner has made an account by the printed link, and invited the others."""

    def __init__(self, server: Server):
        self.server = server
        self.browsers: list[httpx.Client] = []
        self.owner = self.browser()
        assert self.owner.get(server.signin).status_code == 303
        body = {"email": "owner@example.com", "password": PASSWORD, "name": "Owner"}
        assert self.owner.post("/api/signup", json=body).status_code == 204
        self.admin = self.invited("admin", self.owner)
        self.member = self.invited("member", self.admin)

    def browser(self) -> httpx.Client:
        made = httpx.Client(base_url=self.server.url, headers={"origin": self.server.url}, timeout=60)
        self.browsers.append(made)
        return made

    def program(self, key: str) -> httpx.Client:
        made = httpx.Client(base_url=self.server.url, headers={"authorization": f"Bearer {key}"}, timeout=60)
        self.browsers.append(made)
        return made

    def invited(self, role: str, by: httpx.Client, email: str = "") -> httpx.Client:
        invite = by.post("/api/organization/invites", json={"role": role})
        assert invite.status_code == 201, invite.text
        browser = self.browser()
        body = {"email": email or f"{role}@example.com", "password": PASSWORD, "invite": invite.json()["token"]}
        answer = browser.post("/api/signup", json=body)
        assert answer.status_code == 204, answer.text
        return browser


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    with Server(tmp_path_factory.mktemp("company"), model="simulated", EMBEDDING_MODEL="none") as server:
        made = Company(server)
        yield made
        for browser in made.browsers:
            browser.close()


def me(browser: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = browser.get("/api/session").json()["user"]
    return found


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


def test_roles_are_kept_over_http(company: Company) -> None:
    assert [b.get("/api/session").json()["role"] for b in (company.owner, company.admin, company.member)] == [
        "owner", "admin", "member",
    ]  # fmt: skip
    refused(company.member.get("/api/organization/users"), 403, "forbidden")
    owner = me(company.owner)["id"]
    refused(company.admin.patch(f"/api/organization/users/{owner}", json={"role": "member"}), 403, "forbidden")
    refused(company.owner.patch(f"/api/organization/users/{owner}", json={"role": "member"}), 409, "conflict")
    refused(company.admin.post("/api/organization/invites", json={"role": "owner"}), 403, "forbidden")
    refused(company.admin.get("/api/organizations"), 403, "forbidden")
    assert [o["id"] for o in company.owner.get("/api/organizations").json()["data"]] == ["local"]


def test_conversations_of_one_are_not_the_others(company: Company) -> None:
    mine = conversation(company.owner)
    for other in (company.admin, company.member):
        refused(other.get(f"/api/conversations/{mine}"), 404, "not_found")
        assert other.get("/api/conversations").json()["data"] == []


def test_a_key_works_until_it_is_revoked_and_its_session_ends_with_it(company: Company) -> None:
    made = company.member.post("/api/organization/api_keys", json={"name": "app"}).json()
    program, browser = company.program(made["secret"]), company.browser()
    assert program.post("/v1/chat/completions", json=CHAT).status_code == 200
    assert browser.post("/api/session", json={"key": made["secret"]}).status_code == 204
    refused(company.owner.delete(f"/api/organization/api_keys/key_{MISSING}"), 404, "not_found")
    assert company.owner.delete(f"/api/organization/api_keys/{made['id']}").status_code == 204
    until(lambda: program.get("/v1/models").status_code == 401, 5, "the key's end")
    until(lambda: browser.get("/api/session").status_code == 401, 5, "the session's end")
    assert made["secret"] not in company.server.log


def test_a_key_does_only_what_its_scopes_say(company: Company) -> None:
    body = {"name": "reader", "scopes": ["model.read"]}
    program = company.program(company.owner.post("/api/organization/api_keys", json=body).json()["secret"])
    assert program.get("/v1/models").status_code == 200
    refused(program.post("/v1/chat/completions", json=CHAT), 403, "missing_scope")
    refused(program.get("/v1/usage"), 403, "missing_scope")
    refused(program.get("/api/conversations"), 403, "missing_scope")
    refused(program.get("/v1/organization/users"), 403, "missing_scope")
    refused(program.post("/v1/organization/api_keys", json={}), 403, "missing_scope")


def test_programs_have_the_same_verbs_and_strict_bodies(company: Company) -> None:
    scopes = ["admin", "operator", "usage.read"]
    made = company.owner.post("/api/organization/api_keys", json={"scopes": scopes}).json()
    program = company.program(made["secret"])
    assert program.get("/v1/organization").json() == company.owner.get("/api/organization").json()
    assert program.get("/v1/organization/users").json() == company.owner.get("/api/organization/users").json()
    assert {t["name"] for t in program.get("/v1/tiers").json()["data"]} >= {"free", "enterprise"}
    for body in (
        b'{"name": "a", "name": "b"}',
        b'{"name": NaN}',
        b'{"name": "\xff"}',
        b"[" * 100_000,
        b'{"name": "\\ud800"}',
    ):
        for method, path in (("POST", "/v1/organization/projects"), ("PATCH", "/v1/organization")):
            answer = program.request(method, path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400, (body[:40], answer.text)


def test_what_another_organisation_has_is_missing(company: Company) -> None:
    made = company.owner.post("/api/organizations", json={"name": "Guests", "tier": "free"}).json()
    guest = company.browser()
    body = {"email": "guest@example.com", "password": PASSWORD, "invite": made["invite"]["token"]}
    assert guest.post("/api/signup", json=body).status_code == 204
    key = company.owner.post("/api/organization/api_keys", json={}).json()
    for method, path, id in (
        ("GET", "users", me(company.member)["id"]), ("PATCH", "users", me(company.member)["id"]),
        ("DELETE", "users", me(company.member)["id"]), ("DELETE", "api_keys", key["id"]),
    ):  # fmt: skip
        theirs, missing = (guest.request(method, f"/api/organization/{path}/{name}", json={} if method == "PATCH" else None)
                           for name in (id, id[:-32] + MISSING))  # fmt: skip
        assert (theirs.status_code, missing.status_code) == (404, 404)
        assert theirs.json() == missing.json()
    refused(guest.get("/api/organizations"), 403, "missing_scope")
    assert company.owner.patch(f"/api/organizations/{made['id']}", json={"suspended": True}).json()["suspended"]
    until(lambda: guest.get("/api/session").status_code == 401, 6, "the guests' suspension")


def test_usage_is_told_to_those_whose_it_is(company: Company) -> None:
    one = conversation(company.member, parameters={"max_tokens": 3})
    usage = finish(company.member, begin(company.member, one)["answer"]["id"])["usage"]

    def own() -> dict[str, Any]:
        found: dict[str, Any] = company.member.get("/api/usage?bucket=all").json()
        return found

    until(lambda: own()["data"], 10, "the usage's way into the ledger", pause=0.1)
    assert own()["data"][0]["output_tokens"] >= usage["completion_tokens"] > 0
    until(lambda: len(company.member.get("/api/usage.csv").text.splitlines()) > 1, 10, "the line", pause=0.1)
    rows = list(csv.DictReader(io.StringIO(company.member.get("/api/usage.csv").text)))
    assert {row["user_id"] for row in rows} == {me(company.member)["id"]}
    whole = company.admin.get("/api/usage?bucket=all&group_by=user_id").json()
    assert me(company.member)["id"] in {total["group"]["user_id"] for total in whole["data"]}


def test_deeds_are_in_the_audit_log_without_secrets(company: Company) -> None:
    made = company.admin.post("/api/organization/api_keys", json={"name": "noted"}).json()
    entries = company.admin.get("/api/organization/audit_logs?limit=200").json()["data"]
    assert {"signin.link", "user.create", "invite.create", "key.create"} <= {e["action"] for e in entries}
    assert entries[0]["target"] == made["id"]
    assert entries[0]["actor"] == me(company.admin)["id"]
    assert [e["seq"] for e in entries] == sorted((e["seq"] for e in entries), reverse=True)
    everything = str(entries) + company.server.log
    assert not [secret for secret in (made["secret"], PASSWORD) if secret in everything]


def test_the_password_is_throttled_and_headers_move_no_attempt(company: Company) -> None:
    body = {"email": "nobody@example.com", "password": "guess after guess"}
    seen = []
    with httpx.Client(base_url=company.server.url) as guesser:
        for n in range(12):
            headers = {
                "x-forwarded-for": f"198.51.100.{n}",
                "forwarded": f"for=198.51.100.{n}",
                "x-real-ip": f"198.51.100.{n}",
            }
            seen.append(guesser.post("/api/session", json=body, headers=headers))
    assert seen[0].status_code == 401
    refused(seen[-1], 429, "too_many_attempts")
    assert int(seen[-1].headers["retry-after"]) >= 1
