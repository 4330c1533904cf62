"""The first screen: phrases that an operator has blocked. Classifiers come behind the same port."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from safety.stream import PhraseFilter
from services.common.errors import ContentRefused
from services.common.messages import Event, GenerationRequest
from services.common.ports import EventStream


class PhraseScreen:
    def __init__(self, phrases: Sequence[str]):
        self._phrases = tuple(p.casefold() for p in phrases if p.strip())

    async def admit(self, request: GenerationRequest) -> None:
        if not self._phrases:
            return
        texts = [m.content for m in request.messages]
        if isinstance(request.prompt, str):
            texts.append(request.prompt)
        if any(p in text.casefold() for text in texts for p in self._phrases):
            param = "messages" if request.prompt is None else "prompt"
            raise ContentRefused("The input was refused by this server's content policy.", param=param)

    def outgoing(self, events: EventStream) -> EventStream:
        """The engine ends by itself even after a choice was cut, so that usage stays exact."""
        return self._filtered(events) if self._phrases else events

    async def _filtered(self, events: EventStream) -> AsyncGenerator[Sequence[Event], None]:
        phrases = PhraseFilter(self._phrases)
        async with aclosing(events):
            async for batch in events:
                yield phrases.feed(batch)
