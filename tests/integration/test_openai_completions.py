"""Legacy completions with openai-python on a real model."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.published import PUBLISHED, assert_published
from tests.support.server import MODEL, Server


def ask(client: openai.OpenAI, **parameters: Any) -> Any:
    given = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    return client.completions.create(**(given | parameters))


def test_a_prompt_is_continued(client: openai.OpenAI) -> None:
    answer = ask(client)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    [choice] = answer.choices
    assert choice.text
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 8


def test_without_a_limit_sixteen_tokens_come(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="One, two, three, four, five, six,", temperature=0)
    assert answer.usage.completion_tokens <= 16  # type: ignore[union-attr]
    assert answer.choices[0].finish_reason in ("length", "stop")


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    *chunks, last = ask(client, stream=True, stream_options={"include_usage": True})
    assert "".join(c.choices[0].text for c in chunks) == ask(client).choices[0].text
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["length"]
    assert last.choices == []
    assert last.usage.completion_tokens == 8


def test_prompts_times_n_are_numbered_in_order(client: openai.OpenAI) -> None:
    prompts = ["The sky is", "Snow is"]
    answer = ask(client, prompt=prompts, n=2, temperature=1, seed=1)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert 4 <= answer.usage.completion_tokens <= 32
    alone = [ask(client, prompt=p).choices[0].text for p in prompts]
    together = ask(client, prompt=prompts)
    assert [c.text for c in together.choices] == alone


def test_prompts_are_streamed_side_by_side(client: openai.OpenAI) -> None:
    texts = ["", ""]
    for chunk in ask(client, prompt=["The sky is", "Snow is"], stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [ask(client, prompt=p).choices[0].text for p in ("The sky is", "Snow is")]


def test_token_ids_are_a_prompt(client: openai.OpenAI) -> None:
    one = ask(client, prompt=[500, 501, 502])
    assert one.choices[0].text
    assert one.usage.prompt_tokens == 3
    two = ask(client, prompt=[[500, 501, 502], [600, 601]])
    assert len(two.choices) == 2
    assert two.choices[0].text == one.choices[0].text
    assert two.usage.prompt_tokens == 5


def test_logprobs_are_four_lists_side_by_side(client: openai.OpenAI) -> None:
    found = ask(client, logprobs=2).choices[0]
    p = found.logprobs
    assert "".join(p.tokens) == found.text
    assert len(p.tokens) == len(p.token_logprobs) == len(p.top_logprobs) == len(p.text_offset) == 8
    assert all(1 <= len(top) <= 2 for top in p.top_logprobs)
    assert all(found.text[at:].startswith(token) for at, token in zip(p.text_offset, p.tokens, strict=True))
    streamed = [c.choices[0].logprobs for c in ask(client, logprobs=2, stream=True)]
    assert [t for s in streamed if s for t in s.tokens] == p.tokens
    assert [t for s in streamed if s for t in s.text_offset] == p.text_offset


def test_stop_and_best_of(client: openai.OpenAI) -> None:
    free = ask(client).choices[0].text
    stop = free[3:6]
    assert ask(client, stop=[stop]).choices[0].text == free[: free.index(stop)]
    assert len(ask(client, n=2, best_of=2, temperature=1).choices) == 2
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, best_of=3)
    assert caught.value.param == "best_of"


@pytest.mark.parametrize("name", ["echo", "suffix"])
def test_what_is_not_supported_is_said(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **{name: True if name == "echo" else "end"})
    assert caught.value.param == name


@pytest.mark.parametrize("ids", [[2**31 - 1], [49_152], [0, 10_000_000]])
def test_token_ids_outside_the_vocabulary_are_refused(client: openai.OpenAI, ids: list[int]) -> None:
    with pytest.raises(openai.BadRequestError):
        ask(client, prompt=ids)
    assert ask(client).choices[0].text


@pytest.mark.parametrize("_specification", PUBLISHED, ids=lambda p: Path(p).stem)
def test_completions_have_the_published_shape(server: Server, _specification: Path) -> None:
    body = {"model": MODEL, "prompt": "The", "max_tokens": 3, "logprobs": 1, "n": 2}
    with server.client() as http:
        assert_published("CreateCompletionResponse", http.post("/v1/completions", json=body).json())
        streamed = http.post("/v1/completions", json=body | {"stream": True}).text
    for frame in streamed.split("\n\n")[:-2]:
        chunk = json.loads(frame.removeprefix("data: "))
        # The schema has no null finish_reason, which the API itself sends in every chunk but the last.
        for choice in chunk["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        assert_published("CreateCompletionResponse", chunk)
