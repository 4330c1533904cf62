"""Conversations of the web app: create, read, change, search, page, delete. See docs/web-api.md."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import MakeServer
from tests.integration.web import begin, conversation, finish, messages
from tests.support.server import MODEL, SIMULATED, Server

CONVERSATION = {"id", "title", "model", "system_prompt", "parameters", "leaf_id", "created", "updated"}
MESSAGE = {
    "id", "conversation_id", "parent_id", "role", "content", "status", "model", "finish_reason", "error", "usage", "created",
}  # fmt: skip


@pytest.fixture
def http(simulated_server: Server) -> Iterator[httpx.Client]:
    with simulated_server.client() as made:
        yield made


def test_a_conversation_is_made_read_changed_and_deleted(http: httpx.Client) -> None:
    parameters = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 3}
    made = http.post("/api/conversations", json={"system_prompt": "Be brief.", "parameters": parameters}).json()
    assert set(made) == CONVERSATION
    assert (made["title"], made["model"], made["leaf_id"]) == ("", "", None)
    assert made["parameters"] == parameters
    read = http.get(f"/api/conversations/{made['id']}").json()
    assert read == made | {"messages": []}
    changed = http.patch(f"/api/conversations/{made['id']}", json={"title": "Ünïcode 🎵", "parameters": {}}).json()
    assert (changed["title"], changed["parameters"], changed["system_prompt"]) == ("Ünïcode 🎵", {}, "Be brief.")
    assert changed["updated"] > made["updated"]
    assert http.delete(f"/api/conversations/{made['id']}").status_code == 204
    for gone in (
        http.get(f"/api/conversations/{made['id']}"),
        http.delete(f"/api/conversations/{made['id']}"),
        http.patch(f"/api/conversations/{made['id']}", json={"title": "x"}),
    ):
        assert gone.status_code == 404


def test_messages_have_every_field_and_title_and_leaf_follow(http: httpx.Client) -> None:
    one = conversation(http)
    begun = begin(http, one, content="  What is a choir?\nTell me.", parameters={"max_tokens": 3})
    assert set(begun["user"]) == set(begun["answer"]) == MESSAGE
    assert begun["answer"]["status"] == "running"
    assert begun["answer"]["parent_id"] == begun["user"]["id"]
    saved = finish(http, begun["answer"]["id"])
    assert set(saved) == MESSAGE
    assert (saved["status"], saved["finish_reason"], saved["error"]) == ("complete", "length", None)
    assert {"prompt_tokens", "completion_tokens", "ttft_s", "tokens_per_s"} <= set(saved["usage"])
    now = http.get(f"/api/conversations/{one}").json()
    assert now["title"] == "What is a choir?"
    assert now["leaf_id"] == saved["id"]
    assert (now["model"], now["parameters"]) == (SIMULATED, {"max_tokens": 3})
    assert list(messages(http, one)) == [begun["user"]["id"], saved["id"]]
    assert messages(http, one)[saved["id"]] == saved


def test_search_finds_titles_and_messages_in_any_script_and_case(http: httpx.Client) -> None:
    one, two = conversation(http), conversation(http)
    http.patch(f"/api/conversations/{one}", json={"title": "Größenwahn of Zanzibar"})
    finish(http, begin(http, two, content="Der Übermut 東京 100%_x", parameters={"max_tokens": 1})["answer"]["id"])

    def found(q: str) -> set[str]:
        return {c["id"] for c in http.get("/api/conversations", params={"q": q, "limit": 200}).json()["data"]}

    assert one in found("zanZIBAR")
    assert one in found("größen")
    assert two in found("übermut")
    assert two in found("東京")
    assert two in found("100%_X")
    assert two not in found("100%%x")
    assert not {one, two} & found("no such words")


def test_pages_hold_each_conversation_once_newest_first(http: httpx.Client) -> None:
    made = [conversation(http) for _ in range(7)]
    seen: list[str] = []
    before: float | None = None
    while len(seen) < 7:
        query: dict[str, Any] = {"limit": 3} | ({} if before is None else {"before": before})
        page = http.get("/api/conversations", params=query).json()
        assert [c["updated"] for c in page["data"]] == sorted((c["updated"] for c in page["data"]), reverse=True)
        seen += [c["id"] for c in page["data"]]
        before = page["data"][-1]["updated"]
        if len(seen) < 7:
            assert page["more"]
    assert seen[:7] == made[::-1]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/conversations?limit=0", None), ("GET", "/api/conversations?limit=201", None),
        ("GET", "/api/conversations?before=nan", None), ("GET", "/api/conversations?before=x", None),
        ("GET", "/api/conversations?q=" + "x" * 501, None),
        ("POST", "/api/conversations", {"parameters": {"temperature": 3}}),
        ("POST", "/api/conversations", {"parameters": {"surprise": 1}}), ("POST", "/api/conversations", {"title": 5}),
        ("POST", "/api/conversations", {"system_prompt": "x" * 100_001}), ("PATCH", "{one}", {"title": ""}),
        ("PATCH", "{one}", {"title": "x" * 201}), ("POST", "{one}/turns", {}), ("POST", "{one}/turns", {"content": ""}),
        ("POST", "{one}/turns", {"content": "a", "regenerate": "msg_" + "0" * 32}),
        ("POST", "{one}/turns", {"content": "a", "parent_id": "nonsense"}),
        ("POST", "{one}/turns", {"content": "a", "id": "msg_XYZ"}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_name(http: httpx.Client, method: str, path: str, body: Any) -> None:
    one = f"/api/conversations/{conversation(http)}"
    refused = http.request(method, path.format(one=one), json=body)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"]


def test_what_does_not_exist_is_not_found(http: httpx.Client) -> None:
    one = f"/api/conversations/{conversation(http)}"
    missing = "msg_" + "0" * 32
    for body in ({"content": "a", "parent_id": missing}, {"regenerate": missing}, {"continue": missing}):
        assert http.post(f"{one}/turns", json=body).status_code == 404
    assert (
        http.post(f"{one}/turns", json={"content": "a", "model": "missing"}).json()["error"]["code"]
        == "model_not_found"
    )
    assert http.get(f"/api/turns/{missing}/events").status_code == 404
    assert http.post(f"/api/turns/{missing}/stop").status_code == 404
    assert http.patch(one, json={"leaf_id": missing}).status_code == 404
    assert messages(http, one.rpartition("/")[2]) == {}, "a refused turn left a message"


def test_the_models_are_those_that_chat(server: Server) -> None:
    with server.client() as http:
        found = http.get("/api/models").json()
    assert [m["id"] for m in found["data"]] == [found["default"]] == [MODEL]
    assert found["data"][0]["context_window"] >= 2048


def test_history_beyond_the_window_drops_the_oldest_and_still_answers(start_real_server: MakeServer) -> None:
    window = 512
    server = start_real_server(CONTEXT_WINDOW=str(window))
    with server.client() as http:
        assert http.get("/api/models").json()["data"][0]["context_window"] == window
        one = conversation(http, system_prompt="Be brief.", parameters={"max_tokens": 2})
        parent, dropped = None, []
        for turn in range(6):
            content = f"Turn {turn}. " + "one two three four five six seven eight " * 12
            saved = finish(http, begin(http, one, content=content, parent_id=parent)["answer"]["id"])
            assert saved["status"] == "complete", saved
            assert saved["usage"]["prompt_tokens"] < window
            parent = saved["id"]
            dropped.append(saved["usage"].get("dropped_messages", 0))
        assert dropped[0] == 0
        assert dropped[-1] > 0
        assert dropped == sorted(dropped)
        assert len(messages(http, one)) == 12, "what the prompt leaves out is still stored"
        too_long = finish(http, begin(http, one, content="word " * 2 * window, parent_id=parent)["answer"]["id"])
        assert too_long["status"] == "error"
        assert "window" in too_long["error"]
