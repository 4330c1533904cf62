"""Embeddings, admitted and accounted like generations."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.chat.embedding import EmbeddingEngine
from services.common.errors import InvalidRequest, ModelNotFound, Overloaded, RateLimited
from services.common.messages import EmbeddingRequest, Embeddings
from tests.unit.services.chat.metering_rig import LIMIT, TIERS, WHO, Rig, rig, turns_of_the_loop

ASKED = EmbeddingRequest(model="small", inputs=("three little words", "two more"))


class Embedder:
    """A token a word, and one more in the end than it had counted."""

    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.ran = 0

    async def count(self, request: EmbeddingRequest) -> int:
        await turns_of_the_loop(2)
        if any(not text for text in request.inputs):
            raise InvalidRequest("An input is empty.", param="input[0]")
        return sum(len(str(text).split()) for text in request.inputs)

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        self.ran += 1
        await turns_of_the_loop(3)
        if self.fails:
            raise self.fails
        return Embeddings(tuple((1.0,) for _ in request.inputs), await self.count(request) + 1)


def engine(one: Rig, embedder: Embedder) -> EmbeddingEngine:
    return EmbeddingEngine(embedder, one.meter)


async def test_they_cost_the_tokens_that_the_model_took(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        found = await engine(one, Embedder()).run(WHO, "e", ASKED)
        assert found.embeddings.vectors == ((1.0,), (1.0,))
        assert found.admitted.tokens
        assert found.admitted.tokens.remaining == LIMIT - 5
    [record] = await one.squared()
    assert (record.kind, record.model, record.outcome) == ("embedding", "small", "finished")
    assert (record.prompt_tokens, record.output_tokens, record.cost) == (6, 0, 18)
    assert (record.tenant, record.user_id, record.key_id, record.project) == ("acme", "u", "k", "p")


@pytest.mark.parametrize("failure", [InvalidRequest("no", param="dimensions"), ValueError("a bug")])
async def test_what_fails_costs_nothing(failure: Exception, tmp_path: Path) -> None:
    embedder = Embedder()
    embedder.fails = failure
    async with rig(tmp_path) as one:
        with pytest.raises(type(failure)):
            await engine(one, embedder).run(WHO, "e", ASKED)
    [record] = await one.squared()
    assert (record.outcome, record.prompt_tokens) == ("failed", 0)


@pytest.mark.parametrize("again", [None, 0, 1, 3])
async def test_cancelled_in_any_turn_of_the_loop(again: int | None, tmp_path: Path) -> None:
    steps, cancelled = 0, True
    while cancelled:
        embedder = Embedder()
        async with rig(tmp_path / str(steps), hesitates=True) as one:
            task = asyncio.create_task(engine(one, embedder).run(WHO, "e", ASKED))
            await turns_of_the_loop(steps)
            cancelled = task.cancel()
            if again is not None:
                await turns_of_the_loop(again)
                task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        records = await one.squared()
        assert len(records) == embedder.ran
        assert all(r.prompt_tokens >= 5 for r in records), "the model runs to its end"
        steps += 1
    assert steps > 8


@pytest.mark.parametrize("failure", [Overloaded("away"), OSError("a bug")])
async def test_a_settlement_that_fails_takes_no_answer_away(failure: Exception, tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        one.limiter.fails = failure
        assert (await engine(one, Embedder()).run(WHO, "e", ASKED)).embeddings.prompt_tokens == 6
    assert [r.outcome for r in one.journal.ended] == ["finished"]


async def test_a_full_disk_lets_nothing_begin(tmp_path: Path) -> None:
    embedder = Embedder()
    async with rig(tmp_path) as one:
        one.journal.room = 0
        with pytest.raises(Overloaded):
            await engine(one, embedder).run(WHO, "e", ASKED)
    assert embedder.ran == 0
    assert [s.tokens for s in one.limiter.settled] == [0]


async def test_refusals_come_before_the_model(tmp_path: Path) -> None:
    embedder = Embedder()
    async with rig(tmp_path) as one:
        run = engine(one, embedder).run
        with pytest.raises(InvalidRequest, match="input is empty") as empty:
            await run(WHO, "e", EmbeddingRequest(model="small", inputs=("",)))
        assert empty.value.param == "input[0]"
        with pytest.raises(ModelNotFound):
            await run(WHO, "e", EmbeddingRequest(model="forbidden", inputs=("",)))
        with pytest.raises(ModelNotFound):
            await run(replace(WHO, models=("simulated",)), "e", ASKED)
        with pytest.raises(InvalidRequest, match="several requests") as large:
            await run(WHO, "e", EmbeddingRequest(model="small", inputs=("x " * (LIMIT + 1),)))
        assert large.value.param == "input"
        one.limiter.refuses = RateLimited("wait")
        with pytest.raises(RateLimited):
            await run(WHO, "e", ASKED)
    assert embedder.ran == 0
    assert one.limiter.settled == []
    assert await one.squared() == []


async def test_chat_and_embeddings_have_buckets_of_their_own(tmp_path: Path) -> None:
    tiers = TIERS.replace("[t.limits.embedding]\norganisation = { requests_per_minute = 60000", "[t.limits.embedding]\n"
                          "organisation = { requests_per_minute = 1")  # fmt: skip
    async with rig(tmp_path, tiers=tiers) as one:
        run = engine(one, Embedder()).run
        await run(WHO, "e", ASKED)
        with pytest.raises(RateLimited):
            await run(WHO, "f", ASKED)
        await one.read(one.turn(max_tokens=1))
