"""The ports: what each part of Antiphon promises the others. See docs/adr/0002-ports-and-messages.md."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from services.common import messages as m

EventStream = AsyncGenerator[Sequence[m.Event], None]
"""Each item holds the events that arrived together, so that the edge writes them with one system call.

Closing the iterator (`aclose`) cancels the work behind it, down to the engine.
"""


class Engine(Protocol):
    """Runs one model. Errors: `ContextLengthExceeded`, `InvalidRequest`, `EngineFailed`, `Overloaded`."""

    def generate(self, request: m.GenerationRequest) -> EventStream:
        """Yield deltas, one `Finished` per choice, then one `Usage`. A stream that fails raises, and never finishes."""
        ...

    async def tokenize(self, request: m.TokenizeRequest) -> m.Tokens:
        """Count a text or a rendered prompt, by the model's own tokenizer where the engine offers it."""
        ...

    async def capabilities(self) -> m.Capabilities: ...

    async def load(self) -> m.Load:
        """Never raises: an engine that cannot be asked is reported as unhealthy."""
        ...

    async def settle(self, request_id: str) -> m.Spent | None:
        """End a generation if it still runs, refuse it if it comes late, and tell what it used, by the engine's count.

        None: the engine knows nothing of it. What has ended is remembered for minutes, not for ever.
        """
        ...


class Embedder(Protocol):
    async def embed(self, request: m.EmbeddingRequest) -> m.Embeddings:
        """Errors: `InvalidRequest` names the input that is empty, too long or out of the vocabulary."""
        ...

    async def count(self, request: m.EmbeddingRequest) -> int:
        """The tokens that `embed` would use, by the same tokenizer. The same errors."""
        ...


class Router(Protocol):
    async def models(self) -> Sequence[m.ModelCard]: ...

    async def route(self, request: m.RouteRequest) -> m.Route:
        """Errors: `ModelNotFound`."""
        ...


class Screen(Protocol):
    """Decides what may enter a model and what may leave it."""

    async def admit(self, request: m.GenerationRequest) -> None:
        """Errors: `ContentRefused`."""
        ...

    def outgoing(self, events: EventStream) -> EventStream:
        """The same stream without what may not leave; flagged text ends its choice with `content_filter`."""
        ...


class Conversations(Protocol):
    """Conversations of a tenant. Errors: `NotFound`, for a missing and for another tenant's id alike."""

    async def create(self, request: m.NewConversation) -> m.Conversation: ...

    async def get(self, ref: m.ConversationRef) -> m.Conversation: ...

    async def find(self, query: m.ConversationQuery) -> m.ConversationPage:
        """Newest first."""
        ...

    async def update(self, patch: m.ConversationPatch) -> m.Conversation: ...

    async def delete(self, ref: m.ConversationRef) -> None:
        """The conversation and every message in it."""
        ...


class Messages(Protocol):
    """The tree of messages of a conversation. Errors: `NotFound`."""

    async def append(self, message: m.NewMessage) -> m.StoredMessage:
        """Add a node, durable when this returns, and make it the conversation's leaf. `Conflict` if its id is taken."""
        ...

    async def get(self, ref: m.MessageRef) -> m.StoredMessage: ...

    async def update(self, patch: m.MessagePatch) -> m.StoredMessage: ...

    async def path(self, ref: m.MessageRef) -> Sequence[m.StoredMessage]:
        """From the root to this message."""
        ...

    async def all(self, ref: m.ConversationRef) -> Sequence[m.StoredMessage]:
        """Every node of a conversation, oldest first."""
        ...


class TurnLog(Protocol):
    """What a running turn has said, kept outside the process's memory so that nothing shown is lost."""

    def append(self, turn_id: str, frame: bytes) -> None:
        """Durable against the death of this process when it returns; never waits for a disk."""
        ...

    def close(self, turn_id: str) -> None:
        """Forget a turn whose message has been saved."""
        ...

    def unfinished(self) -> Sequence[tuple[str, Sequence[bytes]]]:
        """The turns that a former process left open, with their frames."""
        ...
