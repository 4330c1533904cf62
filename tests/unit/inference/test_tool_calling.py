import json
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engines.tool_calling import ToolCalling, call_schema
from services.common import messages as m
from services.common.errors import InvalidRequest
from tests.support.engines import Answer, ask, collect

TOOLS = (m.Tool("get_weather"), m.Tool("get_time"))
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
tricky = st.sampled_from(["```", "```json", "<tool_call>", "</tool_call>", '"}]', "\\", "\n\n"])
calls = st.tuples(
    st.sampled_from([t.name for t in TOOLS]), st.dictionaries(st.text("abc", min_size=1), values | tricky, max_size=3)
)


class Scripted:
    """Says one text a request, cut as told; remembers the requests."""

    def __init__(self, *texts: Sequence[str], reason: m.FinishReason = "stop"):
        self.texts, self.reason = list(texts), reason
        self.requests: list[m.GenerationRequest] = []
        self.said: list[str] = []

    async def generate(self, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
        pieces = self.texts[len(self.requests)]
        self.requests.append(request)
        for piece in pieces:
            self.said.append(piece)
            yield [m.TextDelta(0, piece)]
        yield [m.Finished(0, self.reason), m.Usage(7, len(pieces))]


def cut(text: str, at: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(i % (len(text) + 1) for i in at)})
    return [text[a:b] for a, b in pairwise(places)] or [""]


async def answer(engine: Scripted, **fields: object) -> Answer:
    return await collect(ToolCalling(engine), ask(**({"tools": TOOLS} | fields)))  # type: ignore[arg-type]


def write(shape: str, made: list[tuple[str, dict[str, object]]], key: str, indent: int | None) -> str:
    texts = [json.dumps({"name": n, key: a}, ensure_ascii=False, indent=indent) for n, a in made]
    return {
        "bare": "\n".join(texts),
        "fenced": "```json\n" + "\n".join(texts) + "\n```",
        "fenced apart": "\n".join(f"```\n{text}\n```" for text in texts),
        "tagged": "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts),
        "list": "[" + ", ".join(texts) + "]",
        "fenced list": "```json\n[\n" + ",\n".join(texts) + "\n]\n```",
    }[shape]


@given(
    st.sampled_from(["bare", "fenced", "fenced apart", "tagged", "list", "fenced list"]),
    st.lists(calls, min_size=1, max_size=3), st.sampled_from(["arguments", "parameters"]),
    st.sampled_from([None, 2]), st.sampled_from(["", "\n", "  "]), st.lists(st.integers(0, 999), max_size=9),
)  # fmt: skip
async def test_a_call_is_found_in_any_shape_however_it_is_cut(
    shape: str, made: list[tuple[str, dict[str, object]]], key: str, indent: int | None, lead: str, cuts: list[int]
) -> None:
    text = lead + write(shape, made, key, indent)
    found = await answer(Scripted(cut(text, cuts)))
    assert [(c.name, json.loads(c.arguments)) for c in found.calls()] == made
    assert found.text() == ""
    assert found.reasons() == {0: "tool_calls"}
    assert found.tokens() == found.usage().completion_tokens
    assert len({c.id for c in found.calls()}) == len(made)


words = st.text(st.characters(codec="utf-8"), max_size=40)
not_calls = st.one_of(
    words.filter(lambda t: "name" not in t),
    st.builds(lambda name, tail: json.dumps({"name": name}) + tail, words.filter(lambda w: "get" not in w), words),
    st.builds(lambda tail: f"I would say {CALL}{tail}", words),
    st.builds(lambda tail: f"```python\nprint({CALL})\n```{tail}", words),
    st.sampled_from(
        ['{"name": []}', '{"name": {}}', '{"city": "Paris"}', "[1, 2]", "[link](https://x)", "{}", "[", "```", "<b>",
         '{"name": "get_weather", "arguments": {"x": NaN}}', '{"name": "get_weather", "arguments": {"x": 1e999}}',
         '{"name": "get_weather", "arguments": {"x": "\\ud800"}}', "[" * 5000, '{"name": "get_weather", ' * 3000]
    ),
)  # fmt: skip


@given(not_calls, st.lists(st.integers(0, 999), max_size=9))
async def test_what_is_not_a_call_passes_unchanged_and_in_order(text: str, cuts: list[int]) -> None:
    pieces = cut(text, cuts)
    found = await answer(Scripted(pieces))
    assert [d.text for d in found.deltas()] == pieces
    assert found.calls() == []
    assert found.reasons() == {0: "stop"}
    assert found.usage() == m.Usage(7, len(pieces))


@pytest.mark.parametrize(
    "opening",
    ["Hello", "  The", "[link](", "[1", "```python", "{ x", '{"city"', '{"name": "get_up', '{"name": 5', "<b>", "``x"],
)
async def test_text_is_not_held_back_once_it_cannot_be_a_call(opening: str) -> None:
    inner = Scripted([*opening, " and", " so", " on"])
    async for batch in ToolCalling(inner).generate(ask(tools=TOOLS)):
        assert "".join(e.text for e in batch if isinstance(e, m.TextDelta)) == "".join(inner.said)
        assert opening.startswith("".join(inner.said)), "it came no later than the last letter that says so"
        break


@pytest.mark.parametrize("end", range(1, len(CALL)))
async def test_a_call_cut_off_by_its_length_is_text(end: int) -> None:
    found = await answer(Scripted(list(CALL[:end]), reason="length"))
    assert (found.text(), found.calls(), found.reasons()) == (CALL[:end], [], {0: "length"})


@pytest.mark.parametrize("tail", ["", ', "x', "\n" + CALL[:20]])
async def test_a_call_of_a_name_that_is_not_offered_is_text(tail: str) -> None:
    text = '{"name": "get_rich", "arguments": {}}' + tail
    found = await answer(Scripted([text]))
    assert (found.text(), found.calls()) == (text, [])


async def test_without_parallel_calls_only_the_first_counts() -> None:
    found = await answer(Scripted([CALL + CALL]), parallel_tool_calls=False)
    assert len(found.calls()) == 1


def after_result(city: str) -> tuple[m.Message, ...]:
    made = m.ToolCall("1", "get_weather", f'{{ "city":"{city}" }}')
    return (
        m.Message(role="user", content="Weather?"),
        m.Message(role="assistant", tool_calls=(made,)),
        m.Message(role="tool", content="Sunny", tool_call_id="1"),
    )


async def test_a_call_repeated_after_its_result_is_answered_in_words_instead() -> None:
    inner = Scripted([CALL], ["It", " is sunny."])
    found = await answer(inner, messages=after_result("Paris"))
    assert (found.text(), found.calls()) == ("It is sunny.", [])
    assert [bool(r.tools) for r in inner.requests] == [True, False]
    assert len([e for e in found.events if isinstance(e, m.Usage | m.Finished)]) == 2


async def test_another_call_after_a_result_is_a_call() -> None:
    found = await answer(Scripted([CALL]), messages=after_result("Rome"))
    assert len(found.calls()) == 1


async def test_no_tools_are_shown_when_none_may_be_called() -> None:
    inner = Scripted([CALL])
    found = await answer(inner, tool_choice=m.ToolChoice("none"))
    assert (found.text(), inner.requests[0].tools) == (CALL, ())


def test_the_schema_of_calls_names_each_tool_and_closes_its_arguments() -> None:
    one = call_schema([m.Tool("f", parameters={"type": "object", "properties": {"x": {"type": "integer"}}})])
    assert one["properties"]["name"] == {"const": "f"}
    assert one["properties"]["arguments"]["additionalProperties"] is False
    assert len(call_schema(TOOLS)["anyOf"]) == 2


async def test_closing_the_answer_closes_the_engine_at_once() -> None:
    closed = []

    class Endless(Scripted):
        async def generate(self, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
            try:
                while True:
                    yield [m.TextDelta(0, "word ")]
            finally:
                closed.append(True)

    stream = ToolCalling(Endless()).generate(ask(tools=TOOLS))
    await anext(stream)
    await stream.aclose()
    assert closed == [True]


async def test_a_forced_tool_whose_schema_cannot_compile_is_refused_by_the_name_of_its_field() -> None:
    tools = (m.Tool("f", parameters={"type": "object", "properties": {"a": {"type": "nonsense"}}}),)
    request = m.GenerationRequest(model="m", tools=tools, tool_choice=m.ToolChoice("required"))
    with pytest.raises(InvalidRequest) as refused:
        await collect(ToolCalling(Scripted([""])), request)
    assert refused.value.param == "tools"
