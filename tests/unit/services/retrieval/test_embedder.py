"""The embedder with its real model. Its weights are int8, so that equal sentences agree within 1e-3, not exactly."""

import asyncio
import math
import time
from collections.abc import Sequence

import pytest

from inference.models import ensure, resolve
from services.common.errors import InvalidRequest, ModelNotFound, Overloaded
from services.common.messages import EmbeddingRequest, Embeddings
from services.retrieval.embedder import BATCH, MAX_TOKENS, NoEmbedder, OnnxEmbedder

MODEL = "all-minilm-l6-v2"
TEXTS = [
    "The cat sits on the mat.",
    "A kitten rests on a rug.",
    "Interest rates rose by a quarter of a point.",
    "hi",
    "Grüße, 世界! 😀",
    "long " * 200,
]


@pytest.fixture(scope="session")
def embedder() -> OnnxEmbedder:
    paths = ensure(resolve(MODEL))
    return OnnxEmbedder(MODEL, paths["model.onnx"], paths["tokenizer.json"])


async def embed(embedder: OnnxEmbedder, *inputs: str | Sequence[int], dimensions: int | None = None) -> Embeddings:
    given = tuple(i if isinstance(i, str) else tuple(i) for i in inputs)
    return await embedder.embed(EmbeddingRequest(model=MODEL, inputs=given, dimensions=dimensions))


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


async def test_vectors_have_unit_length_and_384_dimensions(embedder: OnnxEmbedder) -> None:
    found = await embed(embedder, *TEXTS)
    assert [len(v) for v in found.vectors] == [384] * len(TEXTS)
    assert all(math.isclose(cosine(v, v), 1, abs_tol=1e-5) for v in found.vectors)


async def test_what_means_the_same_is_near(embedder: OnnxEmbedder) -> None:
    cat, kitten, rates = (await embed(embedder, *TEXTS[:3])).vectors
    assert cosine(cat, kitten) > 0.5 > 0.2 > cosine(cat, rates)


async def test_a_batch_of_any_lengths_equals_its_inputs_one_by_one_in_order(embedder: OnnxEmbedder) -> None:
    many = [TEXTS[i % len(TEXTS)] + f" {i}" for i in range(BATCH + 8)]
    together = await embed(embedder, *many)
    for i in range(0, len(many), 7):
        alone = await embed(embedder, many[i])
        assert cosine(alone.vectors[0], together.vectors[i]) > 1 - 1e-3
    assert together.prompt_tokens > len(many) * 3


async def test_one_text_is_one_vector_whenever_it_is_asked(embedder: OnnxEmbedder) -> None:
    first, second = await asyncio.gather(embed(embedder, TEXTS[0]), embed(embedder, TEXTS[0]))
    assert first == second


@pytest.mark.parametrize("dimensions", [1, 2, 256, 383, 384])
async def test_fewer_dimensions_are_the_first_ones_at_unit_length(embedder: OnnxEmbedder, dimensions: int) -> None:
    whole = (await embed(embedder, TEXTS[0])).vectors[0]
    short = (await embed(embedder, TEXTS[0], dimensions=dimensions)).vectors[0]
    norm = math.sqrt(cosine(whole[:dimensions], whole[:dimensions]))
    assert short == pytest.approx([x / norm for x in whole[:dimensions]], abs=1e-5)


async def test_more_dimensions_than_the_model_has_are_refused(embedder: OnnxEmbedder) -> None:
    with pytest.raises(InvalidRequest, match="384") as refusal:
        await embed(embedder, "x", dimensions=385)
    assert refusal.value.param == "dimensions"


async def test_the_ids_of_a_text_give_the_vector_and_the_count_of_the_text(embedder: OnnxEmbedder) -> None:
    cls, *ids, sep = embedder._tokenizer.encode(TEXTS[0]).ids
    assert cls != sep
    by_text, by_ids = await embed(embedder, TEXTS[0]), await embed(embedder, ids)
    assert by_text == by_ids
    assert by_ids.prompt_tokens == len(ids) + 2


@pytest.mark.parametrize(
    "wrong",
    ["", "word " * MAX_TOKENS, (1,) * (MAX_TOKENS - 1), (30_522,), (2**31 - 1,), (-1,)],
    ids=["empty", "too long", "too many ids", "beyond the vocabulary", "far beyond it", "negative"],
)
async def test_an_input_that_cannot_be_embedded_is_named(embedder: OnnxEmbedder, wrong: str | Sequence[int]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        await embed(embedder, "fine", "fine", wrong)
    assert refusal.value.param == "input[2]"


async def test_the_longest_input_passes(embedder: OnnxEmbedder) -> None:
    assert (await embed(embedder, "word " * (MAX_TOKENS - 2))).prompt_tokens == MAX_TOKENS
    assert (await embed(embedder, (1000,) * (MAX_TOKENS - 2))).prompt_tokens == MAX_TOKENS


@pytest.mark.parametrize("text", [" ", "\n", "\x00", "\u2028", "\ufffd", "a" * 10_000, "😀" * 300])
async def test_odd_text_is_text(embedder: OnnxEmbedder, text: str) -> None:
    vector = (await embed(embedder, text)).vectors[0]
    assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-5)


async def test_another_model_is_unknown(embedder: OnnxEmbedder) -> None:
    with pytest.raises(ModelNotFound):
        await embedder.embed(EmbeddingRequest(model="other", inputs=("x",)))


async def test_much_text_does_not_stop_the_loop_while_it_is_counted(embedder: OnnxEmbedder) -> None:
    """Every open stream waits while the loop stands still. The last input is refused, so that none is embedded."""
    longest, began = 0.0, time.perf_counter()
    last = began
    work = asyncio.create_task(embed(embedder, *["word " * 400] * 600, ""))
    while not work.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    with pytest.raises(InvalidRequest):
        await work
    assert longest < (last - began) / 2


async def test_without_a_model_the_answer_says_what_to_do() -> None:
    with pytest.raises(Overloaded, match="pull it"):
        await NoEmbedder("pull it").embed(EmbeddingRequest(model=MODEL, inputs=("x",)))
