"""A meter with everything real around it but the clock of the buckets, which stands still so that sums are exact."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from gateway.limit_store import MemoryBuckets
from gateway.limiter import TierLimiter
from inference.engines.fan_out import FanOut
from inference.engines.metered import Metered
from inference.engines.simulated import SimulatedEngine
from inference.engines.tool_calling import ToolCalling
from safety.policy import PhraseScreen
from services.accounts.tiers import TierFile
from services.chat.generation import Generation
from services.chat.metering import Meter
from services.chat.turn import Turn, TurnEngine
from services.common.account_messages import Principal
from services.common.errors import QuotaExceeded
from services.common.messages import (
    Event,
    Finished,
    GenerationRequest,
    ModelCard,
    Prefilled,
    Sampling,
    Spent,
    TextDelta,
    TokenizeRequest,
    Tokens,
    Usage,
)
from services.common.ports import Engine, Messages
from services.common.usage_messages import Ask, OpenUsage, Reservation, Settlement, UsageRecord
from services.ledger.journal import FileJournal
from services.ledger.prices import PriceTable
from services.router.catalog import StaticRouter

WHO = Principal(tenant="acme", user_id="u", key_id="k", project="p", tier="t")
LIMIT, STREAMS, BUDGET = 60_000, 3, 10_000_000
TIERS = f"""
[t]
monthly_budget = {BUDGET}
max_output_tokens = 100
max_context = 1000
models = ["simulated", "small", "lost"]
[t.limits.chat]
organisation = {{ requests_per_minute = {LIMIT}, tokens_per_minute = {LIMIT}, concurrent_streams = {STREAMS} }}
[t.limits.embedding]
organisation = {{ requests_per_minute = {LIMIT}, tokens_per_minute = {LIMIT}, concurrent_streams = {STREAMS} }}
"""
PRICES = """
[prices.chat."*"]
prompt = 1_000_000
output = 2_000_000
[prices.embedding."*"]
prompt = 3_000_000
"""
"""Micro-units for a million tokens: one for a token of the prompt, two for one of the output."""


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Hesitant(Metered):
    """Gives way at every step, so that a cancellation can come in the middle of each."""

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        await turns_of_the_loop(2)
        return await super().tokenize(request)

    async def settle(self, request_id: str) -> Spent | None:
        await turns_of_the_loop(2)
        return await super().settle(request_id)


class Says(SimulatedEngine):
    """Gives these batches, and raises what is no batch."""

    def __init__(self, *items: Sequence[Event] | Exception):
        super().__init__()
        self.items = items
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        self.requests.append(request)
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


FIRST: list[Event] = [Prefilled(5), TextDelta(0, "a ", 2)]
END: list[Event] = [Finished(0, "stop"), Usage(5, 3, 4)]


class SpiedLimiter(TierLimiter):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.reserved: list[Reservation] = []
        self.settled: list[Settlement] = []
        self.refuses: Exception | None = None
        self.fails: Exception | None = None
        self.hesitates = 0

    async def reserve(self, ask: Ask) -> Reservation:
        await turns_of_the_loop(self.hesitates)
        if self.refuses:
            raise self.refuses
        reservation = await super().reserve(ask)
        self.reserved.append(reservation)
        return reservation

    async def settle(self, settlement: Settlement) -> None:
        await turns_of_the_loop(self.hesitates)
        self.settled.append(settlement)
        if self.fails:
            raise self.fails
        await super().settle(settlement)


class SpiedJournal(FileJournal):
    def __init__(self, folder: Path):
        super().__init__(folder)
        self.begun: list[OpenUsage] = []
        self.ended: list[UsageRecord] = []
        self.room = 10**6
        """Generations that may begin until the disk is full."""

    def begin(self, usage: OpenUsage) -> int:
        if len(self.begun) >= self.room:
            self._segments.reserve = _full  # type: ignore[method-assign]
        slot = super().begin(usage)
        self.begun.append(usage)
        return slot

    def end(self, slot: int, record: UsageRecord) -> None:
        super().end(slot, record)
        self.ended.append(record)


def _full(lines: int) -> None:
    raise OSError(28, "No space left on device")


@dataclass
class Rig:
    folder: Path
    inner: SimulatedEngine
    engine: Engine
    meter: Meter
    limiter: SpiedLimiter
    journal: SpiedJournal
    turns: TurnEngine
    who: Principal = WHO
    given: list[Event] = field(default_factory=list)

    def turn(self, *prompts: str, **fields: Any) -> Turn:
        """A generation for each prompt, with ids g0, g1 …; `sampling` fields by name."""
        sampling = Sampling(**{k: fields.pop(k) for k in list(fields) if k in Sampling.__struct_fields__})
        common: dict[str, Any] = {"model": "simulated", "sampling": sampling, "tenant": self.who.tenant} | fields
        requests = tuple(
            GenerationRequest(**({"prompt": text, "request_id": f"g{i}"} | common))
            for i, text in enumerate(prompts or ("five words of a prompt",))
        )
        return Turn(principal=self.who, requests=requests)

    async def read(self, turn: Turn, most: int = 10**6) -> list[Event]:
        """The events of at most so many batches, `Admitted` being the first; then the turn is closed."""
        self.given = []
        async with aclosing(self.turns.run(turn)) as stream:
            while most:
                most -= 1
                try:
                    self.given += await anext(stream)
                except StopAsyncIteration:
                    break
        return self.given

    async def squared(self) -> list[UsageRecord]:
        """The records that a next process would find, after everything was found to add up."""
        assert sorted(u.record.id for u in self.journal.begun) == sorted(r.id for r in self.journal.ended)
        assert sorted(r.id for r in self.limiter.reserved) == sorted(s.id for s in self.limiter.settled)
        records = list(self.journal.ended)
        used = sum(r.prompt_tokens + r.output_tokens for r in records)
        cost = sum(r.cost for r in records)
        assert sum(s.tokens for s in self.limiter.settled) == used
        assert sum(s.cost for s in self.limiter.settled) == cost
        await self._assert_left(used, cost)
        self.journal.close()
        again = FileJournal(self.folder / "usage")
        assert again.unfinished() == []
        found = [r for segment in again.closed() for r in again.read(segment).records]
        again.close()
        assert sorted(found, key=lambda r: r.id) == sorted(records, key=lambda r: r.id)
        return found

    async def _assert_left(self, used: int, cost: int) -> None:
        """In the buckets and the budget, and that no stream is open."""
        began = len(self.limiter.reserved)
        kind = self.journal.begun[0].record.kind if self.journal.begun else "chat"
        for _ in range(STREAMS):
            ask = Ask(principal=self.who, model_class=kind, tokens=0, requests=0)
            state = (await TierLimiter.reserve(self.limiter, ask)).admitted.tokens
            assert state
            assert state.remaining == LIMIT - used
        with suppress(QuotaExceeded):
            await TierLimiter.reserve(self.limiter, Ask(principal=self.who, cost=BUDGET - cost + 1))
            raise AssertionError("less was spent than the records say")
        del self.limiter.reserved[began:]


async def _nothing_spent(tenant: str, since: float) -> int:
    return 0


def _write(folder: Path, tiers: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "tiers.toml").write_text(tiers)
    (folder / "prices.toml").write_text(PRICES)


@asynccontextmanager
async def rig(
    folder: Path, inner: SimulatedEngine | None = None, *, hesitates: bool = False, phrases: Sequence[str] = (),
    store: MemoryBuckets | None = None, tiers: str = TIERS,
) -> AsyncIterator[Rig]:  # fmt: skip
    """At its end everything that goes on after a cancellation has come to its end."""
    _write(folder, tiers)
    inner = inner or SimulatedEngine(length=6)
    counted = Hesitant(inner) if hesitates else Metered(inner)
    engine = FanOut(ToolCalling(counted))
    known = TierFile(folder / "tiers.toml")
    limiter = SpiedLimiter(known, store or MemoryBuckets(lambda: 0), _nothing_spent)
    limiter.hesitates = 2 if hesitates else 0
    journal = SpiedJournal(folder / "usage")
    meter = Meter(known, PriceTable(folder / "prices.toml"), limiter, journal, lambda: 1e9)
    cards = [ModelCard(id=id, created=1, context_window=size) for id, size in (("simulated", 0), ("small", 50))]
    router = StaticRouter(cards, {"simulated": "w", "small": "w", "lost": "nobody", "forbidden": "nobody"})
    generation = Generation(router, {"w": engine})
    turns = TurnEngine(PhraseScreen(phrases), generation, meter, cast(Messages, None))
    async with meter.renewing():
        yield Rig(folder, inner, engine, meter, limiter, journal, turns)
