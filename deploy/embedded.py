"""Everything in one process: the default. Its parts are those of the distributed roots; only the wiring differs."""

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console

from deploy.engines import pulled, running_engines
from deploy.installation import Installation, first_key
from deploy.limiting import limiting
from deploy.settings import ServeSettings
from gateway.auth import Authenticator
from gateway.oidc import OidcProvider
from gateway.oidc_settings import OidcSettings
from gateway.ports import GatewayPorts, Health
from gateway.settings import GatewaySettings
from inference.models import resolve
from safety.policy import PhraseScreen
from safety.settings import SafetySettings
from services.accounts.cache import CachedKeys, CachedSessions
from services.chat.conversation import ConversationTurns
from services.chat.embedding import EmbeddingEngine
from services.chat.generation import Generation
from services.chat.runner import TurnRunner
from services.chat.turn import TurnEngine
from services.chat.turn_log import FileTurnLog
from services.common.account_messages import ApiKey
from services.common.errors import AntiphonError, Conflict
from services.common.messages import ModelCard
from services.common.ports import Embedder, Engine
from services.conversations.service import ConversationService, MessageService
from services.conversations.store import ConversationStore
from services.retrieval.embedder import NoEmbedder, OnnxEmbedder
from services.router.catalog import StaticRouter


@asynccontextmanager
async def platform(settings: ServeSettings, console: Console) -> AsyncIterator[tuple[GatewayPorts, ApiKey]]:
    """Every part, started; stopped in the reverse order."""
    async with AsyncExitStack() as stack:
        installation = Installation(settings)
        stack.push_async_callback(installation.close)
        accounts = await installation.open()
        stack.enter_context(_alone_in(settings.home))
        engines = await stack.enter_async_context(running_engines(settings, console))
        embedder = await _embedder(settings, console)
        counted = await stack.enter_async_context(limiting(settings, installation, engines))
        store = ConversationStore(installation.database)
        conversations, messages = ConversationService(store), MessageService(store)
        router = StaticRouter(await _cards(engines, embedder), {name: name for name in engines})
        generation = Generation(router, engines)
        turns = TurnEngine(PhraseScreen(SafetySettings().blocked_phrases), generation, counted.meter, messages)
        runner = TurnRunner(turns, messages, FileTurnLog(settings.home / "turns"))
        await runner.recover()
        stack.push_async_callback(runner.drain, 0.0)
        keys, sessions = CachedKeys(accounts.keys), CachedSessions(accounts.sessions)
        default, edge = next(iter(engines)), GatewaySettings()
        key = await first_key(accounts)  # last: a start that fails would have made it for nobody to see
        yield GatewayPorts(
            auth=Authenticator(
                keys, sessions, open_to_all=settings.no_auth, region=edge.region, hosts=edge.region_hosts
            ),
            keys=keys, sessions=sessions,
            organisations=accounts.organisations, members=accounts.members, projects=accounts.projects,
            service_accounts=accounts.service_accounts, invites=accounts.invites, sign_in=accounts.sign_in,
            audit=accounts.audit, tiers=installation.tiers, ledger=counted.ledger, currency=counted.currency,
            oidc=_oidc(), idempotent=counted.idempotent, router=router, turns=turns,
            embeddings=EmbeddingEngine(embedder, counted.meter), conversations=conversations, messages=messages,
            runner=runner, health=Health(engines=engines, started=True), default_model=default,
            conversation_turns=ConversationTurns(
                conversations, messages, generation, counted.meter, runner, default
            ),
            signin_token=secrets.token_urlsafe(32),
        ), key  # fmt: skip


def _oidc() -> OidcProvider | None:
    settings = OidcSettings()
    if settings.issuer is None:
        return None
    from gateway.oidc_client import OidcClient  # a third of a second, which most servers need not spend

    return OidcClient(settings)


@contextmanager
def _alone_in(home: Path) -> Iterator[None]:
    """Errors: `Conflict` while another server uses the data folder, whose turns it would take for dead."""
    lock = FileLock(home / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise Conflict(f"Another server uses the data folder {home}. Stop it, or set ANTIPHON_HOME.") from None
    try:
        yield
    finally:
        lock.release()


async def _embedder(settings: ServeSettings, console: Console) -> Embedder:
    try:
        model = resolve(settings.embedding_model)
        paths = await pulled(model, console)
    except AntiphonError as e:
        console.print(f"No embeddings: {e.message}")
        return NoEmbedder(f"This server has no embedding model. {e.message}")
    return OnnxEmbedder(model.name, paths["model.onnx"], paths["tokenizer.json"])


async def _cards(engines: dict[str, Engine], embedder: Embedder) -> list[ModelCard]:
    now = int(time.time())
    cards = [
        ModelCard(id=name, created=now, context_window=(await engine.capabilities()).context_window)
        for name, engine in engines.items()
    ]
    if isinstance(embedder, OnnxEmbedder):
        cards.append(ModelCard(id=embedder.model, created=now, kind="embedding"))
    return cards
