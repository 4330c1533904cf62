"""The screen of outgoing text: no blocked phrase leaves whole, and nothing else is touched or kept waiting long."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from inference.engines.simulated import SimulatedEngine
from safety.policy import PhraseScreen
from safety.settings import SafetySettings
from safety.stream import PhraseFilter
from services.common.errors import ContentRefused
from services.common.messages import (
    Event,
    Finished,
    GenerationRequest,
    Message,
    Sampling,
    TextDelta,
    ToolCallDelta,
    Usage,
)

quick = settings(deadline=None, max_examples=200)
# Few letters, so that phrases are often met; ß and İ grow when their case is folded, K is the Kelvin sign.
LETTERS = "abAB ßsSİi\u212ak"
TEXT = st.text(LETTERS, max_size=14)
PHRASES = st.lists(st.text(LETTERS, min_size=1, max_size=4).filter(str.strip), min_size=1, max_size=3)
USAGE = Usage(1, 2)


@st.composite
def split(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def said(events: Sequence[Event], index: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.index == index)


def holds(text: str, phrases: Sequence[str]) -> bool:
    return any(p.casefold() in text.casefold() for p in phrases)


def run(phrases: Sequence[str], deltas: Sequence[Event]) -> list[Event]:
    screen = PhraseFilter(phrases)
    return [event for delta in deltas for event in screen.feed([delta])]


@quick
@given(PHRASES, st.lists(TEXT, min_size=1, max_size=3), st.data())
@example(["ss"], ["ß"], None)
@example(["sb"], ["aßb"], None)
@example(["i\u0307a"], ["İA"], None)
def test_no_blocked_phrase_leaves_whole_and_each_choice_ends_once(
    phrases: list[str], texts: list[str], data: st.DataObject | None
) -> None:
    left = {i: [TextDelta(i, t) for t in (data.draw(split(text)) if data else text)] for i, text in enumerate(texts)}
    events: list[Event] = []
    while any(left.values()):
        index = data.draw(st.sampled_from([i for i in left if left[i]])) if data else next(i for i in left if left[i])
        events.append(left[index].pop(0))
    events += [Finished(i, "stop") for i in range(len(texts))] + [USAGE]
    out = run(phrases, events)
    for i, text in enumerate(texts):
        assert not holds(said(out, i), phrases)
        if holds(text, phrases):
            assert Finished(i, "content_filter") in out
            assert text.startswith(said(out, i))
        else:
            assert said(out, i) == text
            assert Finished(i, "stop") in out
    assert Counter(e.index for e in out if isinstance(e, Finished)) == dict.fromkeys(range(len(texts)), 1)
    assert out[-1] == USAGE


@quick
@given(PHRASES, TEXT, st.data())
def test_text_without_phrases_passes_unchanged_delta_by_delta(
    phrases: list[str], text: str, data: st.DataObject
) -> None:
    assume(not holds(text, phrases))
    deltas = [TextDelta(0, t, tokens=2, token_ids=(1, 2)) for t in data.draw(split(text))]
    assert run(phrases, [*deltas, Finished(0, "length")]) == [*deltas, Finished(0, "length")]


@quick
@given(PHRASES, TEXT, st.data())
def test_what_is_held_back_is_shorter_than_the_longest_phrase(
    phrases: list[str], text: str, data: st.DataObject
) -> None:
    """Whole deltas are held, so the first of them may reach back further: by no more than the rest of itself."""
    longest = max(len(p.casefold()) for p in phrases)
    screen = PhraseFilter(phrases)
    held: list[str] = []
    for piece in data.draw(split(text)):
        held.append(piece)
        events = screen.feed([TextDelta(0, piece)])
        if any(isinstance(e, Finished) for e in events):
            return
        del held[: len(events)]
        assert len("".join(held[1:])) < longest


@quick
@given(PHRASES, TEXT, st.data())
def test_a_phrase_never_leaves_whole_in_the_arguments_of_a_call(
    phrases: list[str], text: str, data: st.DataObject
) -> None:
    deltas = [ToolCallDelta(0, 0, t, "call_0" if i == 0 else None) for i, t in enumerate(data.draw(split(text)))]
    other = ToolCallDelta(0, 1, "", "call_1", "f")
    out = run(phrases, [*deltas, other, Finished(0, "tool_calls"), USAGE])
    arguments = "".join(e.arguments for e in out if isinstance(e, ToolCallDelta) and e.call == 0)
    assert not holds(arguments, phrases)
    if holds(text, phrases):
        assert out[-2:] == [Finished(0, "content_filter"), USAGE]
    else:
        assert out == [*deltas, other, Finished(0, "tool_calls"), USAGE]


def test_what_follows_a_phrase_in_its_choice_is_dropped_and_other_choices_go_on() -> None:
    screen = PhraseFilter(["bad"])
    assert screen.feed([TextDelta(0, "a b"), TextDelta(1, "fine")]) == [TextDelta(1, "fine")]
    assert screen.feed([TextDelta(0, "AD x"), TextDelta(0, "more"), Finished(0, "stop")]) == [
        Finished(0, "content_filter")
    ]
    assert screen.feed([TextDelta(1, "!"), Finished(1, "stop"), USAGE]) == [
        TextDelta(1, "!"),
        Finished(1, "stop"),
        USAGE,
    ]


def test_text_that_waits_comes_before_a_tool_call_or_the_end() -> None:
    call = ToolCallDelta(0, 0, "{}", "call_0", "f")
    assert run(["bad"], [TextDelta(0, "b"), call]) == [TextDelta(0, "b"), call]
    assert run(["bad"], [TextDelta(0, "ba"), Finished(0, "stop")]) == [TextDelta(0, "ba"), Finished(0, "stop")]


def chat(*texts: str) -> GenerationRequest:
    messages = tuple(Message(role="user", content=t) for t in texts)
    return GenerationRequest(model="simulated", messages=messages, sampling=Sampling(temperature=0))


@pytest.mark.parametrize("text", ["bad", "so BAD!", "STRASSE", "straße"])
async def test_input_that_holds_a_phrase_is_refused_with_the_field(text: str) -> None:
    screen = PhraseScreen(["Bad", "Straße"])
    with pytest.raises(ContentRefused) as refusal:
        await screen.admit(chat("fine", text))
    assert (refusal.value.param, refusal.value.wire_code) == ("messages", "content_policy_violation")
    with pytest.raises(ContentRefused) as refusal:
        await screen.admit(GenerationRequest(model="m", prompt=text))
    assert refusal.value.param == "prompt"


async def test_other_input_passes_and_without_phrases_all_does() -> None:
    await PhraseScreen(["bad"]).admit(chat("b", "ad"))
    await PhraseScreen(["bad"]).admit(GenerationRequest(model="m", prompt=(1, 2)))
    await PhraseScreen(["", " "]).admit(chat("", " "))


async def test_without_phrases_the_stream_is_the_engines_own() -> None:
    async def events() -> AsyncGenerator[Sequence[Event], None]:
        yield [USAGE]

    stream = events()
    assert PhraseScreen([]).outgoing(stream) is stream
    await stream.aclose()


async def test_closing_the_screened_stream_stops_the_engine_and_a_cut_choice_keeps_its_usage() -> None:
    engine = SimulatedEngine(length=20)
    whole = "".join([said(batch) async for batch in engine.generate(chat("Hi"))])
    word = whole.split()[5]
    out = [e async for batch in PhraseScreen([word]).outgoing(engine.generate(chat("Hi"))) for e in batch]
    assert word not in said(out)
    assert whole.startswith(said(out))
    assert [type(e) for e in out[-2:]] == [Finished, Usage]
    assert out[-1].completion_tokens == 20  # type: ignore[union-attr]
    stream = PhraseScreen([word]).outgoing(engine.generate(chat("Hi")))
    await anext(stream)
    assert engine.running == 1
    await stream.aclose()
    assert engine.running == 0


def test_phrases_come_from_the_environment_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_BLOCKED_PHRASES", '["one", "two words"]')
    assert SafetySettings(_env_file=None).blocked_phrases == ("one", "two words")
