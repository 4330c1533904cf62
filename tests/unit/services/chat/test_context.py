"""What of a conversation goes into the prompt."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engines.simulated import SimulatedEngine
from services.chat.context import TEMPLATE_OVERHEAD, cut, fit
from services.common.errors import ContextLengthExceeded
from services.common.messages import Message, TokenizeRequest, Tokens

quick = settings(deadline=None, max_examples=150)
COSTS = st.lists(st.integers(1, 60), min_size=1, max_size=30)


class CountingEngine(SimulatedEngine):
    """One token a word; knows how often it was asked."""

    def __init__(self, window: int):
        super().__init__(context_window=window)
        self.asked = 0

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        self.asked += 1
        return await super().tokenize(request)


def words(count: int, role: str = "user") -> Message:
    return Message(role=role, content=" ".join(["wordword"] * count))  # type: ignore[arg-type]


def talk(*counts: int) -> list[Message]:
    """User and assistant in turn, each with so many tokens."""
    return [words(count, "assistant" if i % 2 else "user") for i, count in enumerate(counts)]


@quick
@given(COSTS, st.integers(0, 400), st.integers(1, 100))
def test_as_few_of_the_oldest_are_dropped_as_the_step_asks_and_never_the_last(
    costs: list[int], budget: int, step: int
) -> None:
    count = cut(costs, budget, step)
    assert 0 <= count <= len(costs) - 1
    excess = sum(costs) - budget
    if excess <= 0:
        assert count == 0
    elif count < len(costs) - 1:
        assert sum(costs[count:]) <= budget
        assert sum(costs[: count - 1]) < excess + step


@quick
@given(COSTS, st.integers(0, 400), st.integers(1, 100))
def test_a_conversation_that_grows_never_takes_a_message_back(costs: list[int], budget: int, step: int) -> None:
    counts = [cut(costs[:end], budget, step) for end in range(1, len(costs) + 1)]
    assert counts == sorted(counts)
    for total in range(budget, budget + 50):
        assert cut([*costs, total], budget, step) <= cut([*costs, total + 1], budget, step)


@quick
@given(st.lists(st.integers(1, 10), min_size=30, max_size=80), st.integers(60, 200))
def test_between_two_steps_the_prompt_keeps_its_beginning(costs: list[int], budget: int) -> None:
    """So the engine's prefix cache goes on hitting: the beginning moves once in a quarter window or less often."""
    step = budget // 4
    counts = [cut(costs[:end], budget, step) for end in range(1, len(costs) + 1)]
    totals = list(accumulate(costs))
    for (count, total), (later, total_later) in zip(
        zip(counts, totals, strict=True), zip(counts[1:], totals[1:], strict=True), strict=False
    ):
        if -(-(total - budget) // step) == -(-(total_later - budget) // step):
            assert count == later


async def test_a_prompt_that_surely_fits_is_never_counted() -> None:
    engine = CountingEngine(8192)
    history = talk(10, 20, 30)
    fitted = await fit(engine, "m", "Be brief.", history, None)
    assert fitted.messages == (Message(role="system", content="Be brief."), *history)
    assert (fitted.dropped, engine.asked) == (0, 0)


async def test_a_prompt_that_may_not_fit_is_counted_once_and_kept_if_it_does() -> None:
    engine = CountingEngine(200)
    history = talk(40, 40, 40)
    fitted = await fit(engine, "m", "", history, None)
    assert (fitted.messages, fitted.dropped, engine.asked) == (tuple(history), 0, 1)


async def test_without_a_system_prompt_there_is_no_system_message() -> None:
    fitted = await fit(CountingEngine(8192), "m", "", talk(1), None)
    assert [m.role for m in fitted.messages] == ["user"]


def tokens(messages: Sequence[Message]) -> int:
    return sum(len(m.content.split()) + TEMPLATE_OVERHEAD for m in messages)


@quick
@given(
    st.lists(st.integers(1, 120), min_size=1, max_size=40), st.integers(0, 100), st.none() | st.integers(1, 4000),
    st.sampled_from([512, 1024]), st.booleans(),
)  # fmt: skip
async def test_what_is_sent_fits_begins_at_a_user_and_ends_with_the_last(
    counts: list[int], system: int, max_tokens: int | None, window: int, answered: bool
) -> None:
    if answered == bool(len(counts) % 2):
        counts = [*counts, 5]
    history, prompt = talk(*counts), words(system).content if system else ""
    fitted = await fit(CountingEngine(window), "m", prompt, history, max_tokens)
    sent = list(fitted.messages)
    if system:
        assert sent.pop(0) == Message(role="system", content=prompt)
    assert sent == history[fitted.dropped :]
    assert len(sent) >= 1
    if len(sent) > 1:
        assert sent[0].role == "user"
    room = min(max_tokens or window // 4, window // 4)
    if fitted.dropped:
        assert tokens(fitted.messages) <= window - room
    else:
        assert tokens(fitted.messages) - TEMPLATE_OVERHEAD * len(fitted.messages) <= window - room


async def test_a_message_that_cannot_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextLengthExceeded) as refusal:
        await fit(CountingEngine(200), "m", words(60).content, talk(5, 5, 90), None)
    assert refusal.value.param == "content"
    assert all(str(n) in refusal.value.message for n in (90 + TEMPLATE_OVERHEAD, 60 + TEMPLATE_OVERHEAD, 200, 150))


async def test_room_for_a_short_answer_leaves_more_to_the_prompt() -> None:
    history = talk(*[20] * 9)
    generous = await fit(CountingEngine(400), "m", "", history, None)
    short = await fit(CountingEngine(400), "m", "", history, 10)
    assert (await fit(CountingEngine(400), "m", "", history, 10_000)) == generous
    assert short.dropped <= generous.dropped
