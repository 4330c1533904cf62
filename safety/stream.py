"""Screening a stream: text that could be the beginning of a blocked phrase waits until it is known not to be."""

from collections.abc import Sequence

from services.common.messages import Account, Event, Finished, TextDelta, ToolCallDelta, Usage


class PhraseFilter:
    """Pure: events in, events out. Phrases are matched whatever their case, in text and in tool arguments.

    Of a phrase in tool arguments, the beginning may already have left when its end comes: nothing is held back there.

    Holds back at most (longest phrase − 1) characters a choice. A choice that says a phrase ends there with
    `content_filter`; what follows it is dropped.
    """

    def __init__(self, phrases: Sequence[str]):
        self._phrases = [p.casefold() for p in phrases if p]
        self._longest = max((len(p) for p in self._phrases), default=1)
        self._held: dict[int, list[TextDelta]] = {}
        self._ended: set[int] = set()
        self._arguments: dict[tuple[int, int], str] = {}
        """The end of each call's arguments: as much as a phrase that goes on may have begun with."""

    def feed(self, events: Sequence[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, Usage | Account):
                out.append(event)
            elif event.index not in self._ended:
                self._feed_one(event, out)
        return out

    def _feed_one(self, event: TextDelta | ToolCallDelta | Finished, out: list[Event]) -> None:
        held = self._held.setdefault(event.index, [])
        if isinstance(event, TextDelta):
            held.append(event)
            text = "".join(d.text for d in held).casefold()
            if any(p in text for p in self._phrases):
                self._end(event.index, out)
            else:
                self._release(held, self._suspect(text), out)
        elif isinstance(event, ToolCallDelta) and self._completes_phrase(event):
            self._end(event.index, out)
        else:
            self._release(held, 0, out)
            out.append(event)

    def _end(self, index: int, out: list[Event]) -> None:
        self._ended.add(index)
        self._held.pop(index, None)
        out.append(Finished(index, "content_filter"))

    def _completes_phrase(self, event: ToolCallDelta) -> bool:
        call = (event.index, event.call)
        text = self._arguments.get(call, "") + event.arguments.casefold()
        self._arguments[call] = text[-self._longest :]
        return any(p in text for p in self._phrases)

    def _suspect(self, text: str) -> int:
        """Characters at the end of the text that may be the beginning of a phrase."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            if any(p.startswith(text[-size:]) for p in self._phrases):
                return size
        return 0

    @staticmethod
    def _release(held: list[TextDelta], keep: int, out: list[Event]) -> None:
        """Let whole deltas go, but those that reach into the last `keep` characters."""
        while held and sum(len(d.text) for d in held[1:]) >= keep:
            out.append(held.pop(0))
