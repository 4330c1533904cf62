"""What `Engine` promises, whoever runs the model and wherever that is."""

import json

import jsonschema
import pytest
from msgspec.structs import replace

from services.common import messages as m
from services.common.errors import ContextLengthExceeded, InvalidRequest
from tests.support.engines import MODEL, WINDOW, Subject, ask, assert_whole, collect

# One loop for the module, because one server serves it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
ROLL = {"type": "object", "properties": {"sides": {"type": "integer", "minimum": 2}}, "required": ["sides"]}
TOOLS = (m.Tool("get_weather", "The weather of a city", CITY), m.Tool("roll_die", "Roll a die", ROLL))


async def tokens_of(subject: Subject, text: str) -> m.Tokens:
    return await subject.engine.tokenize(m.TokenizeRequest(model=MODEL, text=text))


async def test_an_answer_is_deltas_then_one_finish_then_one_usage(subject: Subject) -> None:
    answer = await collect(subject.engine, ask(max_tokens=8))
    assert_whole(answer)
    assert answer.text()
    assert len(answer.deltas()) > 1, "tokens come as they are made"


async def test_the_usage_is_the_sum_of_the_deltas(subject: Subject) -> None:
    answer = await collect(subject.engine, ask(max_tokens=8))
    assert answer.usage().completion_tokens == 8
    if subject.exact_tokens:
        assert answer.tokens() == 8
    else:
        assert 1 <= answer.tokens() <= 8


async def test_the_prompt_tokens_are_those_that_tokenize_counts(subject: Subject) -> None:
    request = ask("How many tokens are there in this?", max_tokens=1)
    counted = await subject.engine.tokenize(m.TokenizeRequest(model=MODEL, messages=request.messages))
    answer = await collect(subject.engine, request)
    assert counted.count > 0
    if subject.exact_tokens:
        assert answer.usage().prompt_tokens == counted.count == len(counted.ids)
    else:
        assert counted.ids == (), "an estimate says that it is one"
        assert answer.usage().prompt_tokens > 0


async def test_max_tokens_ends_an_answer_with_length(subject: Subject) -> None:
    answer = await collect(subject.engine, ask("Count to a hundred.", max_tokens=3))
    assert answer.reasons() == {0: "length"}
    assert answer.usage().completion_tokens == 3


async def test_a_stop_string_ends_the_text_and_is_not_in_it(subject: Subject) -> None:
    whole = (await collect(subject.engine, ask(max_tokens=16, temperature=0))).text()
    stop = whole[5:12]  # across tokens, wherever they begin
    answer = await collect(subject.engine, ask(max_tokens=16, temperature=0, stop=(stop, "\x00")))
    assert answer.reasons() == {0: "stop"}
    assert answer.text() == whole[: whole.index(stop)]
    assert_whole(answer)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 42}], ids=["greedy", "seeded"])
async def test_a_greedy_or_seeded_answer_repeats(subject: Subject, sampling: dict[str, float]) -> None:
    # Run alone: in batches of other shapes a real engine's kernels may decide a near tie the other way.
    first, second = [(await collect(subject.engine, ask(max_tokens=5, **sampling))).text() for _ in range(2)]
    assert first == second


async def test_another_seed_gives_another_answer(subject: Subject) -> None:
    texts = {(await collect(subject.engine, ask(max_tokens=12, temperature=1, seed=s))).text() for s in (1, 2, 3)}
    assert len(texts) > 1


async def test_n_choices_are_n_answers_with_one_usage(subject: Subject) -> None:
    answer = await collect(subject.engine, ask(n=3, max_tokens=4, temperature=1))
    assert_whole(answer, n=3)
    assert all(answer.text(choice) for choice in range(3))
    if subject.exact_tokens:
        assert answer.usage().completion_tokens == answer.tokens() == 12
    one = await collect(subject.engine, ask(max_tokens=1))
    assert answer.usage().prompt_tokens == one.usage().prompt_tokens, "the choices share one prompt"


@pytest.mark.parametrize("fields", [{}, {"prompt": "Once upon a time"}], ids=["chat", "text"])
@pytest.mark.parametrize("top", [1, 3])
async def test_logprobs_are_one_per_token_with_the_likeliest_beside_it(
    subject: Subject, top: int, fields: dict[str, str]
) -> None:
    answer = await collect(subject.engine, ask(max_tokens=4, logprobs=top, temperature=0, **fields))
    found = answer.logprobs()
    assert len(found) == 4
    for one in found:
        assert one.logprob <= 0
        assert len(one.top) == top
        assert all(other.logprob <= 0 for other in one.top)
    assert b"".join(bytes(one.bytes) for one in found).decode() == answer.text()


async def test_without_logprobs_none_are_sent(subject: Subject) -> None:
    assert (await collect(subject.engine, ask(max_tokens=2))).logprobs() == []


async def test_a_bias_of_minus_100_bans_a_token_and_of_100_forces_it(subject: Subject) -> None:
    ids = (await tokens_of(subject, "choir")).ids if subject.exact_tokens else (253,)  # " a" of this model
    forced = await collect(subject.engine, ask(max_tokens=3, temperature=0, logit_bias={ids[0]: 100}, logprobs=1))
    pieces = {one.token for one in forced.logprobs()}
    assert len(pieces) == 1
    ban = dict.fromkeys(ids[:1], -100)
    usual = await collect(subject.engine, ask(max_tokens=24, temperature=1, seed=3, logit_bias=ban, logprobs=1))
    assert pieces.isdisjoint(one.token for one in usual.logprobs())


async def test_a_schema_binds_the_text(subject: Subject) -> None:
    answer = await collect(subject.engine, ask("Describe a person.", output_schema=PERSON, max_tokens=100))
    jsonschema.validate(json.loads(answer.text()), PERSON)
    assert answer.reasons() == {0: "stop"}


async def test_the_empty_schema_asks_for_an_object(subject: Subject) -> None:
    answer = await collect(subject.engine, ask("Answer with {}", output_schema={}, max_tokens=60, temperature=0))
    assert answer.text().lstrip().startswith("{")
    if answer.reasons() == {0: "stop"}:
        assert isinstance(json.loads(answer.text()), dict)


@pytest.mark.parametrize(
    "schema", [{"type": 12}, {"type": "string", "pattern": "(?<=a)b"}], ids=["nonsense", "lookbehind"]
)
async def test_a_schema_that_cannot_be_enforced_is_refused(subject: Subject, schema: m.Json) -> None:
    if schema["type"] == "string" and not subject.checks_schemas:
        assert_whole(await collect(subject.engine, ask(output_schema=schema, max_tokens=8)))
        return
    with pytest.raises(InvalidRequest):
        await collect(subject.engine, ask(output_schema=schema, max_tokens=8))


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (m.ToolChoice("required"), {"get_weather", "roll_die"}),
        (m.ToolChoice("named", "roll_die"), {"roll_die"}),
        (m.ToolChoice("named", "get_weather"), {"get_weather"}),
    ],
    ids=lambda value: f"{value.mode}-{value.name}" if isinstance(value, m.ToolChoice) else "",
)
async def test_a_demanded_tool_is_called_with_arguments_that_validate(
    subject: Subject, choice: m.ToolChoice, names: set[str]
) -> None:
    request = ask("What is the weather in Paris?", tools=TOOLS, tool_choice=choice, max_tokens=60)
    answer = await collect(subject.engine, request)
    assert_whole(answer)
    if not subject.forces_tools:
        return
    (call,) = answer.calls()
    assert call.id
    assert call.name in names
    jsonschema.validate(json.loads(call.arguments), {t.name: t.parameters for t in TOOLS}[call.name])
    assert answer.reasons() == {0: "tool_calls"}
    assert answer.text() == ""
    assert answer.tokens() == answer.usage().completion_tokens


async def test_a_tool_that_is_not_there_cannot_be_demanded(subject: Subject) -> None:
    request = ask(tools=TOOLS, tool_choice=m.ToolChoice("named", "fly"), max_tokens=8)
    if subject.forces_tools:
        with pytest.raises(InvalidRequest):
            await collect(subject.engine, request)
    else:
        assert_whole(await collect(subject.engine, request))


async def test_tool_choice_none_gives_text_only(subject: Subject) -> None:
    request = ask("Roll a die.", tools=TOOLS, tool_choice=m.ToolChoice("none"), max_tokens=12)
    answer = await collect(subject.engine, request)
    assert answer.calls() == []
    assert answer.text()


async def test_tool_choice_auto_gives_calls_or_text(subject: Subject) -> None:
    answer = await collect(subject.engine, ask("Roll a die.", tools=TOOLS, max_tokens=24))
    assert_whole(answer)
    assert bool(answer.calls()) != bool(answer.text())
    assert all(call.name in {"get_weather", "roll_die"} for call in answer.calls())


async def test_a_prompt_that_fills_the_window_is_refused(subject: Subject) -> None:
    for request in (ask("sea " * WINDOW * 2), ask(prompt="sea " * WINDOW * 2)):
        with pytest.raises(ContextLengthExceeded):
            await collect(subject.engine, request)


async def test_a_prompt_may_be_text_or_token_ids(subject: Subject) -> None:
    answer = await collect(subject.engine, ask(prompt="Once upon a time", max_tokens=5, temperature=0))
    ids = (await tokens_of(subject, "Once upon a time")).ids or (6403, 1980, 253, 655)  # those of this model
    same = await collect(subject.engine, ask(prompt=ids, max_tokens=5, temperature=0))
    assert answer.usage().prompt_tokens == same.usage().prompt_tokens == len(ids)
    assert same.text() == answer.text() != ""


async def test_continue_last_goes_on_where_the_answer_was_cut(subject: Subject) -> None:
    request = ask("Tell me about the sea.", temperature=0, max_tokens=10)
    whole = (await collect(subject.engine, request)).text()
    said = "".join(d.text for d in (await collect(subject.engine, replace_max(request, 5))).deltas())
    unfinished = (*request.messages, m.Message(role="assistant", content=said))
    rest = await collect(subject.engine, replace(replace_max(request, 3), messages=unfinished, continue_last=True))
    assert whole.startswith(said + rest.text())
    assert rest.text()


def replace_max(request: m.GenerationRequest, tokens: int) -> m.GenerationRequest:
    return replace(request, sampling=replace(request.sampling, max_tokens=tokens))
