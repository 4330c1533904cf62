"""The parsers of requests: every documented parameter arrives, and whatever is wrong is named."""

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.chat_request import ChatRequest
from gateway.dialects.completions import CompletionRequest
from gateway.dialects.embeddings import EmbeddingsBody
from gateway.dialects.wire import Wire, parse
from services.common.errors import InvalidRequest
from services.common.messages import EmbeddingRequest, GenerationRequest, Message, Sampling, Tool, ToolCall, ToolChoice

quick = settings(deadline=None, max_examples=150)
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
FUNCTION = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}}
FULL_CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s", "name": "n"},
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "u", "name": "who"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "audio": None, "annotations": []},
        {"role": "tool", "content": "t", "tool_call_id": "c"},
        {"role": "assistant", "refusal": "no"},
    ],
    "n": 2, "max_completion_tokens": 7, "max_tokens": 9, "temperature": 0.5, "top_p": 0.6, "top_k": 5, "min_p": 0.1,
    "seed": 2**40 + 3, "frequency_penalty": -1, "presence_penalty": 1.5, "repetition_penalty": 1.1, "stop": ["a", "b"],
    "logit_bias": {"5": -100, "6": 1.5}, "logprobs": True, "top_logprobs": 3, "response_format": SCHEMA,
    "tools": [FUNCTION | {"function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False, "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False}, "user": "u", "metadata": {"k": "v"},
    "store": False, "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s", "reasoning_effort": "low",
    "verbosity": "low", "modalities": ["text"],
}  # fmt: skip
FULL_COMPLETION: dict[str, Any] = {
    "model": "m", "prompt": ["a", "b"], "n": 2, "best_of": 2, "max_tokens": 7, "temperature": 0.5, "top_p": 0.6, "seed": -1,
    "frequency_penalty": -1, "presence_penalty": 1.5, "stop": "x", "logit_bias": {"5": 1}, "logprobs": 5, "echo": False,
    "suffix": "", "stream": True, "stream_options": {"include_usage": True}, "user": "u",
}  # fmt: skip
FULL_EMBEDDINGS = {"model": "m", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 3, "user": "u"}
BODIES: list[tuple[type[Wire], dict[str, Any]]] = [
    (ChatRequest, FULL_CHAT), (CompletionRequest, FULL_COMPLETION), (EmbeddingsBody, FULL_EMBEDDINGS),
]  # fmt: skip
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from(["", "user", "function", "text", "[" * 5000, -1, 2**70]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5) | st.sampled_from(["role", "type", "name", "function"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
PARAM = re.compile(r"[a-z_]+(\[\d+\])*(\.[a-z_]+(\[\d+\])*)*")


def understood(model: type[Wire], data: Any) -> None:
    body = parse(model, data)
    if isinstance(body, ChatRequest):
        body.include_usage()
        body.generation("req_1", "t", 16)
    elif isinstance(body, CompletionRequest):
        body.generations("req_1", "t", 16)
    elif isinstance(body, EmbeddingsBody):
        body.request()


def refusal(model: type[Wire], data: Any) -> InvalidRequest | None:
    """None: it was understood. Anything else that is raised fails the test."""
    try:
        understood(model, data)
    except InvalidRequest as e:
        return e
    return None


def mutated(document: Any, data: st.DataObject) -> Any:
    """One value anywhere in it is replaced, removed, or joined by a stranger."""
    document = copy.deepcopy(document)
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return document
        key = data.draw(st.sampled_from(keys))
        deeper = isinstance(node[key], dict | list)
        act = data.draw(st.sampled_from(["replace", "remove", "add", *(["descend"] * 4 if deeper else [])]))
        if act == "descend":
            node = node[key]
            continue
        if act == "remove":
            del node[key]
        elif act == "replace" or isinstance(node, list):
            node[key] = data.draw(JUNK)
        else:
            node[data.draw(st.text(max_size=5))] = data.draw(JUNK)
        return document


@quick
@given(st.sampled_from(BODIES), st.data())
def test_a_body_with_one_thing_changed_is_understood_or_refused(body: Any, data: st.DataObject) -> None:
    model, document = body
    refusal(model, mutated(document, data))


@quick
@given(st.sampled_from([m for m, _ in BODIES]), st.dictionaries(st.text(max_size=8), JUNK, max_size=4))
def test_any_object_is_understood_or_refused(model: type[Wire], document: dict[str, Any]) -> None:
    refused = refusal(model, document)
    assert refused is None or refused.param is not None


@quick
@given(st.sampled_from(BODIES), st.data())
def test_a_known_field_with_a_wrong_value_is_named_without_the_names_of_types(body: Any, data: st.DataObject) -> None:
    model, document = body
    name = data.draw(st.sampled_from(sorted(document)))
    refused = refusal(model, document | {name: data.draw(JUNK)})
    if refused is None:
        return
    assert refused.param is not None
    if name not in ("logprobs", "tools", "n", "stream"):  # on which others depend
        assert refused.param.startswith(name)
    if name not in ("metadata", "logit_bias") and refused.wire_code != "unknown_parameter":
        assert PARAM.fullmatch(refused.param)
        assert not {"str", "assistant", "tool", "TextPart"} & set(refused.param.split("."))


def test_every_parameter_of_chat_completions_reaches_the_generation() -> None:
    body = parse(ChatRequest, FULL_CHAT)
    assert body.include_usage()
    assert body.generation("req_1", "tenant", 16) == GenerationRequest(
        model="m",
        messages=(
            Message(role="system", content="s", name="n"), Message(role="developer", content="a\nb"),
            Message(role="user", content="u", name="who"),
            Message(role="assistant", tool_calls=(ToolCall("c", "f", "{}"),)),
            Message(role="tool", content="t", tool_call_id="c"), Message(role="assistant", content="no"),
        ),
        n=2,
        sampling=Sampling(
            max_tokens=7, temperature=0.5, top_p=0.6, top_k=5, min_p=0.1, seed=3, frequency_penalty=-1,
            presence_penalty=1.5, repetition_penalty=1.1, stop=("a", "b"), logit_bias={5: -100, 6: 1.5}, logprobs=3,
        ),
        tools=(Tool("f", "d", {"type": "object"}, True),), tool_choice=ToolChoice("named", "f"),
        parallel_tool_calls=False, output_schema={"type": "object"}, request_id="req_1", tenant="tenant",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({}, "sampling", Sampling()),
        ({"max_tokens": 4}, "sampling", Sampling(max_tokens=4)),
        ({"logprobs": True}, "sampling", Sampling(logprobs=0)),
        ({"logprobs": False}, "sampling", Sampling()),
        ({"stop": "x"}, "sampling", Sampling(stop=("x",))),
        ({"stop": None, "temperature": None, "n": None}, "sampling", Sampling()),
        ({"response_format": {"type": "text"}}, "output_schema", None),
        ({"response_format": {"type": "json_object"}}, "output_schema", {}),
        ({"tools": [FUNCTION]}, "tool_choice", ToolChoice("auto")),
        ({"tools": [FUNCTION], "tool_choice": "required"}, "tool_choice", ToolChoice("required")),
        ({"tools": [FUNCTION], "tool_choice": "none"}, "tool_choice", ToolChoice("none")),
        ({"tool_choice": "none"}, "tool_choice", ToolChoice("none")),
        ({"tools": [FUNCTION]}, "parallel_tool_calls", True),
    ],
)
def test_a_parameter_that_is_left_out_or_short_has_its_default(given: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(parse(ChatRequest, CHAT | given).generation("req_1", "t", 16), field) == value


def test_every_parameter_of_completions_reaches_one_generation_a_prompt() -> None:
    body = parse(CompletionRequest, FULL_COMPLETION)
    sampling = Sampling(
        max_tokens=7, temperature=0.5, top_p=0.6, seed=2**31 - 1, frequency_penalty=-1, presence_penalty=1.5, stop=("x",),
        logit_bias={5: 1}, logprobs=5,
    )  # fmt: skip
    assert body.generations("req_1", "t", 16) == [
        GenerationRequest(model="m", prompt=p, n=2, sampling=sampling, request_id=id, tenant="t")
        for p, id in (("a", "req_1"), ("b", "req_1-1"))
    ]


@pytest.mark.parametrize(
    ("given", "prompts"),
    [("a", ["a"]), ("", [""]), ([1, 2], [(1, 2)]), (["a"], ["a"]), ([[1], [2, 3]], [(1,), (2, 3)])],
)
def test_prompts_and_inputs_are_texts_or_tokens_one_or_many(given: Any, prompts: list[Any]) -> None:
    body = parse(CompletionRequest, {"model": "m", "prompt": given})
    made = body.generations("req_1", "t", 1)
    assert [(r.prompt, r.sampling.max_tokens) for r in made] == [(p, 16) for p in prompts]
    request = parse(EmbeddingsBody, {"model": "m", "input": given, "dimensions": 3}).request()
    assert request == EmbeddingRequest(model="m", inputs=tuple(prompts), dimensions=3)


DEEP = CALL | {"function": {"name": "f", "arguments": "[" * 100_000}}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": "x"}, "messages"),
    ({"messages": [5]}, "messages[0]"),
    ({"messages": [{"content": "x"}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [CHAT["messages"][0], {"role": "user"}]}, "messages[1].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": "x", "str": 1}]}, "messages[0].str"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0].tool_calls[0].type"),
    ({"messages": [{"role": "assistant", "tool_calls": [DEEP]}]}, "messages"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [FUNCTION, {"type": "function", "function": {}}]}, "tools[1].function.name"),
    ({"tools": [FUNCTION | {"function": {"name": "f", "parameters": []}}]}, "tools[0].function.parameters"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": "some"}, "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": SCHEMA | {"json_schema": {"name": "n", "schema": 1}}}, "response_format.json_schema.schema"),
    ({"response_format": SCHEMA | {"json_schema": {"schema": {}}}}, "response_format.json_schema.name"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"n": True}, "n"),
    ({"seed": 1.5}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
    ({"metadata": {"k": 5}}, "metadata.k"),
    ({"modalities": ["audio"]}, "modalities[0]"),
    ({"max_token": 5}, "max_token"),
    ({"Temperature": 1}, "Temperature"),
    ({"max-tokens": 1}, "max-tokens"),
]


@pytest.mark.parametrize(("wrong", "param"), WRONG, ids=[json.dumps(w)[:60] for w, _ in WRONG])
def test_what_is_wrong_with_a_chat_request_is_named(wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        understood(ChatRequest, CHAT | wrong)
    assert refusal.value.param == param
    assert param.split("[")[0].split(".")[0] in refusal.value.message or "tool" in refusal.value.message


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"prompt": [1, "a"]}, "prompt[1]"), ({"prompt": [[1], [-1]]}, "prompt[1][0]"), ({"prompt": []}, "prompt"),
        ({"prompt": None}, "prompt"), ({"prompt": ["a"] * 65}, "prompt"), ({"prompt": [2**31]}, "prompt[0]"),
        ({"echo": True}, "echo"), ({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"logprobs": 6}, "logprobs"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_completion_request_is_named(wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        understood(CompletionRequest, {"model": "m", "prompt": "x"} | wrong)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"input": ["a", 1]}, "input[1]"), ({"input": []}, "input"), ({"input": {}}, "input"),
        ({"input": ["a"] * 2049}, "input"), ({"dimensions": 0}, "dimensions"), ({"encoding_format": "x"}, "encoding_format"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_embedding_request_is_named(wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        understood(EmbeddingsBody, {"model": "m", "input": "x"} | wrong)
    assert refusal.value.param == param


@pytest.mark.parametrize("model", [ChatRequest, CompletionRequest, EmbeddingsBody])
def test_a_missing_parameter_is_named(model: type[Wire]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        understood(model, {"messages": CHAT["messages"]} if model is ChatRequest else {})
    assert (refusal.value.param, refusal.value.wire_code) == ("model", "missing_required_parameter")
