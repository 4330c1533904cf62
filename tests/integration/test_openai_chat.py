"""Chat completions with openai-python on a real model: every parameter that a small model can show."""

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, Field

from tests.support.published import PUBLISHED, assert_published
from tests.support.server import MODEL, Server

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
COUNT: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Count from one to fifty, in words."}]


def ask(client: openai.OpenAI, **parameters: Any) -> Any:
    given = {"model": MODEL, "messages": HELLO, "max_tokens": 12, "temperature": 0} | parameters
    return client.chat.completions.create(**given)


def said(answer: Any) -> str:
    text = answer.choices[0].message.content
    assert isinstance(text, str)
    return text


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    ids = [m.id for m in client.models.list()]
    assert MODEL in ids
    model = client.models.retrieve(MODEL)
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "antiphon")
    assert model.created > 1_700_000_000


def test_a_whole_answer_has_every_field(client: openai.OpenAI) -> None:
    answer = ask(client)
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    [choice] = answer.choices
    assert (choice.index, choice.message.role) == (0, "assistant")
    assert said(answer)
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 1 <= usage.completion_tokens <= 12
    assert usage.prompt_tokens > 5


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    whole = ask(client)
    chunks = list(ask(client, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == said(whole)
    assert {c.id for c in chunks} == {chunks[0].id}
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == [
        whole.choices[0].finish_reason
    ]
    assert all(c.usage is None for c in chunks)
    assert len(chunks) > 4, "tokens came together"


async def test_the_async_client_streams_side_by_side(async_client: openai.AsyncOpenAI) -> None:
    import asyncio

    async def one(word: str) -> str:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": word}]
        stream = await async_client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=8, temperature=0, stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    together = await asyncio.gather(*(one(w) for w in ("Red", "Green", "Blue", "Red")))
    assert all(together)
    assert (await async_client.models.retrieve(MODEL)).id == MODEL


def test_usage_comes_last_in_a_stream_that_asks_for_it(client: openai.OpenAI) -> None:
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    *others, last = chunks
    assert last.choices == []
    assert last.usage.completion_tokens >= 1
    assert all(c.usage is None for c in others)
    assert last.usage.prompt_tokens == ask(client).usage.prompt_tokens


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_length_is_limited(client: openai.OpenAI, name: str) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=COUNT, temperature=0, **{name: 5})  # type: ignore[call-overload]
    assert answer.usage.completion_tokens == 5
    assert answer.choices[0].finish_reason == "length"


def test_n_choices_are_numbered_and_differ(client: openai.OpenAI) -> None:
    answer = ask(client, n=3, temperature=1.5, seed=11)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len({c.message.content for c in answer.choices}) > 1
    assert answer.usage.completion_tokens > max(1, answer.usage.prompt_tokens // 100)


def test_n_choices_are_streamed_side_by_side(client: openai.OpenAI) -> None:
    texts = ["", ""]
    finished = []
    for chunk in ask(client, n=2, temperature=1.0, seed=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            finished += [choice.index] if choice.finish_reason else []
    assert all(texts)
    assert sorted(finished) == [0, 1]


def test_a_stop_string_ends_the_answer_and_stays_out_of_it(client: openai.OpenAI) -> None:
    free = said(ask(client, max_tokens=24))
    stop = free[len(free) // 2 : len(free) // 2 + 4]
    for stops in (stop, ["never said", stop]):
        cut = ask(client, max_tokens=24, stop=stops)
        assert said(cut) == free[: free.index(stop)]
        assert cut.choices[0].finish_reason == "stop"
    streamed = "".join(c.choices[0].delta.content or "" for c in ask(client, max_tokens=24, stop=stop, stream=True))
    assert streamed == free[: free.index(stop)]


def test_greedy_answers_repeat(client: openai.OpenAI) -> None:
    assert said(ask(client, messages=COUNT)) == said(ask(client, messages=COUNT))


def test_one_seed_gives_one_answer(client: openai.OpenAI) -> None:
    def sample(seed: int) -> str:
        return said(ask(client, temperature=1.2, seed=seed))

    assert sample(5) == sample(5)
    assert len({sample(seed) for seed in range(4)}) > 1


def test_temperature_and_top_p_shape_the_draw(client: openai.OpenAI) -> None:
    greedy = said(ask(client))
    assert said(ask(client, temperature=2, top_p=1e-6, seed=1)) == greedy
    hot = {said(ask(client, temperature=2, top_p=1, seed=seed)) for seed in range(3)}
    assert hot != {greedy}


def test_penalties_drive_repetition_out(client: openai.OpenAI) -> None:
    repeat: list[ChatCompletionMessageParam] = [{"role": "user", "content": "no no no no no no no no"}]

    def words(**penalties: float) -> int:
        answer = said(ask(client, messages=repeat, max_tokens=48, logit_bias={}, **penalties)).split()
        return len(answer) - len(set(answer))

    plain = words()
    assert words(frequency_penalty=2, presence_penalty=2) < plain


def test_logit_bias_forces_and_bans_a_token(client: openai.OpenAI) -> None:
    def first(bias: dict[str, int]) -> str:
        return said(ask(client, max_tokens=1, logit_bias=bias))

    greedy = first({})
    low, high = 0, 49_152
    while high - low > 1:  # the id of the greedy token: banning a range that holds it changes the answer
        width = min(1024, (high - low + 1) // 2)
        if first({str(i): -100 for i in range(low, low + width)}) != greedy:
            high = low + width
        else:
            low += width
    assert first({str(low): -100}) != greedy
    forced = ask(client, max_tokens=3, logit_bias={str(low): 100}, logprobs=True)
    assert [p.token for p in forced.choices[0].logprobs.content] == [greedy] * 3


def test_logprobs_belong_to_the_tokens(client: openai.OpenAI) -> None:
    answer = ask(client, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert "".join(p.token for p in content) == said(answer)
    for p in content:
        assert p.logprob <= 0
        assert bytes(p.bytes).decode(errors="replace") == p.token
        assert len(p.top_logprobs) == 3
        assert p.top_logprobs[0].logprob == pytest.approx(max(t.logprob for t in p.top_logprobs))
        assert math.isclose(p.top_logprobs[0].logprob, p.logprob, abs_tol=1e-3), "greedy takes the likeliest"
    assert ask(client).choices[0].logprobs is None
    only_chosen = ask(client, logprobs=True).choices[0].logprobs.content
    assert all(p.top_logprobs == [] for p in only_chosen)


def test_logprobs_are_streamed_too(client: openai.OpenAI) -> None:
    chunks = list(ask(client, logprobs=True, top_logprobs=2, stream=True))
    found = [p for c in chunks if c.choices[0].logprobs for p in c.choices[0].logprobs.content]
    assert "".join(p.token for p in found) == "".join(c.choices[0].delta.content or "" for c in chunks)
    assert all(len(p.top_logprobs) == 2 for p in found)


def test_json_object_is_an_object(client: openai.OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Describe a cat in JSON."}]
    answer = ask(client, messages=messages, max_tokens=60, response_format={"type": "json_object"})
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(said(answer)), dict)
    else:
        assert said(answer).startswith("{")


class Person(BaseModel):
    name: Literal["Ada", "Grace"]
    age: Annotated[int, Field(ge=0, le=99)]
    tags: Annotated[list[Literal["x", "y"]], Field(max_length=2)]


SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["colour", "n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_strict_schema_is_kept(client: openai.OpenAI, stream: bool) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "pick", "strict": True, "schema": SCHEMA}}
    answer = ask(client, max_tokens=60, temperature=1, seed=4, response_format=wanted, stream=stream)
    text = "".join(c.choices[0].delta.content or "" for c in answer) if stream else said(answer)
    value = json.loads(text)
    assert value["colour"] in ("red", "green")
    assert 0 <= value["n"] <= 9
    assert set(value) == {"colour", "n"}


def test_parse_gives_a_pydantic_model(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": "Invent a person aged 40."}], response_format=Person,
        max_completion_tokens=120, temperature=0,
    )  # fmt: skip
    person = parsed.choices[0].message.parsed
    assert isinstance(person, Person)


def test_text_parts_and_every_role_are_taken(client: openai.OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}], "name": "ann"},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "Go on."},
    ]
    assert said(ask(client, messages=messages))


def test_hints_for_other_servers_are_taken(client: openai.OpenAI) -> None:
    hints = {"user": "someone", "metadata": {"team": "red"}, "store": False, "service_tier": "auto"}
    answer = ask(client, response_format={"type": "text"}, **hints)
    assert said(answer) == said(ask(client))


def test_the_raw_answer_carries_a_request_id(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=2)
    assert raw.request_id
    assert raw.request_id.startswith("req_")
    assert raw.parse()._request_id == raw.request_id


@pytest.mark.parametrize("_specification", PUBLISHED, ids=lambda p: Path(p).stem)
@pytest.mark.parametrize(
    "parameters",
    [{}, {"n": 2, "logprobs": True, "top_logprobs": 2}, {"response_format": {"type": "json_object"}}],
    ids=["plain", "n and logprobs", "json"],
)
def test_answers_and_chunks_have_the_published_shape(
    server: Server, parameters: dict[str, Any], _specification: Path
) -> None:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 5} | parameters
    with server.client() as http:
        assert_published("CreateChatCompletionResponse", http.post("/v1/chat/completions", json=body).json())
        streamed = http.post(
            "/v1/chat/completions", json=body | {"stream": True, "stream_options": {"include_usage": True}}
        )
        assert_published("ListModelsResponse", http.get("/v1/models").json())
        assert_published("Model", http.get(f"/v1/models/{MODEL}").json())
        assert_published("ErrorResponse", http.get("/v1/models/missing").json())
    frames = streamed.text.removesuffix("\n\n").split("\n\n")
    assert frames.pop() == "data: [DONE]"
    for frame in frames:
        assert_published("CreateChatCompletionStreamResponse", json.loads(frame.removeprefix("data: ")))
