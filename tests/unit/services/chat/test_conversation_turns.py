"""Starting a turn, exactly as docs/web-api.md says."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from services.chat.conversation import Started
from services.common.errors import Conflict, EngineFailed, InvalidRequest, NotFound
from services.common.messages import MessageRef, NewConversation, StoredMessage, TextDelta
from tests.unit.services.chat.parts import TENANT, WHO, Chat, until

MINE = "msg_" + "ab" * 16


async def test_a_new_message_and_its_answer(chat: Chat) -> None:
    started = await chat.start(content="Hi")
    assert started.user is not None
    assert started.new
    assert (started.user.role, started.user.content, started.user.parent_id) == ("user", "Hi", None)
    assert (started.user.status, started.answer.status) == ("complete", "running")
    assert (started.answer.role, started.answer.parent_id, started.answer.model) == (
        "assistant",
        started.user.id,
        "simulated",
    )
    assert (await chat.conversation()).leaf_id == started.answer.id
    await chat.ended("Hello", " there")
    assert chat.prompt() == [("user", "Hi")]
    assert (await chat.get(started.answer)).content == "Hello there"
    assert chat.engine.requests[0].request_id.startswith(started.answer.id)


async def test_a_prompt_is_the_branch_above_the_answer_and_the_system_prompt(chat: Chat) -> None:
    whole = await chat.parts.conversations.create(NewConversation(tenant=TENANT, system_prompt="Be brief."))
    chat.id = whole.id
    first = await chat.say("1", "one")
    await chat.say("2", "two", parent_id=first.answer.id)
    assert chat.prompt() == [("system", "Be brief."), ("user", "1"), ("assistant", "one"), ("user", "2")]


async def test_editing_is_a_branch_beside_the_old_message(chat: Chat) -> None:
    first = await chat.say("1", "one")
    second = await chat.say("2", "two", parent_id=first.answer.id)
    assert second.user is not None
    edited = await chat.say("2 again", "two again", parent_id=second.user.parent_id)
    assert edited.user is not None
    assert edited.user.parent_id == second.user.parent_id
    assert chat.prompt() == [("user", "1"), ("assistant", "one"), ("user", "2 again")]
    assert (await chat.conversation()).leaf_id == edited.answer.id
    root = await chat.say("1 again", "other", parent_id=None)
    assert root.user is not None
    assert root.user.parent_id is None
    assert chat.prompt() == [("user", "1 again")]


async def test_regenerating_is_another_answer_beside_the_old_one(chat: Chat) -> None:
    first = await chat.say("1", "one")
    again = await chat.start(regenerate=first.answer.id)
    await chat.ended("uno")
    assert again.user is None
    assert again.answer.id != first.answer.id
    assert again.answer.parent_id == first.answer.parent_id
    assert chat.prompt() == [("user", "1")]
    assert [(await chat.get(a)).content for a in (first.answer, again.answer)] == ["one", "uno"]


async def test_an_answer_goes_on_in_place_and_the_log_begins_after_what_it_held(chat: Chat) -> None:
    first = await chat.say("1", "one", reason="length")
    more = await chat.start(continue_id=first.answer.id)
    assert (more.user, more.answer.id, more.answer.status, more.answer.content) == (
        None,
        first.answer.id,
        "running",
        "one",
    )
    chat.engine.say(TextDelta(0, " more"))
    step = await anext(chat.parts.runner.follow(MessageRef(TENANT, more.answer.id), 0, 5))
    assert step.events == (TextDelta(0, " more"),)
    await chat.ended()
    saved = await chat.get(first.answer)
    assert (saved.content, saved.status, saved.finish_reason) == ("one more", "complete", "stop")
    assert chat.engine.requests[-1].continue_last
    assert chat.prompt() == [("user", "1"), ("assistant", "one")]
    assert await chat.count() == 2


@pytest.mark.parametrize("how", ["stopped", "interrupted", "error", "before its first word"])
async def test_an_answer_that_was_cut_short_may_go_on(chat: Chat, how: str) -> None:
    started = await chat.start(content="1")
    if how != "before its first word":
        chat.engine.say(TextDelta(0, "Half"))
        await until(lambda: bool(chat.parts.log.unfinished()[0][1][1:]))
    if how in ("interrupted", "error"):
        chat.engine.fail(EngineFailed("It died.") if how == "interrupted" else KeyError())
        await until(lambda: chat.parts.runner.running_in(chat.id) is None)
    else:
        await chat.parts.runner.stop(MessageRef(TENANT, started.answer.id))
    assert (await chat.get(started.answer)).status == ("stopped" if how == "before its first word" else how)
    await chat.start(continue_id=started.answer.id)
    await chat.ended(" whole")
    saved = await chat.get(started.answer)
    assert saved.content == (" whole" if how == "before its first word" else "Half whole")
    assert (saved.status, saved.error or "") == ("complete", "")
    assert chat.engine.requests[-1].continue_last == (how != "before its first word")


async def test_a_complete_answer_cannot_go_on(chat: Chat) -> None:
    first = await chat.say("1", "one")
    with pytest.raises(InvalidRequest) as refusal:
        await chat.start(continue_id=first.answer.id)
    assert refusal.value.param == "continue"
    assert (await chat.get(first.answer)).status == "complete"


@pytest.mark.parametrize("field", ["regenerate", "continue_id", "parent_id"])
async def test_what_a_turn_builds_on_must_be_an_own_message_of_this_conversation(chat: Chat, field: str) -> None:
    first = await chat.say("1", "one")
    assert first.user is not None
    other = Chat(chat.parts, await chat.parts.conversations.create(NewConversation(tenant=TENANT)))
    wrong = ["msg_" + "0" * 32, "nonsense"] + ([first.user.id] if field != "parent_id" else [])
    for message_id in wrong:
        with pytest.raises(NotFound):
            await chat.start(**{field: message_id} | ({"content": "x"} if field == "parent_id" else {}))
    with pytest.raises(NotFound):
        await other.start(**{field: first.answer.id} | ({"content": "x"} if field == "parent_id" else {}))
    with pytest.raises(NotFound):
        await chat.start(principal=replace(WHO, space="other"), content="x")
    assert (await chat.count(), await other.count()) == (2, 0)
    assert chat.parts.runner.running_in(chat.id) is None


async def test_sending_a_message_again_gives_the_same_pair_and_starts_nothing(chat: Chat) -> None:
    first = await chat.start(content="Hi\x00", message_id=MINE)
    again = await chat.start(content="Hi\x00", message_id=MINE)
    assert first.user is not None
    assert (first.user.id, first.new, again.new) == (MINE, True, False)
    assert (again.user, again.answer.id) == (first.user, first.answer.id)
    await chat.ended("Hello")
    last = await chat.start(content="Hi\x00", message_id=MINE)
    assert (last.new, last.answer.content) == (False, "Hello")
    assert len(chat.engine.requests) == 1
    assert await chat.count() == 2


async def test_an_id_that_another_message_has_is_a_conflict(chat: Chat) -> None:
    await chat.say("Hi", "Hello", message_id=MINE)
    with pytest.raises(Conflict) as refusal:
        await chat.start(content="Other", message_id=MINE)
    assert refusal.value.param == "id"
    other = Chat(chat.parts, await chat.parts.conversations.create(NewConversation(tenant=TENANT)))
    with pytest.raises(Conflict):
        await other.start(content="Hi", message_id=MINE)


async def test_a_question_that_was_stored_without_its_answer_gets_one_when_it_is_sent_again(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = chat.parts.messages.append

    async def dies(message: Any) -> StoredMessage:
        if message.role == "assistant":
            raise KeyError("power cut")
        return await append(message)

    monkeypatch.setattr(chat.parts.messages, "append", dies)
    with pytest.raises(KeyError):
        await chat.start(content="Hi", message_id=MINE)
    monkeypatch.undo()
    again = await chat.start(content="Hi", message_id=MINE)
    assert again.user is not None
    assert (again.user.id, again.answer.parent_id) == (MINE, MINE)
    await chat.ended("Hello")
    assert (await chat.get(again.answer)).content == "Hello"


async def test_of_concurrent_starts_one_wins_and_the_others_conflict(chat: Chat) -> None:
    asked = [chat.start(content=f"{i}") for i in range(8)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert sorted(type(r).__name__ for r in results) == ["Conflict"] * 7 + ["Started"]
    with pytest.raises(Conflict):
        await chat.start(content="later")
    await chat.ended("one")
    assert await chat.count() == 2
    await chat.say("after", "two")


async def test_the_same_message_sent_twice_at_once_starts_one_turn(chat: Chat) -> None:
    results = await asyncio.gather(
        *(chat.start(content="Hi", message_id=MINE) for _ in range(5)), return_exceptions=True
    )
    started = [r for r in results if isinstance(r, Started)]
    assert sum(r.new for r in started) == 1
    assert all(isinstance(r, Started | Conflict) for r in results)
    assert {r.answer.id for r in started} == {started[0].answer.id}
    await chat.ended("Hello")
    assert len(chat.engine.requests) == 1


async def test_other_conversations_are_not_held_up(chat: Chat) -> None:
    other = Chat(chat.parts, await chat.parts.conversations.create(NewConversation(tenant=TENANT)))
    await asyncio.gather(chat.start(content="a"), other.start(content="b"))
    await until(lambda: chat.engine.running == 2)
