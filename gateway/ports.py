"""What the gateway needs from the rest of the house; a composition root fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.auth import Authenticator
from gateway.idempotency import Idempotent
from gateway.oidc import OidcProvider
from services.chat.conversation import ConversationTurns
from services.chat.embedding import EmbeddingEngine
from services.chat.runner import TurnRunner
from services.chat.turn import TurnEngine
from services.common.account_ports import (
    Audit,
    Invites,
    Keys,
    Members,
    Organisations,
    Projects,
    ServiceAccounts,
    Sessions,
    SignIn,
)
from services.common.ports import Conversations, Engine, Messages, Router
from services.common.usage_ports import Ledger, Tiers


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
    keys: Keys
    sessions: Sessions
    organisations: Organisations
    members: Members
    projects: Projects
    service_accounts: ServiceAccounts
    invites: Invites
    sign_in: SignIn
    audit: Audit
    tiers: Tiers
    ledger: Ledger
    currency: str
    """Of all money, which is in its micro-units."""
    oidc: OidcProvider | None = None
    """None: people sign in with passwords and keys only."""
    router: Router
    turns: TurnEngine
    embeddings: EmbeddingEngine
    idempotent: Idempotent
    conversations: Conversations
    messages: Messages
    conversation_turns: ConversationTurns
    runner: TurnRunner
    health: Health
    default_model: str
    signin_token: str = field(repr=False)
    """The secret of the link that the start-up prints; good until this process ends."""
