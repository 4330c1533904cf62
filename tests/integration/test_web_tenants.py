"""Another tenant's ids are as missing as those that never were, on every route."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.integration.web import begin, conversation, events, finish
from tests.support.server import Server
from tests.support.tenants import new_key

NO_CONVERSATION = "conv_" + "0" * 32
NO_MESSAGE = "msg_" + "0" * 32


@pytest.fixture(scope="module")
def other_key(simulated_server: Server) -> str:
    return new_key(simulated_server.home, "other")


@contextmanager
def signed_in(server: Server, key: str) -> Iterator[httpx.Client]:
    """A browser, with a session that the key has opened."""
    with httpx.Client(base_url=server.url, timeout=60) as browser:
        assert browser.post("/api/session", json={"key": key}).status_code == 204
        yield browser


@pytest.fixture
def mine(simulated_server: Server) -> Iterator[httpx.Client]:
    with signed_in(simulated_server, simulated_server.key) as made:
        yield made


@pytest.fixture
def other(simulated_server: Server, other_key: str) -> Iterator[httpx.Client]:
    """Of a second organisation."""
    with signed_in(simulated_server, other_key) as made:
        yield made


def same(theirs: httpx.Response, missing: httpx.Response, *ids: str) -> None:
    def told(answer: httpx.Response) -> str:
        text = answer.text
        for name in ids:
            text = text.replace(name, "ID")
        return text

    assert theirs.status_code == missing.status_code == 404, theirs.text
    assert told(theirs) == told(missing)
    assert set(theirs.headers) == set(missing.headers)


def test_every_route_answers_as_if_there_were_nothing(mine: httpx.Client, other: httpx.Client) -> None:
    one = conversation(mine, system_prompt="secret prompt")
    begun = begin(mine, one, content="secret words")
    user, answer = begun["user"]["id"], begun["answer"]["id"]
    own = conversation(other)
    calls: list[tuple[str, str, Any]] = [
        ("GET", "/api/conversations/{c}", None),
        ("PATCH", "/api/conversations/{c}", {"title": "taken"}),
        ("PATCH", "/api/conversations/{c}", {"leaf_id": "{m}"}),
        ("PATCH", f"/api/conversations/{own}", {"leaf_id": "{m}"}),
        ("DELETE", "/api/conversations/{c}", None),
        ("POST", "/api/conversations/{c}/turns", {"content": "hi"}),
        ("POST", "/api/conversations/{c}/turns", {"regenerate": "{m}"}),
        ("POST", "/api/conversations/{c}/turns", {"continue": "{m}"}),
        ("POST", f"/api/conversations/{own}/turns", {"content": "hi", "parent_id": "{m}"}),
        ("POST", f"/api/conversations/{own}/turns", {"regenerate": "{m}"}),
        ("POST", f"/api/conversations/{own}/turns", {"continue": "{m}"}),
        ("GET", "/api/turns/{m}/events", None),
        ("GET", "/api/turns/{m}/events?from=3", None),
        ("POST", "/api/turns/{m}/stop", None),
    ]

    def call(method: str, path: str, body: Any, c: str, m: str) -> httpx.Response:
        filled = None if body is None else {k: v.replace("{m}", m) for k, v in body.items()}
        return other.request(method, path.replace("{c}", c).replace("{m}", m), json=filled)

    for method, path, body in calls:
        for message in (answer, user):
            theirs = call(method, path, body, one, message)
            missing = call(method, path, body, NO_CONVERSATION, NO_MESSAGE)
            same(theirs, missing, one, message, NO_CONVERSATION, NO_MESSAGE)
            assert "secret" not in theirs.text
    assert finish(mine, answer)["status"] == "complete", "a stranger stopped the turn"
    assert mine.get(f"/api/conversations/{one}").json()["title"] == "secret words"


def test_lists_and_search_hold_only_ones_own(mine: httpx.Client, other: httpx.Client) -> None:
    one = conversation(mine, parameters={"max_tokens": 1})
    finish(mine, begin(mine, one, content="canary-4711")["answer"]["id"])
    theirs = other.get("/api/conversations", params={"q": "canary-4711", "limit": 200}).json()
    assert theirs == {"data": [], "more": False}
    assert one not in {c["id"] for c in other.get("/api/conversations", params={"limit": 200}).json()["data"]}
    assert one in {c["id"] for c in mine.get("/api/conversations", params={"q": "canary-4711"}).json()["data"]}


def test_a_message_id_that_another_tenant_has_is_not_told_apart(mine: httpx.Client, other: httpx.Client) -> None:
    name = f"msg_{secrets.token_hex(16)}"
    begin(mine, conversation(mine), content="secret", id=name)
    taken = other.post(f"/api/conversations/{conversation(other)}/turns", json={"content": "secret", "id": name})
    assert taken.status_code == 409
    assert "secret" not in taken.text


def test_the_same_words_of_two_tenants_stay_apart(mine: httpx.Client, other: httpx.Client) -> None:
    answers = [begin(http, conversation(http), content="same words")["answer"]["id"] for http in (mine, other)]
    assert answers[0] != answers[1]
    for http, own, foreign in ((mine, answers[0], answers[1]), (other, answers[1], answers[0])):
        assert list(events(http, own))
        assert http.get(f"/api/turns/{foreign}/events").status_code == 404
