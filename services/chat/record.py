"""Saving an answer when its stream ends, however it ends."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from services.common.errors import AntiphonError, EngineFailed
from services.common.messages import Event, Finished, MessagePatch, MessageStatus, StoredMessage, TextDelta, Usage
from services.common.ports import EventStream, Messages

STOPPED = "stopped"
"""`task.cancel(STOPPED)`: a person asked for the end. Any other cancellation means that the server is going down."""


class Said:
    """What an answer has come to: its text, and the figures of the quiet line under it."""

    def __init__(self, text: str = ""):
        self.text = text
        self.finish_reason = ""
        self._usage = Usage()
        self._tokens = 0
        self._began = time.monotonic()
        self._first: float | None = None
        self._last = self._began

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._last = time.monotonic()
                self._first = self._first or self._last
                self._tokens += event.tokens
                self.text += event.text
            elif isinstance(event, Finished):
                self.finish_reason = event.reason
            elif isinstance(event, Usage):
                self._usage = event

    def figures(self) -> dict[str, Any]:
        """Seconds and tokens; the rate is that of decoding, without the wait for the first token."""
        out: dict[str, Any] = {"completion_tokens": self._usage.completion_tokens or self._tokens}
        if self._usage.prompt_tokens:
            out |= {"prompt_tokens": self._usage.prompt_tokens, "cached_tokens": self._usage.cached_tokens}
        if self._first is not None:
            out["ttft_s"] = round(self._first - self._began, 3)
            if self._last > self._first:
                out["tokens_per_s"] = round((self._tokens - 1) / (self._last - self._first), 1)
        return out


class Recorded(Struct, frozen=True, kw_only=True):
    """Where an answer goes. dropped: messages that were left out of its prompt."""

    answer: StoredMessage
    tenant: str
    dropped: int = 0


class Recorder:
    def __init__(self, messages: Messages):
        self._messages = messages

    async def record(self, to: Recorded, events: EventStream) -> AsyncGenerator[Sequence[Event], None]:
        """The same events; the answer is saved when they end, before the end is known downstream."""
        said = Said(to.answer.content)
        status: MessageStatus = "interrupted"
        error = ""
        try:
            async with aclosing(events):
                async for batch in events:
                    said.take(batch)
                    yield batch
            status = "complete"
        except asyncio.CancelledError as e:
            status = "stopped" if STOPPED in e.args else "interrupted"
            raise
        except AntiphonError as e:
            status, error = ("interrupted" if isinstance(e, EngineFailed) else "error"), e.message
            raise
        except Exception:
            status, error = "error", "The server failed; its log says why."
            raise
        finally:
            figures = said.figures() | ({"dropped_messages": to.dropped} if to.dropped else {})
            await self._messages.update(
                MessagePatch(
                    tenant=to.tenant, id=to.answer.id, content=said.text, status=status, error=error,
                    finish_reason=said.finish_reason, usage=figures,
                )
            )  # fmt: skip
