"""OpenAIEngine against a server that answers byte for byte what a test tells it to."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from inference.engines.openai import OpenAIEngine
from services.common import messages as m
from services.common.errors import (
    AntiphonError,
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
)
from services.common.lean_http import LeanClient
from tests.support.engines import ask, broken, collect

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
PAUSE = b""
"""Between two pieces of an answer: they must arrive apart."""


@dataclass
class Script:
    """Answers each connection with the next list of pieces, then closes it. The last list serves all further ones."""

    answers: list[Sequence[bytes]]
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if b"content-length" in x), 0)
        self.requests.append(await reader.readexactly(length))
        for piece in self.answers[min(len(self.requests), len(self.answers)) - 1]:
            writer.write(piece)
            await writer.drain()
            if piece == PAUSE:
                await asyncio.sleep(0.005)
        writer.close()

    def body(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.requests[-1])
        return found


@asynccontextmanager
async def scripted(*answers: Sequence[bytes]) -> AsyncIterator[tuple[OpenAIEngine, Script]]:
    script = Script(list(answers))
    async with (
        await asyncio.start_server(script.serve, "127.0.0.1", 0) as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
    ):
        port = server.sockets[0].getsockname()[1]
        yield (
            OpenAIEngine("ours", f"http://127.0.0.1:{port}/v1", session, LeanClient(), upstream_model="theirs"),
            script,
        )


def event(choice: dict[str, object] | None = None, **fields: object) -> bytes:
    choices = [] if choice is None else [{"index": 0} | choice]
    return b"data: " + json.dumps({"choices": choices} | fields, ensure_ascii=False).encode() + b"\n\n"


def word(text: str, index: int = 0) -> bytes:
    return event({"index": index, "delta": {"content": text}})


STOP = event({"delta": {}, "finish_reason": "stop"})
USAGE = event(usage={"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}})
DONE = b"data: [DONE]\n\n"
WHOLE = word("Grüße ") + word("😀") + STOP + USAGE + DONE
EVENTS = [m.TextDelta(0, "Grüße "), m.TextDelta(0, "😀"), m.Finished(0, "stop"), m.Usage(9, 2, 4)]


def refusal(status: int, body: bytes) -> list[bytes]:
    return [b"HTTP/1.1 %d Refused\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)]


def chunked(*pieces: bytes) -> list[bytes]:
    """Without the last chunk, so that only `+ [END]` makes it whole."""
    return [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p)]


END = b"0\r\n\r\n"


@pytest.mark.parametrize("at", range(1, len(WHOLE), 3))
async def test_chunks_may_split_at_any_byte(at: int) -> None:
    async with scripted([HEAD + b"\r\n", WHOLE[:at], PAUSE, WHOLE[at:]]) as (engine, _):
        assert (await collect(engine, ask())).events == EVENTS


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
async def test_frames_may_end_in_any_newline_and_comments_are_nothing(newline: bytes) -> None:
    text = b": ping\n\n" + WHOLE.replace(b"data: [DONE]", b": ping\n\ndata:[DONE]")
    async with scripted([HEAD + b"\r\n", text.replace(b"\n", newline)]) as (engine, _):
        assert (await collect(engine, ask())).events == EVENTS


async def test_what_arrives_together_leaves_together() -> None:
    async with scripted([HEAD + b"\r\n", WHOLE]) as (engine, _):
        batches = (await collect(engine, ask())).batches
    assert [list(b) for b in batches] == [EVENTS[:3], EVENTS[3:]]


async def test_without_usage_the_deltas_are_counted() -> None:
    async with scripted([HEAD + b"\r\n", word("a") + word("b") + word("c") + STOP + DONE]) as (engine, _):
        assert (await collect(engine, ask())).usage() == m.Usage(0, 3)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": "bad", "param": "top_p"}, InvalidRequest),
        (400, {"message": "maximum context length is 9", "code": 400}, ContextLengthExceeded),
        (400, {"message": "too long", "code": "context_length_exceeded"}, ContextLengthExceeded),
        (400, {"message": "too long", "type": "exceed_context_size_error"}, ContextLengthExceeded),
        (401, {"message": "your key sk-123 is wrong"}, EngineFailed),
        (403, {"message": "no"}, EngineFailed),
        (404, {"message": "no such model"}, ModelNotFound),
        (422, {"message": "bad"}, InvalidRequest),
        (429, {"message": "slow down"}, Overloaded),
        (500, {"message": "oops"}, EngineFailed),
        (503, {"message": "busy"}, Overloaded),
    ],
)
async def test_a_refusal_becomes_the_error_it_is(status: int, error: m.Json, kind: type[AntiphonError]) -> None:
    for body in ({"error": error}, error):
        async with scripted(refusal(status, json.dumps(body).encode())) as (engine, _):
            answer, raised = await broken(engine, ask())
        assert type(raised) is kind
        assert answer.events == []
        assert "sk-123" not in raised.message


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"no"', b'{"error": "no"}', b'{"error": null}', b"\xff"])
@pytest.mark.parametrize(("status", "kind"), [(400, InvalidRequest), (500, EngineFailed)])
async def test_a_refusal_may_be_worded_in_any_way(status: int, kind: type[AntiphonError], body: bytes) -> None:
    async with scripted(refusal(status, body)) as (engine, _):
        _, raised = await broken(engine, ask())
    assert type(raised) is kind


@pytest.mark.parametrize(
    "answer",
    {
        "an error event": [HEAD + b"\r\n", word("a"), b'data: {"error": {"message": "CUDA"}}\n\n', DONE],
        "an error event in words": [HEAD + b"\r\n", word("a"), b'event: error\ndata: {"error": "CUDA"}\n\n'],
        "aborted": [HEAD + b"\r\n", word("a"), event({"delta": {}, "finish_reason": "abort"}), USAGE, DONE],
        "cut between chunks": chunked(word("a")),
        "cut inside a chunk": [*chunked(word("a")), b"ff\r\ndata: {"],
        "cut inside a line": [HEAD + b"\r\n", word("a"), STOP[:-9]],
        "an end without a finish": [*chunked(word("a"), DONE), END],
        "not JSON": [HEAD + b"\r\n", word("a"), b"data: {]\n\n", STOP, DONE],
        "another JSON": [HEAD + b"\r\n", word("a"), b'data: {"choices": 7}\n\n', STOP, DONE],
        "no stream": [HEAD + b'\r\n{"choices": []}'],
        "nothing": [b""],
    }.items(),
    ids=lambda item: item[0],
)
async def test_an_answer_that_was_cut_never_looks_whole(answer: tuple[str, Sequence[bytes]]) -> None:
    async with scripted(answer[1]) as (engine, _):
        got, raised = await broken(engine, ask())
        assert (await engine.load()).running == 0
    assert type(raised) is EngineFailed
    assert got.reasons() == {}


async def test_an_answer_in_which_one_choice_never_ended_is_not_whole() -> None:
    async with scripted([HEAD + b"\r\n", word("a") + word("b", 1) + STOP + DONE]) as (engine, _):
        _, raised = await broken(engine, ask(n=2))
    assert type(raised) is EngineFailed


async def test_a_cut_after_the_last_finish_is_still_a_failure() -> None:
    async with scripted(chunked(word("a"), STOP)) as (engine, _):
        _, raised = await broken(engine, ask())
    assert type(raised) is EngineFailed


async def test_a_server_that_closes_before_it_answers_is_not_asked_again() -> None:
    async with scripted([b""], [HEAD + b"\r\n", WHOLE]) as (engine, script):
        with pytest.raises(EngineFailed):
            await collect(engine, ask())
        assert len(script.requests) == 1


async def test_both_ways_to_write_logprobs_are_read() -> None:
    one = {"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": None}
    chat = event({"delta": {"content": "é"}, "logprobs": {"content": [one]}})
    legacy = {"tokens": ["é"], "token_logprobs": [-0.5], "top_logprobs": [{"e": -2.0}], "text_offset": [0]}
    async with scripted(
        [HEAD + b"\r\n", chat + STOP + DONE], [HEAD + b"\r\n", event({"text": "é", "logprobs": legacy}) + STOP + DONE]
    ) as (engine, script):
        assert (await collect(engine, ask(logprobs=0))).logprobs() == [m.TokenLogprob("é", -0.5, (195, 169))]
        assert (script.body()["logprobs"], script.body()["top_logprobs"]) == (True, 0)
        (found,) = (await collect(engine, ask(prompt="x", logprobs=1))).logprobs()
        assert (found.token, found.logprob, found.bytes) == ("é", -0.5, (195, 169))
        assert found.top == (m.TokenLogprob("e", -2.0, (101,)),)
        assert script.body()["logprobs"] == 1


async def test_tool_calls_come_in_pieces_with_their_numbers() -> None:
    def piece(number: int, arguments: str, **fields: str) -> bytes:
        function = {"arguments": arguments} | {k: v for k, v in fields.items() if k == "name"}
        call = {"index": number, "function": function} | {k: v for k, v in fields.items() if k == "id"}
        return event({"delta": {"tool_calls": [call]}})

    stream = piece(0, "", id="x", name="f") + piece(0, '{"a"') + piece(0, ": 1}") + piece(1, "{}", id="y", name="g")
    end = event({"delta": {}, "finish_reason": "tool_calls"})
    async with scripted([HEAD + b"\r\n", stream + end + DONE]) as (engine, script):
        answer = await collect(engine, ask(tools=(m.Tool("f"), m.Tool("g")), tool_choice=m.ToolChoice("named", "f")))
        assert script.body()["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert answer.calls() == [m.ToolCall("x", "f", '{"a": 1}'), m.ToolCall("y", "g", "{}")]
    assert answer.reasons() == {0: "tool_calls"}


async def test_only_what_was_asked_for_is_sent() -> None:
    async with scripted([HEAD + b"\r\n", WHOLE]) as (engine, script):
        await collect(engine, ask("Hi"))
        assert script.body() == {
            "model": "theirs", "n": 1, "stream": True, "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": "Hi"}],
        }  # fmt: skip
        await collect(engine, ask("Hi", output_schema={}, logit_bias={5: -1.5}, stop=("x",), seed=0))
        body = script.body()
        assert body["response_format"] == {"type": "json_object"}
        assert (body["logit_bias"], body["stop"], body["seed"]) == ({"5": -1.5}, ["x"], 0)
        await collect(engine, ask(prompt=(1, 2), output_schema={"type": "string"}))
        assert script.body()["prompt"] == [1, 2]
        assert "json_schema" in json.dumps(script.body()["response_format"])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'{"count": 3, "tokens": [7, 8, 9], "max_model_len": 5}', m.Tokens(3, (7, 8, 9))),
        (b'{"tokens": []}', None), (b"<html>", None), (b'{"count": null}', None),
    ],
)  # fmt: skip
async def test_tokens_are_counted_by_the_server_or_estimated(answer: bytes, expected: m.Tokens | None) -> None:
    async with scripted(refusal(200, answer)) as (engine, _):
        found = await engine.tokenize(m.TokenizeRequest(model="ours", text="Some words"))
    if expected is None:
        assert found.ids == ()
        assert found.count >= 3
    else:
        assert found == expected


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b"[]", b'{"data": null}', b'{"data": 7}', b"\xff"])
async def test_load_never_raises_whatever_the_server_says(answer: bytes) -> None:
    for reply in (refusal(200, answer), refusal(502, answer), [b""]):
        async with scripted(reply) as (engine, _):
            load = await engine.load()
        assert load.healthy is False
        assert load.detail
