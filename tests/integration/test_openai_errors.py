"""Each failure is the class that openai-python gives it."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.server import SIMULATED, Server


@pytest.fixture
def stranger(simulated_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{simulated_server.url}/v1", api_key="sk-wrong", max_retries=0) as made:
        yield made


def ask(client: openai.OpenAI, **parameters: Any) -> Any:
    given = {"model": SIMULATED, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    return client.chat.completions.create(**(given | parameters))


@pytest.mark.parametrize("key", ["sk-wrong", "sk-" + "A" * 43, "x" * 5000])
def test_a_wrong_key_is_an_authentication_error(simulated_server: Server, key: str) -> None:
    with openai.OpenAI(base_url=f"{simulated_server.url}/v1", api_key=key, max_retries=0) as stranger:
        for call in (lambda: ask(stranger), stranger.models.list, lambda: stranger.models.retrieve(SIMULATED)):
            with pytest.raises(openai.AuthenticationError) as caught:
                call()
            assert caught.value.code == "invalid_api_key"
            assert caught.value.request_id


def test_a_missing_model_is_not_found(quick: openai.OpenAI) -> None:
    for call in (
        lambda: ask(quick, model="missing"),
        lambda: ask(quick, model="missing", stream=True),
        lambda: quick.models.retrieve("missing"),
        lambda: quick.completions.create(model="missing", prompt="x"),
        lambda: quick.embeddings.create(model="missing", input="x"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_bad_parameter_is_named(quick: openai.OpenAI) -> None:
    for change, param in (
        ({"temperature": 3}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type"),
        ({"extra_body": {"misspelt": 1}}, "misspelt"),
        ({"extra_body": {"stream_options": {"include_usage": True}}}, "stream_options"),
        ({"top_logprobs": 2}, "top_logprobs"),
    ):  # fmt: skip
        with pytest.raises(openai.BadRequestError) as caught:
            ask(quick, **change)
        assert caught.value.param == param
        assert caught.value.type == "invalid_request_error"


def test_a_prompt_beyond_the_window_has_the_code_that_clients_know(quick: openai.OpenAI, client: openai.OpenAI) -> None:
    long = [{"role": "user", "content": "word " * 9000}]
    for asked, model in ((quick, SIMULATED), (client, "smollm2-135m-instruct")):
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                ask(asked, model=model, messages=long, stream=stream)
            assert caught.value.code == "context_length_exceeded"
            assert "maximum context length" in str(caught.value)


def test_a_body_too_large_is_a_413(quick: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        ask(quick, messages=[{"role": "user", "content": "x" * (9 << 20)}])
    assert caught.value.status_code == 413
    assert caught.value.code == "request_too_large"


async def test_the_async_client_has_the_same_classes(simulated_server: Server) -> None:
    async with openai.AsyncOpenAI(base_url=f"{simulated_server.url}/v1", api_key="sk-no", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()


def test_the_stranger_learns_nothing_about_models(stranger: openai.OpenAI) -> None:
    for model in (SIMULATED, "missing"):
        with pytest.raises(openai.AuthenticationError):
            stranger.models.retrieve(model)
