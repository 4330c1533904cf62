"""The web app's API over ASGI, as docs/web-api.md says it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import COOKIE
from services.common.errors import EngineFailed
from services.common.messages import Finished, TextDelta, Usage
from tests.unit.gateway.driving import Exchanged, Gateway, gateway
from tests.unit.services.chat.parts import ScriptedEngine, until

MESSAGE = {
    "id", "conversation_id", "parent_id", "role", "content", "status", "model", "finish_reason", "error", "usage", "created",
}  # fmt: skip
CONVERSATION = {"id", "title", "model", "system_prompt", "parameters", "leaf_id", "created", "updated"}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def edge(template: Path, tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[Gateway]:
    async with gateway(template, tmp_path, engine, heartbeat=0.05) as made:
        yield made


async def call(edge: Gateway, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    x = await edge.call(path, b"" if body is None else body, method=method).done()
    assert x.status == status, x.data
    return x.json if x.data else None


async def start(edge: Gateway, status: int = 201, **body: Any) -> Any:
    conversation = body.pop("conversation", None) or (await call(edge, "POST", "/api/conversations", {}, 201))["id"]
    return await call(edge, "POST", f"/api/conversations/{conversation}/turns", body, status)


def events(x: Exchanged) -> list[tuple[int, Any]]:
    """(id, data) of every event; comments are left out."""
    out = []
    for frame in x.frames:
        if frame != ": ping":
            number, data = frame.split("\n")
            out.append((int(number.removeprefix("id: ")), json.loads(data.removeprefix("data: "))))
    return out


async def test_a_conversation_has_every_field_even_where_it_is_empty(edge: Gateway) -> None:
    made = await call(edge, "POST", "/api/conversations", {}, 201)
    assert set(made) == CONVERSATION
    assert (made["title"], made["parameters"], made["leaf_id"]) == ("", {}, None)
    whole = {"model": "simulated", "system_prompt": "s", "parameters": {"top_p": 0.5}}
    made = await call(edge, "POST", "/api/conversations", whole, 201)
    assert {k: made[k] for k in whole} == whole
    assert await call(edge, "GET", f"/api/conversations/{made['id']}") == made | {"messages": []}


async def test_a_turn_is_started_followed_and_found_in_its_conversation(edge: Gateway, engine: ScriptedEngine) -> None:
    pair = await start(edge, content="Hi")
    user, answer = pair["user"], pair["answer"]
    assert set(user) == set(answer) == MESSAGE
    assert (user["finish_reason"], user["error"], user["usage"]) == (None, None, {})
    stream = edge.call(f"/api/turns/{answer['id']}/events", method="GET")
    engine.say(TextDelta(0, "Hello\u2028"))
    await until(lambda: b"Hello" in stream.data and b": ping" in stream.data)
    engine.say(TextDelta(0, "\n\ndata: x"), Finished(0, "stop"), Usage(2, 2))
    engine.end()
    await stream.done()
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    *texts, (last, done) = events(stream)
    assert texts == [(1, {"text": "Hello\u2028"}), (2, {"text": "\n\ndata: x"})]
    assert (last, done["done"]["content"], done["done"]["status"]) == (3, "Hello\u2028\n\ndata: x", "complete")
    found = await call(edge, "GET", f"/api/conversations/{user['conversation_id']}")
    assert found["messages"] == [user, done["done"]]
    assert (found["title"], found["leaf_id"]) == ("Hi", answer["id"])


@pytest.mark.parametrize("how", ["from", "Last-Event-ID"])
async def test_a_lost_stream_goes_on_where_it_was(edge: Gateway, engine: ScriptedEngine, how: str) -> None:
    answer = (await start(edge, content="Hi"))["answer"]
    for word in ("a", "b", "c"):
        engine.say(TextDelta(0, word))
        await asyncio.sleep(0.005)
    path = f"/api/turns/{answer['id']}/events" + ("?from=2" if how == "from" else "?from=0")
    stream = edge.call(path, method="GET", **({} if how == "from" else {"last_event_id": "2"}))
    await until(lambda: b'"c"' in stream.data)
    engine.end()
    assert [e for e in events(await stream.done()) if "text" in e[1]] == [(3, {"text": "c"})]


async def test_closing_the_stream_stops_nothing(edge: Gateway, engine: ScriptedEngine) -> None:
    answer = (await start(edge, content="Hi"))["answer"]
    stream = edge.call(f"/api/turns/{answer['id']}/events", method="GET")
    await until(lambda: bool(stream.sent))
    stream.leave()
    await stream.done()
    assert engine.running == 1


async def test_a_failed_turn_ends_with_the_error_and_the_message(edge: Gateway, engine: ScriptedEngine) -> None:
    answer = (await start(edge, content="Hi"))["answer"]
    engine.say(TextDelta(0, "Half"))
    stream = edge.call(f"/api/turns/{answer['id']}/events", method="GET")
    await until(lambda: b"Half" in stream.data)  # it follows; what comes later finds the turn ended
    engine.fail(EngineFailed("It died."))
    _, last = events(await stream.done())[-1]
    assert last["error"]["code"] == "engine_failed"
    assert (last["message"]["status"], last["message"]["content"]) == ("interrupted", "Half")


async def test_stop_and_delete_end_the_engine(edge: Gateway, engine: ScriptedEngine) -> None:
    answer = (await start(edge, content="Hi"))["answer"]
    await until(lambda: engine.running == 1)
    await call(edge, "POST", f"/api/turns/{answer['id']}/stop", status=204)
    assert engine.running == 0
    found = await call(edge, "GET", f"/api/conversations/{answer['conversation_id']}")
    assert found["messages"][-1]["status"] == "stopped"
    await start(edge, conversation=answer["conversation_id"], content="More")
    await until(lambda: engine.running == 1)
    await call(edge, "DELETE", f"/api/conversations/{answer['conversation_id']}", status=204)
    assert engine.running == 0
    await call(edge, "GET", f"/api/conversations/{answer['conversation_id']}", status=404)


async def test_sending_a_message_again_is_200_and_a_second_turn_409(edge: Gateway) -> None:
    conversation = (await call(edge, "POST", "/api/conversations", {}, 201))["id"]
    body = {"conversation": conversation, "content": "Hi", "id": "msg_" + "c" * 32}
    first = await start(edge, **body)
    assert await start(edge, 200, **body) == first
    assert (await start(edge, 409, conversation=conversation, content="x"))["error"]["code"] == "conflict"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "content"), ({"content": "x", "regenerate": "msg_" + "0" * 32}, "content"), ({"content": ""}, "content"),
        ({"content": 5}, "content"), ({"content": "x", "id": "msg_1"}, "id"), ({"content": "x", "parent_id": "1"}, "parent_id"),
        ({"continue": 1}, "continue"), ({"content": "x", "parameters": {"temperature": 3}}, "parameters.temperature"),
        ({"content": "x", "parameters": {"top_k": 3}}, "parameters.top_k"), ({"content": "x", "y": 1}, "y"),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_a_turn_is_named(edge: Gateway, body: dict[str, Any], param: str) -> None:
    refused = await start(edge, 400, **body)
    assert (refused["error"]["type"], refused["error"]["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize("query", ["?limit=0", "?limit=201", "?limit=x", "?before=x", "?before=nan", "?q=" + "x" * 501])
async def test_a_bad_query_is_a_400(edge: Gateway, query: str) -> None:
    refused = await call(edge, "GET", f"/api/conversations{query}", status=400)
    assert refused["error"]["param"] == query[1:].split("=")[0]


async def test_conversations_are_found_page_by_page_newest_first(edge: Gateway) -> None:
    ids = [(await call(edge, "POST", "/api/conversations", {}, 201))["id"] for _ in range(5)]
    await call(edge, "PATCH", f"/api/conversations/{ids[0]}", {"title": "Grüße"})
    first = await call(edge, "GET", "/api/conversations?limit=3")
    assert [c["id"] for c in first["data"]] == [ids[0], ids[4], ids[3]]
    assert first["more"] is True
    rest = await call(edge, "GET", f"/api/conversations?limit=3&before={first['data'][-1]['updated']!r}")
    assert ([c["id"] for c in rest["data"]], rest["more"]) == ([ids[2], ids[1]], False)
    assert [c["id"] for c in (await call(edge, "GET", "/api/conversations?q=GR%C3%9C"))["data"]] == [ids[0]]


async def test_what_is_missing_is_404_in_the_one_shape(edge: Gateway) -> None:
    none = "conv_" + "0" * 32
    made = (await call(edge, "POST", "/api/conversations", {}, 201))["id"]
    answer = "msg_" + "0" * 32
    for method, path, body in [
        ("GET", f"/api/conversations/{none}", None), ("PATCH", f"/api/conversations/{none}", {"title": "x"}),
        ("DELETE", f"/api/conversations/{none}", None), ("POST", f"/api/conversations/{none}/turns", {"content": "x"}),
        ("GET", f"/api/turns/{answer}/events", None), ("POST", f"/api/turns/{answer}/stop", None),
        ("PATCH", f"/api/conversations/{made}", {"leaf_id": answer}),
        ("POST", f"/api/conversations/{made}/turns", {"regenerate": answer}),
    ]:  # fmt: skip
        refused = await call(edge, method, path, body, 404)
        assert set(refused["error"]) == {"message", "type", "param", "code"}


async def test_models_are_those_that_chat(edge: Gateway) -> None:
    found = await call(edge, "GET", "/api/models")
    assert found["default"] == "simulated"
    assert {"id": "simulated", "context_window": 8192} in found["data"]


async def test_writes_with_a_cookie_need_the_pages_own_origin(edge: Gateway) -> None:
    into = await edge.call("/api/session", {"key": edge.key}).done()
    cookie = into.headers["set-cookie"].split(";")[0]
    assert cookie.startswith(COOKIE)
    for origin, status in [("http://localhost", 201), ("http://evil.example", 403), ("null", 403)]:
        own = {"host": "localhost", "cookie": cookie, "origin": origin, "content-type": "application/json"}
        x = await Exchanged(edge.app, "/api/conversations", {}, headers=own).done()
        assert x.status == status
