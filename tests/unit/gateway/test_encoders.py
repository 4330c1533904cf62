"""Events to the wire and back: no text can break a frame, and a streamed answer says what the whole one says."""

import base64
import json
import math
import struct
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.dialects.chat_completions import ChatAnswer, ChatStream
from gateway.dialects.completions import CompletionAnswer, CompletionStream
from gateway.dialects.embeddings import EmbeddingsBody
from gateway.sse import ascii_json, frame
from services.common.messages import Embeddings, Event, Finished, TextDelta, TokenLogprob, ToolCallDelta, Usage

quick = settings(deadline=None, max_examples=120)
NASTY = [
    "\u2028",
    "\u2029",
    "\x85",
    "\x00",
    "\x7f",
    "\n\ndata: [DONE]\n\n",
    "\r\n",
    "\r",
    '"\\',
    "😀",
    "\ufeff",
    "\ud7ff\ue000",
]
TEXT = st.text() | st.sampled_from(NASTY) | st.lists(st.sampled_from(NASTY), max_size=4).map("".join)
MODEL = st.text(min_size=1, max_size=8) | st.sampled_from(NASTY)
REASON = st.sampled_from(["stop", "length", "content_filter"])
USAGE = Usage(3, 4, 2)


@st.composite
def token(draw: st.DrawFn) -> TokenLogprob:
    text = draw(TEXT)
    top = tuple(TokenLogprob(t, -2.0, tuple(t.encode())) for t in draw(st.lists(TEXT, max_size=2, unique=True)))
    return TokenLogprob(text, -0.5, tuple(text.encode()), top)


@st.composite
def text_events(draw: st.DrawFn, logprobs: bool = False) -> tuple[int, list[list[Event]]]:
    """(choices, batches): each choice's deltas and its end, mixed with the others', then one usage."""
    n = draw(st.integers(1, 3))
    left: dict[int, list[Event]] = {}
    for i in range(n):
        if logprobs:
            tokens = draw(st.lists(st.lists(token(), min_size=1, max_size=2), max_size=3))
            left[i] = [TextDelta(i, "".join(t.token for t in ts), len(ts), (), tuple(ts)) for ts in tokens]
        else:
            left[i] = [TextDelta(i, t) for t in draw(st.lists(TEXT, max_size=4))]
        left[i].append(Finished(i, draw(REASON)))
    batches: list[list[Event]] = [[]]
    while left:
        index = draw(st.sampled_from(sorted(left)))
        if draw(st.booleans()):
            batches.append([])
        batches[-1].append(left[index].pop(0))
        if not left[index]:
            del left[index]
    batches[-1].append(USAGE)
    return n, batches


def chunks_of(stream: Any, batches: list[list[Event]]) -> list[dict[str, Any]]:
    """The chunks as any SSE reader sees them. Each frame must be one line of ASCII."""
    data = b"".join(stream.encode(batch) for batch in batches)
    assert data.isascii()
    assert data.endswith(b"\n\n")
    frames = data[:-2].split(b"\n\n")
    for line in frames:
        assert line.startswith(b"data: {")
        assert not set(line) & set(range(0x20)), "a control character could split the line"
    assert len(data.decode().splitlines()) == 2 * len(frames)
    return [json.loads(line[6:]) for line in frames]


def check_chunks(chunks: list[dict[str, Any]], n: int, model: str, include_usage: bool, kind: str) -> None:
    assert {(c["id"][-3:], c["object"], c["model"]) for c in chunks} == {("abc", kind, model)}
    finishes = Counter(c["choices"][0]["index"] for c in chunks if c["choices"] and c["choices"][0]["finish_reason"])
    assert finishes == dict.fromkeys(range(n), 1)
    if include_usage:
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["total_tokens"] == 7
        assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
        assert all(c["usage"] is None for c in chunks[:-1])
    else:
        assert all("usage" not in c and len(c["choices"]) == 1 for c in chunks)


@quick
@given(text_events(), MODEL, st.booleans())
@example((1, [[TextDelta(0, "".join(NASTY)), Finished(0, "stop"), USAGE]]), "\u2028", True)
def test_chat_chunks_carry_any_text_and_agree_with_the_whole_answer(
    made: tuple[int, list[list[Event]]], model: str, include_usage: bool
) -> None:
    n, batches = made
    chunks = chunks_of(ChatStream("req_abc", model, include_usage), batches)
    check_chunks(chunks, n, model, include_usage, "chat.completion.chunk")
    answer = ChatAnswer("req_abc", model, n)
    for batch in batches:
        answer.take(batch)
    whole = json.loads(answer.body())
    assert (whole["id"], whole["object"], whole["model"]) == ("chatcmpl-abc", "chat.completion", model)
    assert whole["usage"]["total_tokens"] == 7
    for i, choice in enumerate(whole["choices"]):
        own = [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == i]
        assert own[0]["delta"]["role"] == "assistant"
        assert all("role" not in c["delta"] for c in own[1:])
        assert own[-1]["delta"] == {}
        said = "".join(c["delta"].get("content") or "" for c in own)
        sent = "".join(e.text for b in batches for e in b if isinstance(e, TextDelta) and e.index == i)
        assert said == sent == choice["message"]["content"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert choice["index"] == i


@quick
@given(text_events(logprobs=True))
def test_log_probabilities_are_the_same_streamed_and_whole(made: tuple[int, list[list[Event]]]) -> None:
    n, batches = made
    chunks = chunks_of(ChatStream("req_abc", "m", False), batches)
    answer = ChatAnswer("req_abc", "m", n)
    for batch in batches:
        answer.take(batch)
    for choice in json.loads(answer.body())["choices"]:
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
        streamed = [entry for c in own if c["logprobs"] for entry in c["logprobs"]["content"]]
        assert streamed == (choice["logprobs"] or {"content": []})["content"]
        for entry in streamed:
            assert bytes(entry["bytes"]).decode() == entry["token"]
            assert all(bytes(t["bytes"]).decode() == t["token"] for t in entry["top_logprobs"])


@quick
@given(text_events(logprobs=True), MODEL, st.booleans())
def test_completion_chunks_agree_with_the_whole_answer_and_offsets_find_each_token(
    made: tuple[int, list[list[Event]]], model: str, include_usage: bool
) -> None:
    n, batches = made
    chunks = chunks_of(CompletionStream("req_abc", model, include_usage), batches)
    check_chunks(chunks, n, model, include_usage, "text_completion")
    answer = CompletionAnswer("req_abc", model, n)
    for batch in batches:
        answer.take(batch)
    whole = json.loads(answer.body())
    assert whole["usage"]["completion_tokens"] == 4
    for choice in whole["choices"]:
        own = [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == choice["index"]]
        assert "".join(c["text"] for c in own) == choice["text"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        if not choice["logprobs"]:
            assert not any(c["logprobs"] for c in own)
            continue
        for name, values in choice["logprobs"].items():
            assert [v for c in own if c["logprobs"] for v in c["logprobs"][name]] == values
        for text, offset in zip(choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"], strict=True):
            assert choice["text"][offset : offset + len(text)] == text


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[dict[str, str]], list[Event]]:
    """Tool calls of one choice, and the deltas that bring them: the first of each has its id and name."""
    made = [{"id": f"call_{i}", "name": f"f{i}", "arguments": draw(TEXT)} for i in range(draw(st.integers(1, 3)))]
    events: list[Event] = []
    for i, call in enumerate(made):
        cut = draw(st.integers(0, len(call["arguments"])))
        events.append(ToolCallDelta(0, i, call["arguments"][:cut], call["id"], call["name"]))
        if cut < len(call["arguments"]) or draw(st.booleans()):
            events.append(ToolCallDelta(0, i, call["arguments"][cut:]))
    return made, events


@quick
@given(calls(), st.sampled_from(["", "Let me see. "]))
def test_tool_calls_are_whole_again_after_any_stream(made: Any, before: str) -> None:
    wanted, events = made
    text: list[Event] = [TextDelta(0, before)] if before else []
    batches = [text, events, [Finished(0, "tool_calls"), USAGE]]
    chunks = chunks_of(ChatStream("req_abc", "m", False), batches)
    check_chunks(chunks, 1, "m", False, "chat.completion.chunk")
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    built: dict[int, dict[str, str]] = {}
    for delta in (d for c in chunks for d in c["choices"][0]["delta"].get("tool_calls", ())):
        call = built.setdefault(delta["index"], {"arguments": ""})
        call["arguments"] += delta["function"]["arguments"]
        if "id" in delta:
            assert delta["type"] == "function"
            call |= {"id": delta["id"], "name": delta["function"]["name"]}
    assert list(built.values()) == [{"arguments": w["arguments"], "id": w["id"], "name": w["name"]} for w in wanted]
    answer = ChatAnswer("req_abc", "m", 1)
    for batch in batches:
        answer.take(batch)
    message = json.loads(answer.body())["choices"][0]["message"]
    assert message["content"] == (before or None)
    assert [c["function"] | {"id": c["id"]} for c in message["tool_calls"]] == wanted


def test_a_choice_that_says_nothing_still_begins_and_ends_and_its_text_is_empty_not_null() -> None:
    batches: list[list[Event]] = [[Finished(0, "length"), USAGE]]
    begin, end = chunks_of(ChatStream("req_abc", "m", False), batches)
    assert begin["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert end["choices"][0]["finish_reason"] == "length"
    answer = ChatAnswer("req_abc", "m", 1)
    answer.take(batches[0])
    assert json.loads(answer.body())["choices"][0]["message"]["content"] == ""


@quick
@given(st.lists(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=5), min_size=1, max_size=3))
def test_embeddings_in_base64_are_the_same_float32_numbers(vectors: list[list[float]]) -> None:
    found = Embeddings(tuple(map(tuple, vectors)), 7)
    inputs = ["x"] * len(vectors)
    plain = json.loads(EmbeddingsBody(model="m", input=inputs).answer(found))
    packed = json.loads(EmbeddingsBody(model="m", input=inputs, encoding_format="base64").answer(found))
    assert plain["usage"] == packed["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    for i, vector in enumerate(vectors):
        data = base64.b64decode(packed["data"][i]["embedding"])
        unpacked = struct.unpack(f"<{len(vector)}f", data)
        assert plain["data"][i]["index"] == packed["data"][i]["index"] == i
        assert all(math.isclose(a, b) for a, b in zip(unpacked, plain["data"][i]["embedding"], strict=True))
        assert list(unpacked) == vector


@pytest.mark.parametrize("text", NASTY)
def test_a_frame_is_one_line_that_every_reader_splits_alike(text: str) -> None:
    data = frame(json.dumps({"text": text}, ensure_ascii=False).encode())
    assert data.decode().splitlines() == [data.decode()[:-2], ""]
    assert json.loads(data[6:]) == {"text": text}


@quick
@given(TEXT)
def test_ascii_json_says_the_same(text: str) -> None:
    document = json.dumps([text], ensure_ascii=False).encode()
    assert ascii_json(document).isascii()
    assert json.loads(ascii_json(document)) == [text]
