"""One turn, on one screen: assemble, screen, generate, screen, save."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from services.chat.context import fit
from services.chat.generation import Generation, Placed
from services.chat.metering import Meter
from services.chat.record import Recorded, Recorder
from services.common.account_messages import Principal
from services.common.messages import Event, GenerationRequest, Message, MessageRef, StoredMessage
from services.common.ports import Messages, Screen
from services.common.telemetry import span


class StoredTurn(Struct, frozen=True, kw_only=True):
    """A turn whose prompt is the stored conversation above `answer`, and whose text goes into `answer`.

    An answer that already holds text is continued.
    """

    answer: StoredMessage
    system_prompt: str = ""


class Turn(Struct, frozen=True, kw_only=True):
    """stored=None: the requests are whole prompts, and nothing is kept. Several run side by side, as one request."""

    principal: Principal
    requests: tuple[GenerationRequest, ...]
    """Each with a request_id of its own: it names the generation for engine and ledger."""
    stored: StoredTurn | None = None


class TurnEngine:
    def __init__(self, screen: Screen, generation: Generation, meter: Meter, messages: Messages):
        self._screen = screen
        self._meter = meter
        self._generation = generation
        self._messages = messages
        self._recorder = Recorder(messages)

    async def run(self, turn: Turn) -> AsyncGenerator[Sequence[Event], None]:
        """The turn's events, `Admitted` first. Closing it cancels the turn; a stored answer keeps what was said."""
        with span("turn", model=turn.requests[0].model):
            for request in turn.requests:
                self._meter.require_permitted(turn.principal, request.model)
            placed = [await self._generation.place(request) for request in turn.requests]
            placed, recorded = await self._assemble(turn, placed)
            for one in placed:
                await self._screen.admit(one.request)
            admission = await self._meter.admit(turn.principal, placed)
            try:
                yield [admission.admitted]
                events = self._screen.outgoing(admission.stream())
                if recorded:
                    events = self._recorder.record(recorded, events)
                async with aclosing(events):
                    async for batch in events:
                        yield batch
            finally:
                await admission.close()

    async def _assemble(self, turn: Turn, placed: list[Placed]) -> tuple[list[Placed], Recorded | None]:
        if turn.stored is None:
            return placed, None
        [one] = placed
        request, answer, space = one.request, turn.stored.answer, turn.principal.space
        continued = bool(answer.content)
        last = answer.id if continued else answer.parent_id
        stored = await self._messages.path(MessageRef(space, last or answer.id))
        history = [Message(role=m.role, content=m.content) for m in stored]
        fitted = await fit(one.engine, request.model, turn.stored.system_prompt, history, request.sampling.max_tokens)
        request = replace(request, messages=fitted.messages, continue_last=continued)
        return [replace(one, request=request)], Recorded(answer=answer, tenant=space, dropped=fitted.dropped)
