"""What a turn makes of its conversation: its model, its parameters, its title."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from inference.engines.simulated import SimulatedEngine
from services.chat.conversation import TITLE_LENGTH, StartTurn
from services.common.errors import AntiphonError, EngineFailed, ModelNotFound
from services.common.messages import GenerationRequest, Message, MessageRef, NewConversation, Sampling, TextDelta
from tests.unit.services.chat.parts import TENANT, WHO, Chat, opened, until


@pytest.mark.parametrize(("model", "error"), [("gpt-none", ModelNotFound), ("lost", EngineFailed)])
async def test_a_model_that_cannot_run_leaves_nothing_behind(
    chat: Chat, model: str, error: type[AntiphonError]
) -> None:
    with pytest.raises(error):
        await chat.start(content="Hi", model=model)
    found = await chat.conversation()
    assert (found.title, found.model, await chat.count()) == ("", "", 0)
    await chat.say("Hi", "Hello")


async def test_a_model_that_the_caller_may_not_use_is_missing(chat: Chat) -> None:
    with pytest.raises(ModelNotFound):
        await chat.start(content="Hi", principal=replace(WHO, models=("another",)))
    assert await chat.count() == 0


async def test_model_and_parameters_of_a_turn_become_the_conversations(chat: Chat) -> None:
    await chat.say("1", "one", model="simulated", parameters={"temperature": 1, "seed": 7, "max_tokens": 5})
    found = await chat.conversation()
    assert (found.model, found.parameters) == ("simulated", {"temperature": 1, "seed": 7, "max_tokens": 5})
    assert chat.engine.requests[-1].sampling == Sampling(temperature=1.0, seed=7, max_tokens=5)
    await chat.say("2", "two")
    assert chat.engine.requests[-1].sampling.seed == 7
    await chat.say("3", "three", parameters={})
    assert (await chat.conversation()).parameters == {}
    assert chat.engine.requests[-1].sampling == Sampling(max_tokens=8190)  # what the prompt leaves of the window


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("Hello", "Hello"), ("  \n\n  First line  \nsecond", "First line"), (" \n\t\n", "New chat"),
        ("x" * TITLE_LENGTH, "x" * TITLE_LENGTH), ("x" * 100, "x" * TITLE_LENGTH + "…"),
        ("word " * 30, ("word " * 12).rstrip() + "…"), ("a\u2028b", "a"),
    ],
)  # fmt: skip
async def test_the_title_is_the_first_line_cut_at_a_word(chat: Chat, content: str, title: str) -> None:
    await chat.start(content=content)
    assert (await chat.conversation()).title == title
    assert len(title) <= TITLE_LENGTH + 1
    await chat.ended("one")
    await chat.say("Another", "two")
    assert (await chat.conversation()).title == title
    assert len(chat.engine.requests) == 2, "no generation is spent on a title"


async def test_a_seeded_conversation_continues_as_the_undisturbed_one_would(template: Path, tmp_path: Path) -> None:
    """The whole path with the simulated engine: cut by max_tokens, continued, and the same text in the end."""
    async with opened(template, tmp_path, SimulatedEngine(length=12)) as parts:
        made = await parts.conversations.create(NewConversation(tenant=TENANT))
        ask = StartTurn(
            principal=WHO, conversation_id=made.id, content="Hi", parameters={"temperature": 0, "max_tokens": 5}
        )  # fmt: skip
        answer = (await parts.starting.start(ask)).answer
        await until(lambda: parts.runner.running_in(made.id) is None)
        saved = await parts.messages.get(MessageRef(TENANT, answer.id))
        assert (saved.finish_reason, len(saved.content.split())) == ("length", 5)
        more = StartTurn(principal=WHO, conversation_id=made.id, continue_id=answer.id, parameters={"temperature": 0})
        await parts.starting.start(more)
        await until(lambda: parts.runner.running_in(made.id) is None)
        whole = (await parts.messages.get(MessageRef(TENANT, answer.id))).content
        undisturbed = GenerationRequest(
            model="simulated", messages=(Message(role="user", content="Hi"),), sampling=Sampling(temperature=0)
        )  # fmt: skip
        batches = [batch async for batch in parts.engine.generate(undisturbed)]
        assert whole == "".join(e.text for batch in batches for e in batch if isinstance(e, TextDelta))
