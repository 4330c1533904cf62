"""What the gateway needs from the rest of the house; a composition root fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.auth import Authenticator
from services.chat.conversation import ConversationTurns
from services.chat.runner import TurnRunner
from services.chat.turn import TurnEngine
from services.common.ports import Conversations, Embedder, Engine, Messages, Router, Sessions


@dataclass(kw_only=True)
class Health:
    """started: the warm-up generation is done. draining: SIGTERM came, and no new work should."""

    engines: Mapping[str, Engine]
    started: bool = False
    draining: bool = False

    async def ready(self) -> bool:
        if self.draining or not self.started:
            return False
        for engine in self.engines.values():
            if (await engine.load()).healthy:
                return True
        return False


@dataclass(frozen=True, kw_only=True)
class GatewayPorts:
    auth: Authenticator
    sessions: Sessions
    router: Router
    turns: TurnEngine
    embedder: Embedder
    conversations: Conversations
    messages: Messages
    conversation_turns: ConversationTurns
    runner: TurnRunner
    health: Health
    default_model: str
    signin_token: str = field(repr=False)
    """The secret of the link that the start-up prints; good until this process ends."""
