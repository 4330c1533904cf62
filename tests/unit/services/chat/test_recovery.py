"""Nothing that was shown is lost: not to kill -9, not to a database that is away when an answer is to be saved."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.chat.conversation import StartTurn
from services.chat.runner import TurnRunner
from services.chat.turn_log import FileTurnLog
from services.common.errors import Overloaded
from services.common.messages import (
    ConversationRef,
    Finished,
    MessagePatch,
    MessageRef,
    MessageStatus,
    NewConversation,
    StoredMessage,
    TextDelta,
    Usage,
)
from services.common.ports import Messages
from tests.unit.services.chat.parts import TENANT, WHO, Parts, ScriptedEngine, opened, until


class Flaky:
    """Messages of a database that fails when it is told to."""

    def __init__(self, inner: Messages):
        self._inner = inner
        self.failing_saves = 0
        self.away = False
        for name in ("append", "path", "all"):
            setattr(self, name, getattr(inner, name))

    async def get(self, ref: MessageRef) -> StoredMessage:
        self._check()
        return await self._inner.get(ref)

    async def update(self, patch: MessagePatch) -> StoredMessage:
        self._check()
        if self.failing_saves:
            self.failing_saves -= 1
            raise Overloaded("The database cannot be used now.")
        return await self._inner.update(patch)

    def _check(self) -> None:
        if self.away:
            raise Overloaded("The database cannot be used now.")


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def parts(template: Path, tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[Parts]:
    async with opened(template, tmp_path, engine, wrap=Flaky) as made:  # type: ignore[arg-type]
        yield made


def database(parts: Parts) -> Flaky:
    assert isinstance(parts.messages, Flaky)
    return parts.messages


async def begin(parts: Parts, engine: ScriptedEngine, *words: str) -> StoredMessage:
    """A turn that has said these words, and is waiting for more."""
    conversation = await parts.conversations.create(NewConversation(tenant=TENANT))
    answer = (
        await parts.starting.start(StartTurn(principal=WHO, conversation_id=conversation.id, content="Hi"))
    ).answer
    for word in words:
        engine.say(TextDelta(0, word))
    await until(lambda: sum(len(lines) for _, lines in parts.log.unfinished()) == len(words) + 1)
    return answer


async def get(parts: Parts, answer: StoredMessage) -> StoredMessage:
    return await parts.messages.get(MessageRef(TENANT, answer.id))


async def crash(parts: Parts, answer: StoredMessage, folder: Path, status: MessageStatus = "running") -> Path:
    """What kill -9 at this moment leaves: a copy of the log, and a message that nobody finished. The log's path."""
    shutil.copytree(folder / "turns", folder / "crashed")
    await parts.runner.drain(0)
    await parts.messages.update(MessagePatch(tenant=TENANT, id=answer.id, content="", status=status, error=""))
    return folder / "crashed" / f"{answer.id}.log"


async def recover(parts: Parts, folder: Path) -> FileTurnLog:
    """The start of the next process."""
    log = FileTurnLog(folder / "crashed")
    await TurnRunner(parts.turns, parts.messages, log).recover()
    return log


async def test_what_a_killed_process_had_said_is_saved_by_the_next(
    parts: Parts, engine: ScriptedEngine, tmp_path: Path
) -> None:
    answer = await begin(parts, engine, "Half", " an\n", "answer 😀")
    await crash(parts, answer, tmp_path)
    log = await recover(parts, tmp_path)
    saved = await get(parts, answer)
    assert (saved.content, saved.status) == ("Half an\nanswer 😀", "interrupted")
    assert "stopped" in str(saved.error)
    assert log.unfinished() == []


async def test_a_continued_answer_keeps_what_it_held_before(
    parts: Parts, engine: ScriptedEngine, tmp_path: Path
) -> None:
    answer = await begin(parts, engine, "Half")
    await parts.runner.stop(MessageRef(TENANT, answer.id))
    ask = StartTurn(principal=WHO, conversation_id=answer.conversation_id, continue_id=answer.id)
    await parts.starting.start(ask)
    engine.say(TextDelta(0, " more"))
    await until(lambda: sum(len(lines) for _, lines in parts.log.unfinished()) == 2)
    await crash(parts, answer, tmp_path)
    await recover(parts, tmp_path)
    assert (await get(parts, answer)).content == "Half more"


@pytest.mark.parametrize("cut", [1, 5, 20])
async def test_a_line_that_was_cut_off_is_ignored(
    parts: Parts, engine: ScriptedEngine, tmp_path: Path, cut: int
) -> None:
    answer = await begin(parts, engine, "Half", " lost")
    path = await crash(parts, answer, tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    await recover(parts, tmp_path)
    saved = await get(parts, answer)
    assert (saved.content, saved.status) == ("Half", "interrupted")


async def test_a_log_without_even_its_header_is_dropped(parts: Parts, engine: ScriptedEngine, tmp_path: Path) -> None:
    answer = await begin(parts, engine, "Half")
    path = await crash(parts, answer, tmp_path)
    path.write_bytes(path.read_bytes()[:3])
    assert (await recover(parts, tmp_path)).unfinished() == []


@pytest.mark.parametrize("status", ["complete", "stopped"])
async def test_an_answer_that_was_saved_before_the_end_of_its_process_stays_as_it_is(
    parts: Parts, engine: ScriptedEngine, tmp_path: Path, status: MessageStatus
) -> None:
    answer = await begin(parts, engine, "Half")
    await crash(parts, answer, tmp_path, status)
    log = await recover(parts, tmp_path)
    assert (await get(parts, answer)).status == status
    assert log.unfinished() == []


async def test_a_deleted_conversation_leaves_nothing_to_recover(
    parts: Parts, engine: ScriptedEngine, tmp_path: Path
) -> None:
    answer = await begin(parts, engine, "Half")
    await crash(parts, answer, tmp_path)
    await parts.conversations.delete(ConversationRef(TENANT, answer.conversation_id))
    assert (await recover(parts, tmp_path)).unfinished() == []


@pytest.mark.parametrize(
    "damage", [b"\x00\x00\n", b"{}\n", b'{"tenant":"local","content":""}\nnonsense\n', b"\xff\xfe\n"]
)
async def test_a_log_that_makes_no_sense_is_kept_and_stops_neither_the_start_nor_the_others(
    parts: Parts, engine: ScriptedEngine, tmp_path: Path, damage: bytes
) -> None:
    answer = await begin(parts, engine, "Half")
    await crash(parts, answer, tmp_path)
    (tmp_path / "crashed" / "msg_0.log").write_bytes(damage)
    with capture_logs() as logs:
        log = await recover(parts, tmp_path)
    assert (await get(parts, answer)).content == "Half"
    assert [turn for turn, _ in log.unfinished()] == ["msg_0"]
    assert [entry["event"] for entry in logs] == ["turn_not_recovered"]


async def test_a_database_that_is_away_at_the_start_costs_no_text(
    parts: Parts, engine: ScriptedEngine, tmp_path: Path
) -> None:
    answer = await begin(parts, engine, "Half")
    await crash(parts, answer, tmp_path)
    database(parts).away = True
    log = await recover(parts, tmp_path)
    assert [turn for turn, _ in log.unfinished()] == [answer.id]
    database(parts).away = False
    await recover(parts, tmp_path)
    assert (await get(parts, answer)).content == "Half"


async def test_a_save_that_fails_keeps_the_log_for_the_next_start(
    parts: Parts, engine: ScriptedEngine, tmp_path: Path
) -> None:
    answer = await begin(parts, engine, "All", " of it")
    database(parts).away = True
    engine.say(Finished(0, "stop"), Usage(1, 2))
    engine.end()
    await until(lambda: parts.runner.running_in(answer.conversation_id) is None)
    database(parts).away = False
    assert (await get(parts, answer)).status == "running"
    ((turn, lines),) = FileTurnLog(tmp_path / "turns").unfinished()
    assert (turn, len(lines)) == (answer.id, 4)
    await TurnRunner(parts.turns, parts.messages, FileTurnLog(tmp_path / "turns")).recover()
    assert (await get(parts, answer)).content == "All of it"


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_save_that_fails_once_is_made_good_with_the_whole_text(
    parts: Parts, engine: ScriptedEngine, stopped: bool
) -> None:
    answer = await begin(parts, engine, "All", " of it")
    database(parts).failing_saves = 1
    if stopped:
        await parts.runner.stop(MessageRef(TENANT, answer.id))
    else:
        engine.say(Finished(0, "stop"), Usage(1, 2))
        engine.end()
        await until(lambda: parts.runner.running_in(answer.conversation_id) is None)
    saved = await get(parts, answer)
    assert (saved.content, saved.status) == ("All of it", "error")
    assert parts.log.unfinished() == []
