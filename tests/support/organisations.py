"""Organisations on a running server, whose people ask by cookie or by key, and what they have."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from tests.support.server import Server

PASSWORD = "quite a long one"
ROLES = ("owner", "admin", "member")


class Person:
    """`browser` has a session's cookie, and the page's Origin; `program` a key with all the rights that it may have."""

    def __init__(self, place: "Installation", invite: str, role: str):
        self.role = role
        self.email = f"{secrets.token_hex(8)}@example.com"
        self.browser = place.browser()
        taken(self.browser.post("/api/signup", json={"email": self.email, "password": PASSWORD, "invite": invite}))
        self.session = self.browser.get("/api/session").json()
        self.id: str = self.session["user"]["id"]
        self.key = self.new_key()
        self.program = place.program(self.key["secret"])

    def new_key(self, **fields: Any) -> dict[str, Any]:
        asked = {"name": "all", "scopes": self.session["scopes"]} | fields
        return taken(self.browser.post("/api/organization/api_keys", json=asked))

    def doors(self, path: str) -> list[httpx.Client]:
        """What may be asked there: cookies count for nothing on /v1."""
        return [self.program] if path.startswith("/v1/") else [self.program, self.browser]


class Organisation:
    def __init__(self, place: "Installation", name: str, tier: str):
        self.place = place
        made = taken(place.operator.post("/api/organizations", json={"name": name, "tier": tier}))
        self.id: str = made["id"]
        self.owner = Person(place, made["invite"]["token"], "owner")
        self.admin = self.join("admin")
        self.member = self.join("member")
        self.people = (self.owner, self.admin, self.member)

    def join(self, role: str = "member") -> Person:
        invite = taken(self.owner.browser.post("/api/organization/invites", json={"role": role}))
        return Person(self.place, invite["token"], role)


class Installation:
    """`operator`: a browser of the owner of the machine, who has no account."""

    def __init__(self, server: Server, stack: ExitStack):
        self.server = server
        self._stack = stack
        self.operator = self.browser()
        if server.signin:
            assert self.operator.get(server.signin).status_code == 303

    def browser(self, url: str = "") -> httpx.Client:
        url = url or self.server.url
        return self._stack.enter_context(httpx.Client(base_url=url, headers={"origin": url}, timeout=60))

    def program(self, key: str, url: str = "") -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"}
        return self._stack.enter_context(
            httpx.Client(base_url=url or self.server.url, headers=headers, timeout=60)
        )  # fmt: skip

    def organisation(self, name: str, tier: str = "enterprise") -> Organisation:
        return Organisation(self, name, tier)


@contextmanager
def installation(server: Server) -> Iterator[Installation]:
    with ExitStack() as stack:
        yield Installation(server, stack)


def taken(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code in (200, 201, 204), (str(answer.request.url), answer.text)
    found: dict[str, Any] = answer.json() if answer.content else {}
    return found


class Things:
    """Objects of one person or of their organisation, by the name that a route has for their id; made when first asked for.

    All messages are of the conversation `conversation_id`, whose turns are short, and over.
    """

    def __init__(self, of: Organisation, person: Person):
        self._of = of
        self._person = person
        self._ids: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        name = SAME.get(name, name)
        if name not in self._ids:
            self._ids[name] = MAKERS[name](self)
        return self._ids[name]

    def known(self, **ids: str) -> None:
        """Objects that are there already."""
        self._ids |= ids

    def organisation(self) -> str:
        return self._of.id

    def user(self) -> str:
        return self._of.join().id

    def invite(self) -> str:
        return str(taken(self._of.owner.browser.post("/api/organization/invites", json={}))["id"])

    def project(self) -> str:
        return str(taken(self._of.owner.browser.post("/api/organization/projects", json={"name": "P"}))["id"])

    def service_account(self) -> str:
        return str(taken(self._of.owner.browser.post("/api/organization/service_accounts", json={"name": "S"}))["id"])

    def key(self) -> str:
        return str(self._person.new_key()["id"])

    def conversation(self) -> str:
        short = {"parameters": {"max_tokens": 1}, "system_prompt": "secret prompt"}
        return str(taken(self._person.browser.post("/api/conversations", json=short))["id"])

    def answer(self) -> str:
        path = f"/api/conversations/{self['conversation_id']}/turns"
        answer = taken(self._person.browser.post(path, json={"content": "secret words"}))["answer"]["id"]
        assert "done" in self._person.browser.get(f"/api/turns/{answer}/events").text
        return str(answer)


MAKERS: dict[str, Callable[[Things], str]] = {
    "organization_id": Things.organisation,
    "user_id": Things.user,
    "invite_id": Things.invite,
    "project_id": Things.project,
    "service_account_id": Things.service_account,
    "key_id": Things.key,
    "conversation_id": Things.conversation,
    "answer_id": Things.answer,
}
SAME = {
    "owner": "service_account_id",
    "project": "project_id",
    "actor": "user_id",
    "leaf_id": "answer_id",
    "parent_id": "answer_id",
    "regenerate": "answer_id",
    "continue": "answer_id",
}
"""Names of the query and of bodies that are ids of the same kinds."""
