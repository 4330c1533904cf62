"""One request at the edge, from the first byte to the log line, without a server between."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from inference.engines.simulated import SimulatedEngine
from services.common.errors import EngineFailed
from services.common.messages import Finished, TextDelta, Usage
from tests.unit.gateway.driving import CHAT, Gateway, gateway
from tests.unit.services.chat.parts import ScriptedEngine, until

SECRET = "password=hunter2"
SLOW = {"ttft": 0.01, "itl": 0.01, "length": 1000}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def edge(template: Path, tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[Gateway]:
    async with gateway(template, tmp_path, engine, max_body_bytes=20_000) as made:
        yield made


@pytest.fixture
async def slow(template: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(template, tmp_path, SimulatedEngine(**SLOW)) as made:
        yield made


async def test_a_stream_ends_with_finish_usage_and_done(edge: Gateway, engine: ScriptedEngine) -> None:
    engine.say(TextDelta(0, "Hello"))
    engine.say(Finished(0, "stop"), Usage(2, 1))
    engine.end()
    x = await edge.chat(stream=True, stream_options={"include_usage": True}).done()
    assert (x.status, x.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    *chunks, done = x.frames
    assert done == "data: [DONE]"
    assert json.loads(chunks[-1][6:])["usage"]["total_tokens"] == 3
    assert json.loads(chunks[-2][6:])["choices"][0]["finish_reason"] == "stop"
    assert engine.requests[0].tenant == "local"
    assert engine.requests[0].request_id == x.headers["x-request-id"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_failure_before_the_first_byte_is_a_status(edge: Gateway, engine: ScriptedEngine, stream: bool) -> None:
    engine.fail(EngineFailed("The engine stopped.", retry_after=2))
    x = await edge.chat(stream=stream).done()
    assert (x.status, x.headers["retry-after"]) == (503, "2")
    assert x.error == {"message": "The engine stopped.", "type": "server_error", "param": None, "code": "engine_failed"}


@pytest.mark.parametrize(
    ("error", "code"), [(EngineFailed("It died."), "engine_failed"), (KeyError(SECRET), "internal_error")]
)
async def test_a_failure_after_the_first_byte_is_one_event_and_no_end_that_looks_like_success(
    edge: Gateway, engine: ScriptedEngine, error: Exception, code: str
) -> None:
    engine.say(TextDelta(0, "Half an"))
    engine.fail(error)
    with capture_logs() as logs:
        x = await edge.chat(stream=True).done()
    assert x.status == 200
    *chunks, last = [json.loads(f.removeprefix("data: ")) for f in x.frames]
    assert last["error"]["code"] == code
    assert all(c["choices"][0]["finish_reason"] is None for c in chunks)
    assert SECRET.encode() not in x.data
    assert not x.sent[-1].get("more_body")
    assert (logs[-1]["event"], logs[-1]["error"]) == ("request", code)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/conversations"])
async def test_an_unexpected_failure_is_a_500_that_keeps_its_cause_to_the_log(
    edge: Gateway, engine: ScriptedEngine, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr(edge.parts.conversations, "create", broken)
    engine.fail(KeyError(SECRET))
    with capture_logs() as logs:
        x = await edge.call(path, CHAT if path.startswith("/v1") else {}).done()
    assert (x.status, x.error["code"]) == (500, "internal_error")
    assert SECRET.encode() not in x.data
    assert x.headers["x-request-id"].startswith("req_")
    assert any(SECRET in repr(entry.get("exc_info")) for entry in logs)
    assert logs[-1]["status"] == 500


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_goes_away_stops_the_engine_and_is_logged_as_499(
    edge: Gateway, engine: ScriptedEngine, stream: bool, begun: bool
) -> None:
    if begun:
        engine.say(TextDelta(0, "Hello"))
    with capture_logs() as logs:
        x = edge.chat(stream=stream)
        await until(lambda: bool(engine.running and (x.sent or not (stream and begun))))
        before = len(x.sent)
        x.leave()
        await x.done(0.5)
    assert x.task.cancelling() == 0, "the server's task is not left cancelled"
    assert engine.running == 0
    assert len(x.sent) == before
    assert [(entry["event"], entry["status"]) for entry in logs] == [("request", 499)]


async def test_every_choice_and_prompt_of_a_gone_client_stops(slow: Gateway) -> None:
    body = {"model": "simulated", "prompt": ["a", "b", "c"], "max_tokens": 1000, "stream": True}
    x = slow.call("/v1/completions", body)
    await until(lambda: slow.parts.engine.running == 3 and len(x.sent) > 3)
    x.leave()
    await x.done(0.5)
    assert slow.parts.engine.running == 0


async def test_a_client_that_goes_away_in_the_middle_of_its_body_gets_nothing(edge: Gateway) -> None:
    with capture_logs() as logs:
        x = edge.call("/v1/chat/completions")
        x.upload(b'{"mod', more=True)
        x.leave()
        await x.done()
    assert x.sent == []
    assert logs[-1]["status"] == 499


@pytest.mark.parametrize("stream", [True, False])
async def test_the_end_of_the_server_is_not_mistaken_for_the_end_of_the_client(
    edge: Gateway, engine: ScriptedEngine, stream: bool
) -> None:
    x = edge.chat(stream=stream)
    await until(lambda: engine.running == 1)
    x.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await x.done()
    assert engine.running == 0


async def test_the_edge_takes_back_its_own_cancellation_only(edge: Gateway, engine: ScriptedEngine) -> None:
    x = edge.chat(stream=True)
    await until(lambda: engine.running == 1)
    x.leave()
    x.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await x.done()
    assert engine.running == 0


ROUTES = ["/v1/chat/completions", "/v1/embeddings", "/api/session", "/api/conversations", "/nowhere"]


@pytest.mark.parametrize("path", ROUTES)
async def test_a_body_that_says_it_is_too_large_is_refused_unread(edge: Gateway, path: str) -> None:
    x = await edge.call(path, b" " * 20_001, content_length="20001").done()
    assert (x.status, x.error["code"], x.taken) == (413, "request_too_large", 0)


@pytest.mark.parametrize("path", ROUTES)
async def test_a_body_that_turns_out_too_large_is_refused_at_the_limit(edge: Gateway, path: str) -> None:
    x = edge.call(path)
    for _ in range(100):
        x.upload(b" " * 1000, more=True)
    await x.done()
    assert (x.status, x.taken) == (413, 21_000)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/api/conversations"])
@pytest.mark.parametrize("body", [b"{", b'{"a": NaN}', b'{"a": 1, "a": 1}', b"\xff", rb'{"a": "\ud800"}', b"[" * 5000])
async def test_a_body_that_is_no_strict_json_is_refused_on_every_route(edge: Gateway, path: str, body: bytes) -> None:
    x = await edge.call(path, body).done()
    assert (x.status, x.error["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    ("field", "opening", "closing"),
    [("schema", '{"items":', "}"), ("parameters", '{"a":', "}"), ("parameters", '{"a":[', "]}")],
)
async def test_no_depth_of_nesting_makes_a_500(
    edge: Gateway, engine: ScriptedEngine, field: str, opening: str, closing: str
) -> None:
    for depth in (*range(10, 850, 60), *range(880, 1010, 2)):
        levels = depth // len(closing)
        deep = opening * levels + "{}" + closing * levels
        fields = {
            "schema": f'"response_format":{{"type":"json_schema","json_schema":{{"name":"n","schema":{deep}}}}}',
            "parameters": f'"tools":[{{"type":"function","function":{{"name":"f","parameters":{deep}}}}}]',
        }[field]
        engine.say(Finished(0, "stop"), Usage())
        engine.end()
        x = await edge.call("/v1/chat/completions", (json.dumps(CHAT)[:-1] + f",{fields}}}").encode()).done()
        assert x.status in (200, 400), (depth, x.data[:200])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/embeddings", 405), ("PUT", "/v1/models", 405),
        ("GET", "/v1/nothing", 404), ("POST", "/v1/chat/completions/", 404), ("GET", "/", 503), ("GET", "/health/ready", 200),
        ("GET", "/v1/models", 200), ("GET", "/v1/models/nothing", 404), ("POST", "/v1/chat/completions", 400),
    ],
)  # fmt: skip
async def test_whatever_the_answer_it_has_a_request_id_of_its_own(
    edge: Gateway, method: str, path: str, status: int
) -> None:
    first, second = [await edge.call(path, b"", method=method).done() for _ in range(2)]
    assert first.status == second.status == status
    ids = {x.headers["x-request-id"] for x in (first, second)}
    assert len(ids) == 2
    assert all(i.startswith("req_") and len(i) == 36 for i in ids)
    assert [k for k, _ in first.sent[0]["headers"]].count(b"x-request-id") == 1
    if status >= 400:
        assert first.error["type"] in ("invalid_request_error", "server_error")


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Basic eDp5", "Bearer sk-wrong", "sk-wrong", "Bearer \xff\xfe"]
)
async def test_without_a_good_key_nothing_is_read(edge: Gateway, authorization: str) -> None:
    x = await edge.call("/v1/chat/completions", CHAT, authorization=authorization).done()
    assert (x.status, x.error["code"], x.taken) == (401, "invalid_api_key", 0)


async def test_an_unknown_model_and_one_that_nobody_runs(edge: Gateway) -> None:
    x = await edge.chat(model="gpt-none", stream=True).done()
    assert (x.status, x.error["code"], x.error["param"]) == (404, "model_not_found", "model")
    x = await edge.chat(model="lost", stream=True).done()
    assert (x.status, x.error["code"]) == (503, "engine_failed")
