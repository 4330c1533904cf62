"""Counting one generation's stream as it passes."""

from collections.abc import Sequence

from services.common.messages import (
    WHOLE_PROMPT,
    Event,
    Finished,
    Prefilled,
    Spent,
    TextDelta,
    ToolCallDelta,
    Usage,
)


class Tally:
    """The last choice's end is held back until the usage has come: an answer is not finished before it is accounted."""

    def __init__(self, choices: int) -> None:
        self.output = 0
        self.usage: Usage | None = None
        self._open = choices
        self._prefilled = 0
        self._held: list[Event] = []

    def take(self, batch: Sequence[Event]) -> Sequence[Event]:
        """What of the batch, and of former ones, may go on."""
        if len(batch) == 1 and type(batch[0]) is TextDelta and not self._held:
            self.output += batch[0].tokens
            return batch
        out: list[Event] = []
        for event in batch:
            if isinstance(event, Prefilled):
                self._prefilled = event.tokens
                continue
            if isinstance(event, TextDelta | ToolCallDelta):
                self.output += event.tokens
            elif isinstance(event, Finished):
                self._open -= 1
            elif isinstance(event, Usage):
                self.usage = event
            (self._held if self._open <= 0 else out).append(event)
        if self.usage:
            out += self._held
            self._held = []
        return out

    def spent(self, prompt_tokens: int, told: Spent | None) -> Spent:
        """What a generation used that did not come to its end. told: the engine's count, if it could be asked.

        prompt_tokens: the whole prompt's, for an engine that does not tell it, or not before the first token.
        """
        found = told or Spent(self._prefilled, self.output)
        prompt = found.prompt_tokens
        if prompt == WHOLE_PROMPT or (prompt == 0 and found.completion_tokens > 0):
            prompt = prompt_tokens
        return Spent(prompt, found.completion_tokens, min(prompt, found.cached_tokens))
