"""An answer is saved when its stream ends, however it ends."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from services.chat.record import STOPPED, Recorded, Recorder
from services.common.errors import ContextLengthExceeded, EngineFailed, Overloaded
from services.common.messages import (
    Event,
    Finished,
    MessageRef,
    NewConversation,
    NewMessage,
    StoredMessage,
    TextDelta,
    Usage,
)
from services.conversations.service import MessageService
from tests.unit.services.chat.parts import TENANT, Parts, ScriptedEngine, opened, until

WHOLE: list[list[Event]] = [
    [TextDelta(0, "Hello", 1), TextDelta(0, ", wörld", 2)],
    [TextDelta(0, " 😀", 1), Finished(0, "stop"), Usage(7, 4, 3)],
]


@pytest.fixture
async def parts(template: Path, tmp_path: Path) -> AsyncIterator[Parts]:
    async with opened(template, tmp_path, ScriptedEngine()) as made:
        yield made


@pytest.fixture
async def answer(parts: Parts) -> StoredMessage:
    conversation = await parts.conversations.create(NewConversation(tenant=TENANT))
    new = NewMessage(
        tenant=TENANT, conversation_id=conversation.id, parent_id=None, role="assistant", content="Before. ",
        status="running",
    )  # fmt: skip
    return await parts.messages.append(new)


async def events(batches: Sequence[Sequence[Event] | BaseException]) -> AsyncGenerator[Sequence[Event], None]:
    for batch in batches:
        await asyncio.sleep(0.002)
        if isinstance(batch, BaseException):
            raise batch
        yield batch


def recording(
    parts: Parts, answer: StoredMessage, batches: Sequence[Sequence[Event] | BaseException], dropped: int = 0
) -> AsyncGenerator[Sequence[Event], None]:
    to = Recorded(answer=answer, tenant=TENANT, dropped=dropped)
    return Recorder(parts.messages).record(to, events(batches))


async def saved(parts: Parts, answer: StoredMessage) -> StoredMessage:
    return await parts.messages.get(MessageRef(TENANT, answer.id))


async def test_a_whole_answer_is_complete_with_its_figures(parts: Parts, answer: StoredMessage) -> None:
    seen = [batch async for batch in recording(parts, answer, WHOLE, dropped=2)]
    assert seen == WHOLE
    found = await saved(parts, answer)
    assert (found.content, found.status, found.finish_reason) == ("Before. Hello, wörld 😀", "complete", "stop")
    usage = dict(found.usage)
    assert usage.pop("ttft_s") > 0
    assert usage.pop("tokens_per_s") > 0
    assert usage == {"prompt_tokens": 7, "completion_tokens": 4, "cached_tokens": 3, "dropped_messages": 2}


async def test_it_is_saved_before_the_end_is_known_downstream(parts: Parts, answer: StoredMessage) -> None:
    stream = recording(parts, answer, WHOLE)
    await anext(stream)
    await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert (await saved(parts, answer)).status == "complete"


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (EngineFailed("The engine died."), "interrupted", "The engine died."),
        (Overloaded("Too much."), "error", "Too much."),
        (ContextLengthExceeded("Too long."), "error", "Too long."),
        (KeyError("password=hunter2"), "error", "The server failed; its log says why."),
    ],
)
async def test_a_failure_keeps_what_was_said_and_says_why(
    parts: Parts, answer: StoredMessage, error: Exception, status: str, told: str
) -> None:
    with pytest.raises(type(error)):
        [batch async for batch in recording(parts, answer, [WHOLE[0], error])]
    found = await saved(parts, answer)
    assert (found.content, found.status, found.error) == ("Before. Hello, wörld", status, told)
    assert found.usage["completion_tokens"] == 3
    assert not found.finish_reason


@pytest.mark.parametrize(("why", "status"), [(STOPPED, "stopped"), ("shutdown", "interrupted"), (None, "interrupted")])
async def test_a_cancelled_answer_is_stopped_only_if_a_person_asked(
    parts: Parts, answer: StoredMessage, why: str | None, status: str
) -> None:
    seen: list[Sequence[Event]] = []

    async def read() -> None:
        async with aclosing(recording(parts, answer, [WHOLE[0], *[[TextDelta(0, "")]] * 1000])) as stream:
            async for batch in stream:
                seen.append(batch)

    task = asyncio.create_task(read())
    await until(lambda: len(seen) > 1)
    task.cancel(*([why] if why else []))
    with pytest.raises(asyncio.CancelledError):
        await task
    found = await saved(parts, answer)
    assert (found.content, found.status, found.error or "") == ("Before. Hello, wörld", status, "")


async def test_a_consumer_that_leaves_early_leaves_an_interrupted_answer(parts: Parts, answer: StoredMessage) -> None:
    stream = recording(parts, answer, WHOLE)
    await anext(stream)
    await stream.aclose()
    found = await saved(parts, answer)
    assert (found.content, found.status) == ("Before. Hello, wörld", "interrupted")


async def test_an_answer_without_text_is_saved_without_a_time_to_first_token(
    parts: Parts, answer: StoredMessage
) -> None:
    assert [b async for b in recording(parts, answer, [[Finished(0, "content_filter"), Usage(5, 0)]])]
    found = await saved(parts, answer)
    assert (found.content, found.finish_reason) == ("Before. ", "content_filter")
    assert found.usage == {"completion_tokens": 0, "prompt_tokens": 5, "cached_tokens": 0}


async def test_a_save_that_fails_is_told_to_the_consumer(
    parts: Parts, answer: StoredMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object) -> StoredMessage:
        raise Overloaded("The database cannot be used now.")

    monkeypatch.setattr(MessageService, "update", down)
    with pytest.raises(Overloaded):
        [batch async for batch in recording(parts, answer, WHOLE)]
