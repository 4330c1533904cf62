"""Turns run on their own: followed from anywhere, stopped by a person, drained by a server that goes down."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.chat.conversation import Started, StartTurn
from services.chat.runner import Progress
from services.common.errors import AntiphonError, Conflict, EngineFailed, NotFound
from services.common.messages import (
    Capabilities,
    Finished,
    MessagePatch,
    MessageRef,
    NewConversation,
    StoredMessage,
    TextDelta,
    Usage,
)
from tests.unit.services.chat.parts import TENANT, WHO, Parts, ScriptedEngine, opened, until, within

WORDS = ["One", " two", " three", " four"]


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def parts(template: Path, tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[Parts]:
    async with opened(template, tmp_path, engine) as made:
        yield made


async def begin(parts: Parts, content: str = "Hi", **fields: Any) -> Started:
    if "conversation_id" not in fields:
        fields["conversation_id"] = (await parts.conversations.create(NewConversation(tenant=TENANT))).id
    if not fields.keys() & {"regenerate", "continue_id"}:
        fields["content"] = content
    return await parts.starting.start(StartTurn(principal=WHO, **fields))


async def follow(parts: Parts, answer: StoredMessage, start: int = 0, silence: float = 5.0) -> list[Progress]:
    return [step async for step in parts.runner.follow(MessageRef(TENANT, answer.id), start, silence)]


def text(steps: Sequence[Progress]) -> str:
    return "".join(e.text for step in steps for e in step.events if isinstance(e, TextDelta))


def finish(engine: ScriptedEngine) -> None:
    engine.say(Finished(0, "stop"), Usage(1, 4))
    engine.end()


async def get(parts: Parts, answer: StoredMessage) -> StoredMessage:
    return await parts.messages.get(MessageRef(TENANT, answer.id))


@pytest.mark.parametrize("start", range(6))
async def test_from_any_position_a_follower_gets_the_rest_and_the_saved_answer(
    parts: Parts, engine: ScriptedEngine, start: int
) -> None:
    answer = (await begin(parts)).answer
    for word in WORDS[:2]:
        engine.say(TextDelta(0, word))
    early = asyncio.create_task(follow(parts, answer, start))
    await until(lambda: engine.running == 1)
    await asyncio.sleep(0.01)
    late = asyncio.create_task(follow(parts, answer, start))
    for word in WORDS[2:]:
        await asyncio.sleep(0.002)
        engine.say(TextDelta(0, word))
    finish(engine)
    for steps in await asyncio.gather(early, late):
        assert text(steps) == "".join(WORDS[start:])
        assert [s.position for s in steps[:-1]] == list(range(start + 1, 6))
        assert steps[-1].position == max(start, 5) + 1
        assert steps[-1].answer is not None
        assert (steps[-1].answer.content, steps[-1].answer.status) == ("".join(WORDS), "complete")
        assert steps[-1].error is None
        assert all(s.answer is None for s in steps[:-1])


async def test_any_number_may_follow_leave_and_come_back_without_a_gap_or_a_repeat(
    parts: Parts, engine: ScriptedEngine
) -> None:
    answer = (await begin(parts)).answer

    whole = "".join(f"{i} " for i in range(100))

    async def restless(every: int) -> str:
        """Leaves after so many steps, and comes back where it left."""
        position, said = 0, ""
        while len(said) < len(whole):
            stream = parts.runner.follow(MessageRef(TENANT, answer.id), position, 5)
            for _ in range(min(every, 100 - position)):
                step = await anext(stream)
                position, said = step.position, said + text([step])
            await stream.aclose()
        return said

    followers = [asyncio.create_task(restless(every)) for every in range(1, 21)]
    for i in range(100):
        engine.say(TextDelta(0, f"{i} "))
        if i % 7 == 0:
            await asyncio.sleep(0)
    assert set(await asyncio.gather(*followers)) == {whole}
    finish(engine)
    assert (await follow(parts, answer, 100))[-1].answer == await get(parts, answer)


async def test_silence_is_a_step_without_events_at_the_same_position(parts: Parts, engine: ScriptedEngine) -> None:
    answer = (await begin(parts)).answer
    stream = parts.runner.follow(MessageRef(TENANT, answer.id), 0, 0.01)
    assert [await anext(stream) for _ in range(2)] == [Progress(position=0)] * 2
    engine.say(TextDelta(0, "Hello"))
    step = await anext(stream)
    assert (step.position, text([step])) == (1, "Hello")
    assert await anext(stream) == Progress(position=1)
    await stream.aclose()


async def test_a_turn_that_has_ended_is_one_step(parts: Parts, engine: ScriptedEngine) -> None:
    answer = (await begin(parts)).answer
    engine.say(TextDelta(0, "Hello"))
    finish(engine)
    await follow(parts, answer)
    for start in (0, 1, 99):
        (step,) = await follow(parts, answer, start)
        assert (step.position, step.events, step.answer) == (start + 1, (), await get(parts, answer))


async def test_a_turn_that_is_missing_or_anothers_is_not_found_on_the_first_step(parts: Parts) -> None:
    answer = (await begin(parts)).answer
    for ref in (MessageRef(TENANT, "msg_" + "0" * 32), MessageRef("other", answer.id), MessageRef(TENANT, "x")):
        with pytest.raises(NotFound):
            await anext(parts.runner.follow(ref, 0, 1))
        with pytest.raises(NotFound):
            await parts.runner.stop(ref)
    assert parts.runner.running_in(answer.conversation_id) == answer.id


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(EngineFailed("It died."), "interrupted", "engine_failed"), (KeyError("secret"), "error", "internal_error")],
)
@pytest.mark.parametrize("begun", [True, False])
async def test_a_failure_is_the_last_step_with_the_message_that_keeps_what_was_said(
    parts: Parts, engine: ScriptedEngine, error: Exception, status: str, code: str, begun: bool
) -> None:
    answer = (await begin(parts)).answer
    if begun:
        engine.say(TextDelta(0, "Half"))
    engine.fail(error)
    steps = await follow(parts, answer)
    last = steps[-1]
    assert last.error is not None
    assert last.answer is not None
    assert (last.error["code"], last.answer.status, last.answer.content) == (code, status, "Half" if begun else "")
    assert "secret" not in str(last)
    assert parts.log.unfinished() == []


async def test_a_prompt_that_cannot_be_made_is_an_error_of_the_answer(parts: Parts) -> None:
    answer = (await begin(parts, "word " * 9000)).answer
    (step,) = await follow(parts, answer)
    assert step.error is not None
    assert step.answer is not None
    assert (step.error["code"], step.answer.status) == ("context_length_exceeded", "error")
    assert step.answer.error == step.error["message"]


async def test_stop_ends_the_engine_and_keeps_what_was_said(parts: Parts, engine: ScriptedEngine) -> None:
    answer = (await begin(parts)).answer
    engine.say(TextDelta(0, "Half an"))
    following = asyncio.create_task(follow(parts, answer))
    await until(lambda: engine.running == 1)
    await asyncio.sleep(0.01)
    await within(parts.runner.stop(MessageRef(TENANT, answer.id)), 0.5)
    assert engine.running == 0
    saved = await get(parts, answer)
    assert (saved.content, saved.status, saved.error or "") == ("Half an", "stopped", "")
    last = (await following)[-1]
    assert (last.answer, last.error) == (saved, None)
    assert parts.runner.running_in(answer.conversation_id) is None
    assert parts.log.unfinished() == []
    await parts.runner.stop(MessageRef(TENANT, answer.id))
    assert await get(parts, answer) == saved


async def test_a_second_stop_does_not_break_off_the_saving_of_the_first(
    parts: Parts, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = parts.messages.update

    async def slow(patch: Any) -> StoredMessage:
        await asyncio.sleep(0.05)
        return await save(patch)

    answer = (await begin(parts)).answer
    engine.say(TextDelta(0, "Half an"))
    await until(lambda: engine.running == 1)
    await asyncio.sleep(0.01)
    monkeypatch.setattr(parts.messages, "update", slow)
    ref = MessageRef(TENANT, answer.id)
    first = asyncio.create_task(parts.runner.stop(ref))
    await asyncio.sleep(0.02)
    await asyncio.gather(parts.runner.stop(ref), parts.runner.drain(0), first)
    saved = await get(parts, answer)
    assert (saved.content, saved.status) == ("Half an", "stopped")


@pytest.mark.parametrize(("end", "status"), [("stop", "stopped"), ("drain", "interrupted")])
async def test_a_turn_that_ends_while_its_prompt_is_made_is_saved_too(
    parts: Parts, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, end: str, status: str
) -> None:
    async def slow() -> Capabilities:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(engine, "capabilities", slow)
    answer = (await begin(parts)).answer
    await asyncio.sleep(0.02)
    await within(parts.runner.stop(MessageRef(TENANT, answer.id)) if end == "stop" else parts.runner.drain(0))
    assert (await get(parts, answer)).status == status
    assert parts.runner.running_in(answer.conversation_id) is None
    assert parts.log.unfinished() == []


async def test_a_server_that_goes_down_lets_turns_finish_and_interrupts_the_rest(
    parts: Parts, engine: ScriptedEngine
) -> None:
    one = (await begin(parts)).answer
    await until(lambda: engine.running == 1)
    other = (await begin(parts)).answer
    await until(lambda: engine.running == 2)
    draining = asyncio.create_task(parts.runner.drain(0.2))
    engine.say(TextDelta(0, "One"), Finished(0, "stop"), Usage(1, 1))
    await asyncio.sleep(0.02)  # the engine serves them in turn
    engine.say(TextDelta(0, "Other"))
    await asyncio.sleep(0.02)
    engine.end()
    await until(lambda: engine.running == 1)
    assert not draining.done()
    await within(draining)
    assert [(m.content, m.status) for m in (await get(parts, one), await get(parts, other))] == [
        ("One", "complete"), ("Other", "interrupted"),
    ]  # fmt: skip
    assert engine.running == 0
    await within(parts.runner.drain(5), 0.5)


async def test_one_answer_is_written_once_at_a_time(parts: Parts) -> None:
    started = await begin(parts)
    with pytest.raises(Conflict):
        await begin(parts, conversation_id=started.answer.conversation_id)
    with pytest.raises(AntiphonError):
        await begin(parts, conversation_id=started.answer.conversation_id, continue_id=started.answer.id)


async def test_an_answer_whose_process_died_unlogged_is_interrupted_when_it_is_looked_at(
    template: Path, tmp_path: Path, engine: ScriptedEngine
) -> None:
    async with opened(template, tmp_path, engine) as before:
        answer = (await begin(before)).answer
        await before.runner.drain(0)
        await before.messages.update(MessagePatch(tenant=TENANT, id=answer.id, status="running"))
        (step,) = await follow(before, answer)
        assert step.answer is not None
        assert step.answer.status == "interrupted"
    with capture_logs() as logs:
        async with opened(template, tmp_path, engine) as after:
            await after.runner.recover()
    assert logs == []
