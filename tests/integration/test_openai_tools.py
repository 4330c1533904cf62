"""Tool calls with openai-python on a real model: shapes and promises, not what a tiny model chooses."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.published import PUBLISHED, assert_published
from tests.support.server import MODEL, Server

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time", "description": "The time now."}}
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def ask(client: openai.OpenAI, **parameters: Any) -> Any:
    given = {"model": MODEL, "messages": QUESTION, "tools": [WEATHER, CLOCK], "max_tokens": 60, "temperature": 0}
    return client.chat.completions.create(**(given | parameters))


def joined(chunks: Any) -> tuple[list[dict[str, str]], list[str]]:
    """The calls that a stream's deltas make, and its finish reasons."""
    calls: dict[int, dict[str, str]] = {}
    finish = []
    for chunk in chunks:
        choice = chunk.choices[0]
        for delta in choice.delta.tool_calls or []:
            if delta.index not in calls:
                assert delta.id
                assert delta.type == "function"
                calls[delta.index] = {"id": delta.id, "name": delta.function.name, "arguments": ""}
            calls[delta.index]["arguments"] += delta.function.arguments
        finish += [choice.finish_reason] if choice.finish_reason else []
    return list(calls.values()), finish


def test_required_calls_one_of_the_tools(client: openai.OpenAI) -> None:
    [choice] = ask(client, tool_choice="required").choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    [call] = choice.message.tool_calls
    assert call.id.startswith("call_")
    assert call.function.name in ("get_weather", "get_time")
    assert isinstance(json.loads(call.function.arguments), dict)


def test_a_named_tool_is_called_with_arguments_of_its_schema(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    for seed in range(2):
        [choice] = ask(client, tool_choice=named, temperature=1.5, seed=seed).choices
        [call] = choice.message.tool_calls
        assert call.function.name == "get_weather"
        arguments = json.loads(call.function.arguments)
        assert arguments["city"] in ("Paris", "Rome")
        assert arguments["unit"] in ("C", "F")


def test_a_streamed_call_is_the_whole_call(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    [whole] = ask(client, tool_choice=named).choices[0].message.tool_calls
    [call], finish = joined(ask(client, tool_choice=named, stream=True))
    assert (call["name"], call["arguments"]) == (whole.function.name, whole.function.arguments)
    assert finish == ["tool_calls"]


def test_none_calls_nothing(client: openai.OpenAI) -> None:
    [choice] = ask(client, tool_choice="none", max_tokens=12).choices
    assert choice.message.tool_calls is None
    assert choice.finish_reason in ("stop", "length")


@pytest.mark.parametrize("stream", [False, True])
def test_auto_is_either_words_or_good_calls(client: openai.OpenAI, stream: bool) -> None:
    answer = ask(client, tool_choice="auto", stream=stream, max_tokens=24)
    if stream:
        calls, finish = joined(answer)
        names = [c["name"] for c in calls]
        arguments = [c["arguments"] for c in calls]
    else:
        [choice] = answer.choices
        made = choice.message.tool_calls or []
        names, arguments = [c.function.name for c in made], [c.function.arguments for c in made]
        finish = [choice.finish_reason]
    assert set(names) <= {"get_weather", "get_time"}
    assert all(isinstance(json.loads(a), dict) for a in arguments)
    assert finish in (["tool_calls"], ["length"]) if names else finish in (["stop"], ["length"])


def test_parallel_tool_calls_may_be_switched_off(client: openai.OpenAI) -> None:
    for choice in ("required", "auto"):
        answer = ask(client, tool_choice=choice, parallel_tool_calls=False)
        assert len(answer.choices[0].message.tool_calls or []) <= 1


def test_a_tool_result_makes_the_round(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    asked = ask(client, tool_choice=named).choices[0].message
    messages = [
        *QUESTION,
        asked.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "Sunny, 21 degrees."},
    ]
    answer = ask(client, messages=messages, max_tokens=16)
    message = answer.choices[0].message
    assert message.content or message.tool_calls
    without = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8)
    assert without.choices[0].message.content


def test_a_helper_of_the_client_parses_the_arguments(client: openai.OpenAI) -> None:
    from typing import Literal

    from pydantic import BaseModel

    class GetWeather(BaseModel):
        city: Literal["Paris", "Rome"]

    parsed = client.chat.completions.parse(
        model=MODEL, messages=QUESTION, tools=[openai.pydantic_function_tool(GetWeather)], tool_choice="required",
        max_completion_tokens=60, temperature=0,
    )  # fmt: skip
    [call] = parsed.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)


@pytest.mark.parametrize("_specification", PUBLISHED, ids=lambda p: Path(p).stem)
def test_calls_have_the_published_shape(server: Server, _specification: Path) -> None:
    body = {"model": MODEL, "messages": QUESTION, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 60}
    with server.client() as http:
        assert_published("CreateChatCompletionResponse", http.post("/v1/chat/completions", json=body).json())
        streamed = http.post("/v1/chat/completions", json=body | {"stream": True}).text
    for frame in streamed.split("\n\n")[:-2]:
        assert_published("CreateChatCompletionStreamResponse", json.loads(frame.removeprefix("data: ")))


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "missing"}}}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [WEATHER] * 129}, "tools"),
    ],
    ids=["unknown name", "no tools", "bad name", "bad type", "too many"],
)
def test_bad_tools_are_refused_by_name(client: openai.OpenAI, change: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **change)
    assert caught.value.param == param
