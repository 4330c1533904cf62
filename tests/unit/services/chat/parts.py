"""The chat service on a SQLite database of the test's own, with engines that a test can steer."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

import services.accounts.store as account_store
import services.ledger.store as ledger_store
from gateway.limit_store import MemoryBuckets
from gateway.limiter import TierLimiter
from inference.engines.simulated import SimulatedEngine
from safety.policy import PhraseScreen
from services.accounts.tiers import TierFile
from services.chat.conversation import ConversationTurns, Started, StartTurn
from services.chat.generation import Generation
from services.chat.metering import Meter
from services.chat.runner import TurnRunner
from services.chat.turn import TurnEngine
from services.chat.turn_log import FileTurnLog
from services.common.account_messages import Principal
from services.common.messages import (
    Conversation,
    ConversationRef,
    Event,
    Finished,
    GenerationRequest,
    MessageRef,
    ModelCard,
    StoredMessage,
    TextDelta,
    Usage,
)
from services.common.ports import Engine, Messages
from services.common.sql import migrate, open_database
from services.conversations.service import ConversationService, MessageService
from services.conversations.store import MIGRATIONS, ConversationStore
from services.ledger.journal import FileJournal
from services.ledger.prices import PriceTable
from services.ledger.service import LedgerService
from services.router.catalog import StaticRouter

TENANT = "local"
WHO = Principal(tenant=TENANT, space=TENANT, role="owner", tier="enterprise")


class ScriptedEngine(SimulatedEngine):
    """Says what a test tells it to, when the test says so: `say(batch)`, `fail(error)`, `end()`."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[GenerationRequest] = []
        self.closed = asyncio.Event()
        self._script: asyncio.Queue[Sequence[Event] | BaseException | None] = asyncio.Queue()

    def say(self, *events: Event) -> None:
        self._script.put_nowait(events)

    def fail(self, error: BaseException) -> None:
        self._script.put_nowait(error)

    def end(self) -> None:
        self._script.put_nowait(None)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        self.requests.append(request)
        self.running += 1
        try:
            while (item := await self._script.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.running -= 1
            self.closed.set()


@dataclass(kw_only=True)
class Parts:
    engine: Engine
    database: AsyncEngine
    conversations: ConversationService
    messages: Messages
    router: StaticRouter
    generation: Generation
    turns: TurnEngine
    runner: TurnRunner
    starting: ConversationTurns
    log: FileTurnLog
    meter: Meter
    journal: FileJournal
    ledger: LedgerService


def migrated(path: Path) -> Path:
    """A database with every table, to copy: migrating takes longer than most tests."""

    async def make() -> None:
        engine = open_database(f"sqlite+aiosqlite:///{path}")
        await migrate(engine, "conversations", MIGRATIONS)
        await migrate(engine, "accounts", account_store.MIGRATIONS)
        await migrate(engine, "ledger", ledger_store.MIGRATIONS)
        await engine.dispose()

    asyncio.run(make())
    return path


@asynccontextmanager
async def opened(
    template: Path,
    folder: Path,
    engine: Engine,
    wrap: Callable[[Messages], Messages] = lambda messages: messages,
    phrases: Sequence[str] = (),
    tiers: Path | None = None,
) -> AsyncIterator[Parts]:
    """wrap: what the chat service gets for its Messages port. The database in `folder` is kept if there is one."""
    path = folder / "test.db"
    if not path.exists():
        shutil.copy(template, path)
    database = open_database(f"sqlite+aiosqlite:///{path}")
    store = ConversationStore(database)
    conversations, messages = ConversationService(store), wrap(MessageService(store))
    cards = [ModelCard(id="simulated", created=1, context_window=8192), ModelCard(id="lost", created=1)]
    router = StaticRouter(cards, {"simulated": "w", "lost": "nobody"})
    generation = Generation(router, {"w": engine})
    known, ledger = TierFile(tiers), LedgerService(ledger_store.LedgerStore(database))
    journal = FileJournal(folder / "usage")
    meter = Meter(known, PriceTable(), TierLimiter(known, MemoryBuckets(), _nothing_spent), journal)
    turns = TurnEngine(PhraseScreen(phrases), generation, meter, messages)
    log = FileTurnLog(folder / "turns")
    runner = TurnRunner(turns, messages, log)
    starting = ConversationTurns(conversations, messages, generation, meter, runner, "simulated")
    try:
        yield Parts(
            engine=engine, database=database, conversations=conversations, messages=messages, router=router,
            generation=generation, turns=turns, runner=runner, starting=starting, log=log,
            meter=meter, journal=journal, ledger=ledger,
        )  # fmt: skip
    finally:
        await runner.drain(0)
        journal.close()
        await database.dispose()


async def _nothing_spent(tenant: str, since: float) -> int:
    return 0


async def until(condition: Callable[[], bool], patience: float = 5.0) -> None:
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(0.002)


async def within(work: Awaitable[object], patience: float = 5.0) -> None:
    async with asyncio.timeout(patience):
        await work


class Chat:
    """One conversation with an engine that a test scripts, and the usual steps."""

    def __init__(self, parts: Parts, conversation: Conversation):
        self.parts = parts
        self.id = conversation.id
        assert isinstance(parts.engine, ScriptedEngine)
        self.engine = parts.engine

    async def start(self, **fields: Any) -> Started:
        return await self.parts.starting.start(StartTurn(**({"principal": WHO, "conversation_id": self.id} | fields)))

    async def ended(self, *words: str, reason: Any = "stop") -> None:
        for word in words:
            self.engine.say(TextDelta(0, word))
        self.engine.say(Finished(0, reason), Usage(1, len(words)))
        self.engine.end()
        await until(lambda: self.parts.runner.running_in(self.id) is None)

    async def say(self, content: str, *words: str, reason: str = "stop", **fields: Any) -> Started:
        started = await self.start(content=content, **fields)
        await self.ended(*words, reason=reason)
        return started

    async def get(self, message: StoredMessage) -> StoredMessage:
        return await self.parts.messages.get(MessageRef(TENANT, message.id))

    async def conversation(self) -> Conversation:
        return await self.parts.conversations.get(ConversationRef(TENANT, self.id))

    async def count(self) -> int:
        return len(await self.parts.messages.all(ConversationRef(TENANT, self.id)))

    def prompt(self) -> list[tuple[str, str]]:
        return [(m.role, m.content) for m in self.engine.requests[-1].messages]
