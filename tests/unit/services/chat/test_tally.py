"""The tally of a stream: what it counts, what it holds back, and what a broken generation has used."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chat.tally import Tally
from services.common.messages import (
    WHOLE_PROMPT,
    Event,
    Finished,
    Prefilled,
    Spent,
    TextDelta,
    ToolCallDelta,
    Usage,
)

USAGE = Usage(7, 11, 3)
said = st.builds(TextDelta, st.integers(0, 3), st.text(max_size=3), st.integers(0, 5))
called = st.builds(ToolCallDelta, st.integers(0, 3), st.just(0), tokens=st.integers(0, 5))
prefilled = st.builds(Prefilled, st.integers(-1, 99))


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, list[list[Event]]]:
    """Choices, and the batches of a stream in which events come in any order, the account of it wherever it likes."""
    choices = draw(st.integers(1, 4))
    events: list[Event] = draw(st.lists(said | called | prefilled, max_size=12))
    events += [Finished(i, "stop") for i in range(choices)]
    events = list(draw(st.permutations(events)))
    events.insert(draw(st.integers(0, len(events))), USAGE)
    cuts = sorted(draw(st.lists(st.integers(0, len(events)), max_size=6)))
    edges = [0, *cuts, len(events)]
    return choices, [events[a:b] for a, b in pairwise(edges)]


def flat(batches: Sequence[Sequence[Event]]) -> list[Event]:
    return [event for batch in batches for event in batch]


@given(streams())
def test_everything_but_the_prefill_passes_once_and_in_order(stream: tuple[int, list[list[Event]]]) -> None:
    choices, batches = stream
    tally = Tally(choices)
    passed = flat([tally.take(batch) for batch in batches])
    assert passed == [e for e in flat(batches) if not isinstance(e, Prefilled)]


@given(streams())
def test_the_output_is_the_sum_of_the_tokens_so_far(stream: tuple[int, list[list[Event]]]) -> None:
    choices, batches = stream
    tally = Tally(choices)
    for i, batch in enumerate(batches):
        tally.take(batch)
        seen = flat(batches[: i + 1])
        assert tally.output == sum(e.tokens for e in seen if isinstance(e, TextDelta | ToolCallDelta))
        assert tally.usage == (USAGE if USAGE in seen else None)


@given(streams())
def test_the_last_end_never_passes_before_the_account(stream: tuple[int, list[list[Event]]]) -> None:
    choices, batches = stream
    tally = Tally(choices)
    ended = 0
    for i, batch in enumerate(batches):
        for event in tally.take(batch):
            ended += isinstance(event, Finished)
        assert ended < choices or USAGE in flat(batches[: i + 1])


@given(streams())
def test_without_an_account_the_answer_never_ends(stream: tuple[int, list[list[Event]]]) -> None:
    choices, batches = stream
    tally = Tally(choices)
    passed = flat([tally.take([e for e in batch if e != USAGE]) for batch in batches])
    assert sum(isinstance(e, Finished) for e in passed) == choices - 1


def counted(*events: Event) -> Tally:
    tally = Tally(1)
    tally.take(events)
    return tally


@pytest.mark.parametrize(
    ("events", "told", "spent"),
    [
        ((), None, Spent(0)),
        ((Prefilled(4),), None, Spent(4)),
        ((Prefilled(4), Prefilled(9)), None, Spent(9)),
        ((Prefilled(WHOLE_PROMPT),), None, Spent(10)),
        ((Prefilled(10), TextDelta(0, "a", 2)), None, Spent(10, 2)),
        ((TextDelta(0, "a", 2),), None, Spent(10, 2)),
        ((), Spent(0), Spent(0)),
        ((), Spent(6), Spent(6)),
        ((), Spent(WHOLE_PROMPT), Spent(10)),
        ((TextDelta(0, "a", 2),), Spent(0, 3), Spent(10, 3)),
        ((TextDelta(0, "a", 2),), Spent(WHOLE_PROMPT, 5), Spent(10, 5)),
        ((TextDelta(0, "a", 2),), Spent(10, 5, 4), Spent(10, 5, 4)),
        # A second try without tools, a prompt that was shown fewer tools than we counted: the engine knows.
        ((TextDelta(0, "a", 2),), Spent(18, 5), Spent(18, 5)),
        ((TextDelta(0, "a", 2),), Spent(7, 5), Spent(7, 5)),
        # What is cached is part of the prompt.
        ((), Spent(3, 0, 8), Spent(3, 0, 3)),
    ],
    ids=repr,
)
def test_what_a_broken_generation_has_used(events: tuple[Event, ...], told: Spent | None, spent: Spent) -> None:
    """Of a prompt of 10 tokens. The engine's word counts before ours."""
    assert counted(*events).spent(10, told) == spent
