"""Turns of the web app cost as others do: each run of an answer has a record of its own, however it ends."""

import asyncio

from services.common.messages import MessageRef, TextDelta
from services.common.usage_messages import UsageRecord
from tests.unit.services.chat.parts import TENANT, Chat, until


def records(chat: Chat) -> list[UsageRecord]:
    journal = chat.parts.journal
    journal.rotate()
    return [r for segment in journal.closed() for r in journal.read(segment).records]


async def _again(chat: Chat, *words: str, **fields: str) -> None:
    await chat.start(**fields)
    await chat.ended(*words)


async def test_every_run_of_an_answer_is_a_record(chat: Chat) -> None:
    first = await chat.say("1", "one", reason="length")
    await _again(chat, "two", regenerate=first.answer.id)
    await _again(chat, "three", "four", continue_id=first.answer.id)
    found = records(chat)
    assert [(r.outcome, r.prompt_tokens, r.output_tokens) for r in found] == [
        ("finished", 1, 1), ("finished", 1, 1), ("finished", 1, 2),
    ]  # fmt: skip
    assert len({r.id for r in found}) == 3
    assert {(r.tenant, r.kind, r.worker, r.model) for r in found} == {(TENANT, "chat", "w", "simulated")}


async def test_a_stopped_answer_costs_what_it_said(chat: Chat) -> None:
    started = await chat.start(content="three words here")
    chat.engine.say(TextDelta(0, "one", 4))
    await until(lambda: bool(chat.engine.requests))
    await asyncio.sleep(0.02)
    for _ in range(2):
        await chat.parts.runner.stop(MessageRef(TENANT, started.answer.id))
    [record] = records(chat)
    assert (record.outcome, record.output_tokens) == ("cancelled", 4)
    assert record.prompt_tokens >= 3


async def test_a_server_that_goes_down_records_what_ran(chat: Chat) -> None:
    await chat.start(content="Hi")
    chat.engine.say(TextDelta(0, "one"), TextDelta(0, "two"))
    await until(lambda: bool(chat.engine.requests))
    await asyncio.sleep(0.02)
    await chat.parts.runner.drain(0)
    [record] = records(chat)
    assert (record.outcome, record.output_tokens) == ("cancelled", 2)
