"""Everything in one process: the default. Its parts are those of the distributed roots; only the wiring differs."""

import gc
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import uvicorn
from filelock import FileLock, Timeout
from rich.console import Console

import services.accounts.store as account_store
import services.conversations.store as conversation_store
from deploy.engines import pulled, running_engines
from deploy.settings import ServeSettings
from gateway.app import create_app
from gateway.auth import LOCAL, Authenticator
from gateway.connection import Connection
from gateway.ports import GatewayPorts, Health
from gateway.settings import GatewaySettings
from inference.models import resolve
from safety.policy import PhraseScreen
from safety.settings import SafetySettings
from services.accounts.cache import CachedAccounts, CachedSessions
from services.accounts.service import AccountService, SessionTokens
from services.chat.conversation import ConversationTurns
from services.chat.generation import Generation
from services.chat.runner import TurnRunner
from services.chat.turn import TurnEngine
from services.chat.turn_log import FileTurnLog
from services.common.errors import AntiphonError, Conflict, Forbidden, InvalidRequest
from services.common.messages import ApiKey, ModelCard, NewKey
from services.common.ports import Embedder, Engine
from services.common.sql import migrate, open_database
from services.common.telemetry import configure_logging, configure_tracing
from services.conversations.service import ConversationService, MessageService
from services.conversations.store import ConversationStore
from services.retrieval.embedder import NoEmbedder, OnnxEmbedder
from services.router.catalog import StaticRouter

WEB_DIST = Path(__file__).parent.parent / "gateway" / "web" / "dist"


class Installation:
    """The data folder: what is in it, and the key that its first start made."""

    def __init__(self, settings: ServeSettings):
        self._settings = settings
        self.database = open_database(settings.database)

    async def open(self) -> AccountService:
        """Errors: `InvalidRequest` for a folder, `Overloaded` for a database that cannot be used."""
        home = self._settings.home
        os.umask(0o077)  # conversations are in these files
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            pepper = self.pepper()
        except OSError as e:
            raise InvalidRequest(f"The data folder {home} cannot be used: {e.strerror}.") from e
        await migrate(self.database, "conversations", conversation_store.MIGRATIONS)
        await migrate(self.database, "accounts", account_store.MIGRATIONS)
        return AccountService(account_store.AccountStore(self.database), pepper)

    def pepper(self) -> bytes:
        """Made once; whoever has the database but not this file cannot test a guessed key."""
        path = self._settings.home / "pepper"
        if not path.exists():
            # Whole or not at all, and the first of two that start together wins: keys are worth nothing without it.
            descriptor, fresh = mkstemp(dir=path.parent)
            os.write(descriptor, secrets.token_bytes(32))
            os.close(descriptor)
            with suppress(FileExistsError):
                os.link(fresh, path)
            os.unlink(fresh)
        return path.read_bytes()


async def first_key(accounts: AccountService) -> ApiKey:
    """The newest good key of the installation; its secret is there only if it was made now."""
    keys = [k for k in await accounts.keys(LOCAL.tenant) if not k.revoked]
    return keys[-1] if keys else await accounts.create_key(NewKey(LOCAL.tenant, "first start"))


@asynccontextmanager
async def platform(settings: ServeSettings, console: Console) -> AsyncIterator[tuple[GatewayPorts, ApiKey]]:
    """Every part, started; stopped in the reverse order."""
    async with AsyncExitStack() as stack:
        installation = Installation(settings)
        accounts = await installation.open()
        stack.push_async_callback(installation.database.dispose)
        stack.enter_context(_alone_in(settings.home))
        engines = await stack.enter_async_context(running_engines(settings, console))
        embedder = await _embedder(settings, console)
        store = ConversationStore(installation.database)
        conversations, messages = ConversationService(store), MessageService(store)
        router = StaticRouter(await _cards(engines, embedder), {name: name for name in engines})
        generation = Generation(router, engines)
        turns = TurnEngine(PhraseScreen(SafetySettings().blocked_phrases), generation, messages)
        runner = TurnRunner(turns, messages, FileTurnLog(settings.home / "turns"))
        await runner.recover()
        stack.push_async_callback(runner.drain, 0.0)
        sessions = CachedSessions(
            SessionTokens(account_store.AccountStore(installation.database), installation.pepper())
        )
        default = next(iter(engines))
        key = await first_key(accounts)  # last: a start that fails would have made it for nobody to see
        yield GatewayPorts(
            auth=Authenticator(CachedAccounts(accounts), sessions, open_to_all=settings.no_auth), sessions=sessions,
            router=router, turns=turns, embedder=embedder, conversations=conversations, messages=messages, runner=runner,
            conversation_turns=ConversationTurns(conversations, messages, generation, runner, default),
            health=Health(engines=engines, started=True), default_model=default, signin_token=secrets.token_urlsafe(32),
        ), key  # fmt: skip


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


class _Server(uvicorn.Server):
    """SIGTERM and Ctrl-C: unready at once, then uvicorn lets every stream finish; a second one ends them."""

    def __init__(self, config: uvicorn.Config, ports: GatewayPorts, key: ApiKey):
        super().__init__(config)
        self._ports = ports
        self._key = key

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = (sockets or self.servers[0].sockets)[0].getsockname()[1]
            announce(self.config.host, port, self._ports, self._key)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own raises the signal again at its end, which would kill us before the other parts have stopped."""
        former = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in former.items():
                signal.signal(sig, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._ports.health.draining = True
        super().handle_exit(sig, frame)


async def serve(settings: ServeSettings) -> None:
    """Until a signal comes. Errors: `AntiphonError` when a part cannot start."""
    if settings.no_auth and not _is_loopback(settings.host):
        raise Forbidden(f"--no-auth is only allowed on a loopback address, and {settings.host} is none.")
    configure_logging(settings.log_level)
    if settings.otlp_endpoint:
        try:
            configure_tracing(settings.otlp_endpoint, "antiphon")
        except ImportError:
            raise InvalidRequest("ANTIPHON_OTLP_ENDPOINT needs the `telemetry` extra.") from None
    console = Console(stderr=True)
    gateway = GatewaySettings()
    listener = _bound(settings.host, settings.port)
    async with platform(settings, console) as (ports, key):
        config = uvicorn.Config(
            create_app(ports, gateway, WEB_DIST), host=settings.host, port=settings.port, lifespan="off",
            http=partial(Connection, settings=gateway),  # type: ignore[arg-type]
            access_log=False, log_config=None, server_header=False, ws="none",
            timeout_graceful_shutdown=int(gateway.drain_timeout), proxy_headers=False, backlog=4096,
        )  # fmt: skip
        # What start-up made stays: the collector need not look at it again in the middle of a stream.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        server = _Server(config, ports, key)
        await server.serve([listener])
        console.print("Stopping …")
        await ports.runner.drain(0.0 if server.force_exit else gateway.drain_timeout)


def _bound(host: str, port: int) -> socket.socket:
    """Before anything is started: a port that is taken must cost no model's loading. Nobody can connect yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as e:
        listener.close()
        raise Conflict(f"Cannot listen on {host} port {port}: {e.strerror}. Choose others with HOST and PORT.") from e
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def announce(host: str, port: int, ports: GatewayPorts, key: ApiKey) -> None:
    """The last lines of the start-up: where, with what key, and how to try it."""
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 (read, not bound)
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    open_to_all = ports.auth.open_to_all
    # Double quotes: the shell must put the variable's value in.
    authorization = "" if open_to_all else f' -H "Authorization: Bearer {key.secret or "$ANTIPHON_API_KEY"}"'
    shown_key = key.secret or f"sk-…{key.hint}, shown when it was made; `antiphon keys create` makes another"
    body = (
        f'{{"model": "{ports.default_model}", "stream": true, "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    )
    signed_in = "" if open_to_all else f"  (signs this browser in: {base}/signin?token={ports.signin_token})"
    print(f"URL:     {base}/{signed_in}")
    print(f"API key: {'none needed (--no-auth)' if open_to_all else shown_key}")
    print(
        f"Try:     curl -N {base}/v1/chat/completions{authorization} -H 'Content-Type: application/json' -d '{body}'",
        flush=True,
    )
