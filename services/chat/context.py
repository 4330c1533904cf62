"""What of a conversation goes into the prompt.

History that outgrows the window is dropped oldest first, in steps of a quarter window: between two steps the prompt
keeps its beginning byte for byte, so that the engine's prefix cache keeps hitting.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from services.common.errors import ContextLengthExceeded
from services.common.messages import Message, TokenizeRequest
from services.common.ports import Engine

TEMPLATE_OVERHEAD = 16
"""Tokens that a chat template may put around one message."""


class Fitted(Struct, frozen=True):
    messages: tuple[Message, ...]
    dropped: int
    """How many of the oldest messages were left out."""


def cut(costs: Sequence[int], budget: int, step: int) -> int:
    """How many of the oldest messages to drop: the same for totals within one step, so that the prefix is stable."""
    excess = sum(costs) - budget
    if excess <= 0:
        return 0
    target = -(-excess // step) * step
    dropped = count = 0
    while dropped < target and count < len(costs) - 1:
        dropped += costs[count]
        count += 1
    return count


async def fit(engine: Engine, model: str, system: str, history: Sequence[Message], max_tokens: int | None) -> Fitted:
    """The system prompt and as much of the history as leaves room for an answer.

    Errors: `ContextLengthExceeded` when the system prompt and the last message alone do not fit.
    """
    head = (Message(role="system", content=system),) if system else ()
    whole = (*head, *history)
    window = (await engine.capabilities()).context_window
    budget = window - min(max_tokens or window // 4, window // 4)
    # A token is at least one byte: most prompts are known to fit without asking the tokenizer.
    if sum(len(m.content.encode()) + TEMPLATE_OVERHEAD for m in whole) <= budget:
        return Fitted(whole, 0)
    if (await engine.tokenize(TokenizeRequest(model=model, messages=whole))).count <= budget:
        return Fitted(whole, 0)
    costs = [c.count + TEMPLATE_OVERHEAD for c in await asyncio.gather(*(
        engine.tokenize(TokenizeRequest(model=model, text=m.content)) for m in whole
    ))]  # fmt: skip
    fixed, costs = sum(costs[: len(head)]), costs[len(head) :]
    if fixed + costs[-1] > budget:
        raise ContextLengthExceeded(
            f"The message has about {costs[-1]} tokens and the system prompt {fixed}; "
            f"this model's window of {window} leaves {budget} for both.",
            param="content",
        )
    count = cut(costs, budget - fixed, max(1, window // 4))
    while count < len(history) - 1 and history[count].role != "user":
        count += 1
    return Fitted((*head, *history[count:]), count)
