"""One turn, on one screen: assemble, screen, generate, screen, save."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from services.chat.context import fit
from services.chat.generation import Generation
from services.chat.record import Recorded, Recorder
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
    """stored=None: the request is the whole prompt, and nothing is kept."""

    request: GenerationRequest
    stored: StoredTurn | None = None


class TurnEngine:
    def __init__(self, screen: Screen, generation: Generation, messages: Messages):
        self._screen = screen
        self._generation = generation
        self._messages = messages
        self._recorder = Recorder(messages)

    async def run(self, turn: Turn) -> AsyncGenerator[Sequence[Event], None]:
        """The turn's events. Closing it cancels the turn; a stored answer keeps what was said by then."""
        with span("turn", model=turn.request.model):
            request, recorded = await self._assemble(turn)
            await self._screen.admit(request)
            events = self._screen.outgoing(await self._generation.stream(request))
            if recorded:
                events = self._recorder.record(recorded, events)
            async with aclosing(events):
                async for batch in events:
                    yield batch

    async def _assemble(self, turn: Turn) -> tuple[GenerationRequest, Recorded | None]:
        if turn.stored is None:
            return turn.request, None
        request, answer = turn.request, turn.stored.answer
        continued = bool(answer.content)
        last = answer.id if continued else answer.parent_id
        stored = await self._messages.path(MessageRef(request.tenant, last or answer.id))
        history = [Message(role=m.role, content=m.content) for m in stored]
        engine = await self._generation.engine(request.model, request.tenant)
        fitted = await fit(engine, request.model, turn.stored.system_prompt, history, request.sampling.max_tokens)
        request = replace(request, messages=fitted.messages, continue_last=continued)
        return request, Recorded(answer=answer, tenant=request.tenant, dropped=fitted.dropped)
