"""Embeddings with openai-python."""

import math
from pathlib import Path

import openai
import pytest

from tests.support.published import PUBLISHED, assert_published
from tests.support.server import EMBEDDINGS, Server


def dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def vectors(client: openai.OpenAI, *texts: str, **options: object) -> list[list[float]]:
    found = client.embeddings.create(model=EMBEDDINGS, input=list(texts), **options)  # type: ignore[arg-type]
    assert [d.index for d in found.data] == list(range(len(texts)))
    return [d.embedding for d in found.data]


def test_equal_texts_are_equal_and_of_unit_length(client: openai.OpenAI) -> None:
    a, b, c = vectors(client, "A cat sleeps.", "A cat sleeps.", "Interest rates rose again.")
    assert len(a) == 384
    assert dot(a, a) == pytest.approx(1, abs=1e-5)
    assert dot(a, b) == pytest.approx(1, abs=1e-5)
    assert dot(a, c) < 0.5


def test_base64_which_the_client_asks_for_and_float_are_the_same_numbers(client: openai.OpenAI) -> None:
    [default] = vectors(client, "hello")
    [floats] = vectors(client, "hello", encoding_format="float")
    assert default == pytest.approx(floats, abs=1e-6)
    raw = client.embeddings.create(model=EMBEDDINGS, input="hello", encoding_format="base64").data[0].embedding
    assert isinstance(raw, str)


def test_fewer_dimensions_are_the_first_ones_at_unit_length(client: openai.OpenAI) -> None:
    [whole] = vectors(client, "hello")
    [short] = vectors(client, "hello", dimensions=64)
    scale = math.sqrt(dot(whole[:64], whole[:64]))
    assert short == pytest.approx([x / scale for x in whole[:64]], abs=1e-5)
    with pytest.raises(openai.BadRequestError) as caught:
        vectors(client, "hello", dimensions=385)
    assert caught.value.param == "dimensions"


def test_a_batch_gives_what_each_text_gives_alone(client: openai.OpenAI) -> None:
    texts = [f"Text number {i}, " + "long " * (i % 9) for i in range(70)]
    together = vectors(client, *texts)
    for i in (0, 33, 69):
        [alone] = vectors(client, texts[i])
        assert dot(alone, together[i]) == pytest.approx(1, abs=1e-4)


def test_tokens_are_an_input(client: openai.OpenAI) -> None:
    one = client.embeddings.create(model=EMBEDDINGS, input=[7592, 2088])
    assert one.usage.prompt_tokens == one.usage.total_tokens == 4
    [text] = vectors(client, "hello world")
    assert dot(one.data[0].embedding, text) == pytest.approx(1, abs=1e-4)
    assert len(client.embeddings.create(model=EMBEDDINGS, input=[[7592], [2088, 7592]]).data) == 2


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ("", "input[0]"),
        (["good", ""], "input[1]"),
        ([], "input"),
        ("word " * 600, "input[0]"),
        ([10**6], "input[0]"),
        (["x"] * 2049, "input"),
    ],
    ids=["empty", "one empty", "none", "too long", "no such token", "too many"],
)
def test_a_bad_input_is_named(client: openai.OpenAI, given: object, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=EMBEDDINGS, input=given)  # type: ignore[arg-type]
    assert caught.value.param == param


def test_a_chat_model_is_no_embedding_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="smollm2-135m-instruct", input="x")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("_specification", PUBLISHED, ids=lambda p: Path(p).stem)
def test_embeddings_have_the_published_shape(server: Server, _specification: Path) -> None:
    with server.client() as http:
        body = {"model": EMBEDDINGS, "input": ["a", "b"]}
        assert_published("CreateEmbeddingResponse", http.post("/v1/embeddings", json=body).json())
