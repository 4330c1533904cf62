"""Stored turns run on their own, not on a socket: any number of readers may follow one, come back to it, or leave."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from services.chat.record import STOPPED
from services.chat.turn import StoredTurn, Turn, TurnEngine
from services.common.account_messages import Principal
from services.common.errors import AntiphonError, Conflict, InternalError, NotFound
from services.common.messages import (
    Event,
    GenerationRequest,
    MessagePatch,
    MessageRef,
    MessageStatus,
    StoredMessage,
    TextDelta,
)
from services.common.ports import Messages, TurnLog
from services.common.telemetry import log

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(tuple[Event, ...]).decode


class Header(Struct, frozen=True):
    """The first line of a turn's log."""

    tenant: str
    content: str
    """What the answer held before this turn (a continued answer)."""


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a followed turn. The last one holds the answer as saved, and the error if it failed."""

    position: int
    """What to pass as `start` to go on after this step."""
    events: tuple[Event, ...] = ()
    answer: StoredMessage | None = None
    error: dict[str, Any] | None = None


class _Running:
    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        self.frames: list[tuple[Event, ...]] = []
        self.done = False
        self.error: AntiphonError | None = None
        self.task: asyncio.Task[None] | None = None
        self.ending = False
        self._news = asyncio.Event()

    def tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def news(self, patience: float) -> bool:
        """Wait for a step; False if none came for `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


class TurnRunner:
    def __init__(self, turns: TurnEngine, messages: Messages, turn_log: TurnLog):
        self._turns = turns
        self._messages = messages
        self._log = turn_log
        self._running: dict[str, _Running] = {}

    async def recover(self) -> None:
        """Save what a former process had said when it died. Call once, before the first turn."""
        for turn_id, lines in self._log.unfinished():
            try:
                if lines:
                    await self._recover(turn_id, lines)
            except NotFound:
                pass  # deleted since
            except (AntiphonError, msgspec.DecodeError) as e:
                log.warning("turn_not_recovered", turn=turn_id, reason=str(e))
                continue  # its text is nowhere else
            self._log.close(turn_id)

    async def _recover(self, turn_id: str, lines: Sequence[bytes]) -> None:
        header = msgspec.json.decode(lines[0], type=Header)
        said = _text(_decode(line) for line in lines[1:])
        saved = await self._messages.get(MessageRef(header.tenant, turn_id))
        if saved.status in ("complete", "stopped"):
            return  # the process died after it had saved
        await self._messages.update(
            MessagePatch(
                tenant=header.tenant, id=turn_id, content=header.content + said, status="interrupted",
                error="The server stopped in the middle of this answer.",
            )
        )  # fmt: skip

    def running_in(self, conversation_id: str) -> str | None:
        """The id of the answer that is being written in a conversation."""
        return next((i for i, r in self._running.items() if r.conversation_id == conversation_id), None)

    def start(self, who: Principal, request: GenerationRequest, stored: StoredTurn) -> None:
        answer = stored.answer
        if answer.id in self._running:
            raise Conflict("This answer is being written already.", param="continue")
        self._log.append(answer.id, _encode(Header(who.space, answer.content)))
        running = self._running[answer.id] = _Running(answer.conversation_id)
        running.task = asyncio.create_task(self._run(running, Turn(principal=who, requests=(request,), stored=stored)))

    async def _run(self, running: _Running, turn: Turn) -> None:
        assert turn.stored
        answer = turn.stored.answer
        saved = False
        try:
            await self._advance(running, turn, answer)
            saved = True
        except asyncio.CancelledError as e:
            await self._ensure_saved(running, turn, "stopped" if STOPPED in e.args else "interrupted")
            saved = True
            raise
        except Exception as e:
            running.error = e if isinstance(e, AntiphonError) else InternalError("The server failed; its log says why.")
            if running.error is not e:
                log.error("turn_failed", turn=answer.id, exc_info=e)
            await self._ensure_saved(running, turn, "error", running.error.message)
            saved = True
        finally:
            if saved:  # else the log is the only place that has the text, and the next start saves it
                self._log.close(answer.id)
            del self._running[answer.id]
            running.done = True
            running.tell()

    async def _advance(self, running: _Running, turn: Turn, answer: StoredMessage) -> None:
        async with aclosing(self._turns.run(turn)) as events:
            await anext(events)  # `Admitted`: a stored turn has no headers to show it in
            async for batch in events:
                self._log.append(answer.id, _encode(batch))
                running.frames.append(tuple(batch))
                running.tell()

    async def _ensure_saved(self, running: _Running, turn: Turn, status: MessageStatus, error: str = "") -> None:
        """A turn that ended before its stream began was not recorded; another's saving may have failed."""
        assert turn.stored
        tenant, answer = turn.principal.space, turn.stored.answer
        saved = await self._messages.get(MessageRef(tenant, answer.id))
        if saved.status == "running":
            content = answer.content + _text(running.frames)
            await self._messages.update(
                MessagePatch(tenant=tenant, id=answer.id, content=content, status=status, error=error)
            )

    async def follow(self, ref: MessageRef, start: int, silence: float) -> AsyncGenerator[Progress, None]:
        """The steps after position `start`, as they come; one without events after `silence` seconds of none.

        Errors: `NotFound`, on the first step.
        """
        answer = await self._messages.get(ref)
        running = self._running.get(ref.id)
        position = start
        while running:
            while position < len(running.frames):
                batch = running.frames[position]
                position += 1
                yield Progress(position=position, events=batch)
            if running.done:
                break
            if not await running.news(silence):
                yield Progress(position=position)
        if running:
            answer = await self._messages.get(ref)
        elif answer.status == "running":
            # Its process died between saving the message and opening the log.
            answer = await self._messages.update(MessagePatch(tenant=ref.tenant, id=ref.id, status="interrupted"))
        error = running.error.body()["error"] if running and running.error else None
        yield Progress(position=position + 1, answer=answer, error=error)

    async def stop(self, ref: MessageRef) -> None:
        """End a turn as its person asks; what it has said is kept. Nothing happens if it is over."""
        await self._messages.get(ref)
        await self._end([ref.id], STOPPED)

    async def drain(self, patience: float) -> None:
        """Let running turns finish for `patience` seconds, then interrupt them."""
        tasks = [r.task for r in self._running.values() if r.task]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        await self._end(list(self._running), "shutdown")

    async def _end(self, ids: Sequence[str], why: str) -> None:
        """Cancels a turn once: a second Stop would break off the saving that the first has led to."""
        turns = [r for i in ids if (r := self._running.get(i))]
        for running in turns:
            if running.task and not running.ending:
                running.ending = True
                running.task.cancel(why)
        if tasks := [r.task for r in turns if r.task]:
            await asyncio.wait(tasks)  # unlike gather, it leaves them alone when we are cancelled ourselves


def _text(batches: Iterable[Sequence[Event]]) -> str:
    return "".join(e.text for batch in batches for e in batch if isinstance(e, TextDelta))
