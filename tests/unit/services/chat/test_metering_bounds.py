"""What a request may cost at most: bounded by its tier, its model and its budget before anybody runs it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from services.common.account_messages import Principal
from services.common.errors import (
    ContentRefused,
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    QuotaExceeded,
)
from services.common.messages import (
    Message,
)
from tests.unit.services.chat.metering_rig import BUDGET, END, FIRST, LIMIT, TIERS, WHO, Says, rig


@pytest.mark.parametrize(
    ("asked", "model", "prompt", "given"),
    [
        (None, "simulated", 5, 100),
        (7, "simulated", 5, 7),
        (100, "simulated", 5, 100),
        (101, "simulated", 5, 100),
        (10**9, "simulated", 5, 100),
        # A window of 50: what says no bound gets one that fits; who says one is told by the engine.
        (None, "small", 5, 45),
        (70, "small", 5, 70),
        (None, "small", 60, 100),
        # The tier's context: 1,000.
        (None, "simulated", 950, 50),
        (60, "simulated", 950, 50),
        (None, "simulated", 999, 1),
    ],
)
async def test_output_is_bounded_and_reserved_as_bounded(
    asked: int | None, model: str, prompt: int, given: int, tmp_path: Path
) -> None:
    engine = Says(FIRST, END)
    async with rig(tmp_path, engine) as one:
        [admitted, *_] = await one.read(one.turn("x " * prompt, model=model, max_tokens=asked))
        assert engine.requests[0].sampling.max_tokens == given
        assert admitted.tokens.remaining == LIMIT - prompt - given  # type: ignore[union-attr]
    await one.squared()


@pytest.mark.parametrize("n", [1, 3])
async def test_each_choice_is_reserved(n: int, tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        stream = one.turns.run(one.turn("a b", "c", n=n, max_tokens=10))
        [admitted] = await anext(stream)
        assert admitted.tokens.remaining == LIMIT - 3 - 2 * n * 10  # type: ignore[union-attr]
        await stream.aclose()
    await one.squared()


async def test_a_prompt_of_token_ids_is_not_tokenised(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        [admitted, *_] = await one.read(one.turn(prompt=(1, 2, 3), max_tokens=1))
        assert admitted.tokens.remaining == LIMIT - 4  # type: ignore[union-attr]
    assert [(r.prompt_tokens, r.output_tokens) for r in await one.squared()] == [(3, 1)]


@pytest.mark.parametrize(("fields", "param"), [({"prompt": "x " * 1000}, "prompt"), ({"messages": 1}, "messages")])
async def test_a_prompt_beyond_the_tiers_context_is_refused_by_name(
    fields: dict[str, object], param: str, tmp_path: Path
) -> None:
    if "messages" in fields:
        fields = {"prompt": None, "messages": (Message(role="user", content="x " * 1000),)}
    async with rig(tmp_path) as one:
        with pytest.raises(ContextLengthExceeded, match="your tier's context is 1000") as caught:
            await one.read(one.turn(**fields))
        assert caught.value.param == param
    assert one.limiter.reserved == []


async def test_a_cost_that_no_wait_lets_through_names_what_to_lower(tmp_path: Path) -> None:
    tiers = TIERS.replace("max_output_tokens = 100", "max_output_tokens = 50_000").replace("max_context = 1000", "")
    async with rig(tmp_path, tiers=tiers) as one:
        with pytest.raises(InvalidRequest, match="max_tokens") as caught:
            await one.read(one.turn(n=2, max_tokens=40_000))
        assert caught.value.param == "max_tokens"
        await one.read(one.turn(n=2, max_tokens=10))
    await one.squared()


async def test_a_budget_refuses_before_it_is_passed(tmp_path: Path) -> None:
    tiers = TIERS.replace(f"monthly_budget = {BUDGET}", "monthly_budget = 120")
    async with rig(tmp_path, tiers=tiers) as one:
        await one.read(one.turn(max_tokens=6))  # 5 + 12
        with pytest.raises(QuotaExceeded):
            await one.read(one.turn(max_tokens=50))  # 5 + 100
        await one.read(one.turn(request_id="g1", max_tokens=49))  # 5 + 98, and no more
    assert sum(r.cost for r in one.journal.ended) == 34


MODELS = TIERS.replace('"simulated", "small"', '"s*"')


@pytest.mark.parametrize(
    ("who", "model"),
    [
        (WHO, "forbidden"),
        (WHO, "unheard-of"),
        (replace(WHO, models=("small",)), "simulated"),
        (replace(WHO, models=("forbidden",)), "forbidden"),
    ],
)
@pytest.mark.parametrize("prompt", ["hello", "the blocked phrase", "x " * 5000], ids=["short", "blocked", "long"])
async def test_a_model_that_one_may_not_use_is_as_missing_as_one_that_never_was(
    who: Principal, model: str, prompt: str, tmp_path: Path
) -> None:
    async with rig(tmp_path, phrases=("blocked",), tiers=MODELS) as one:
        one.who = who
        with pytest.raises(ModelNotFound) as caught:
            await one.read(one.turn(prompt, model=model))
        assert caught.value.body() == ModelNotFound.named(model).body()
    assert one.limiter.reserved == []


async def test_screens_see_a_prompt_before_it_costs(tmp_path: Path) -> None:
    async with rig(tmp_path, phrases=("blocked",)) as one:
        with pytest.raises(ContentRefused):
            await one.read(one.turn("a blocked phrase"))
        with pytest.raises(EngineFailed):
            await one.read(one.turn(model="lost"))
    assert one.limiter.reserved == []
