"""What a request may cost, and what it has cost: reserved before it runs, settled once however it ends.

One request is admitted as a whole, all its generations together; each generation has a record of its own in the
ledger's journal, written before its end goes on. See docs/adr/0006-metering.md.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec.structs import replace

from services.chat.generation import Placed, side_by_side
from services.chat.permission import may_use
from services.chat.tally import Tally
from services.common.account_messages import Principal
from services.common.errors import AntiphonError, ContextLengthExceeded, ModelNotFound
from services.common.messages import Event, GenerationRequest, Spent, TokenizeRequest
from services.common.ports import Engine, EventStream
from services.common.telemetry import log
from services.common.usage_messages import Ask, OpenUsage, Outcome, Reservation, Settlement, Tier, UsageRecord
from services.common.usage_ports import Journal, Limiter, Prices, Tiers

RENEW_S = 15.0
"""Well under the lifetime of a reservation."""
Clock = Callable[[], float]


class Meter:
    """renewing() while it is in use; recover() before."""

    def __init__(self, tiers: Tiers, prices: Prices, limiter: Limiter, journal: Journal, clock: Clock = time.time):
        self.tiers = tiers
        self.prices = prices
        self.limiter = limiter
        self.journal = journal
        self.clock = clock
        self._open: dict[str, Reservation] = {}
        self._settling: set[asyncio.Task[None]] = set()

    async def admit(self, who: Principal, placed: Sequence[Placed]) -> "Admission":
        """Errors: the limiter's; `ModelNotFound`, `ContextLengthExceeded` for what the caller's tier does not have."""
        tier = self.tiers.tier(who.tier)
        prompts = await asyncio.gather(*(_prompt_tokens(p) for p in placed))
        bounded = [_bounded(p, prompt, tier, who) for p, prompt in zip(placed, prompts, strict=True)]
        begun = [self._record(who, p, prompt) for p, prompt in zip(bounded, prompts, strict=True)]
        most = [replace(r, output_tokens=_most_output(p.request)) for r, p in zip(begun, bounded, strict=True)]
        reservation = await self.reserve(who, placed[0].model_class, most)
        return Admission(self, reservation, list(zip(bounded, begun, strict=True)))

    async def reserve(self, who: Principal, model_class: str, most: Sequence[UsageRecord]) -> Reservation:
        """most: the records as they could become at most."""
        reservation = await self.limiter.reserve(
            Ask(principal=who, model_class=model_class, tokens=_tokens(most), cost=sum(map(self.prices.cost, most)))
        )
        self._open[reservation.id] = reservation
        return reservation

    def _record(self, who: Principal, placed: Placed, prompt: int) -> UsageRecord:
        return UsageRecord(
            id=placed.request.request_id, tenant=who.tenant, at=self.clock(), kind=placed.model_class,
            model=placed.request.model, worker=placed.worker, user_id=who.user_id, key_id=who.key_id,
            project=who.project, prompt_tokens=prompt,
        )  # fmt: skip

    def ended(self, begun: UsageRecord, spent: Spent, outcome: Outcome) -> UsageRecord:
        record = replace(
            begun, at=self.clock(), prompt_tokens=spent.prompt_tokens, cached_tokens=spent.cached_tokens,
            output_tokens=spent.completion_tokens, outcome=outcome,
        )  # fmt: skip
        return replace(record, cost=self.prices.cost(record))

    async def settle(self, reservation: Reservation, records: Sequence[UsageRecord]) -> None:
        """Once a request is over. Goes on even if who waits for it is cancelled."""
        self._open.pop(reservation.id, None)
        settlement = Settlement(
            id=reservation.id, tenant=reservation.tenant, tokens=_tokens(records), cost=sum(r.cost for r in records)
        )
        await self.shielded(self.limiter.settle(settlement))

    async def shielded(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        await asyncio.shield(task)

    @asynccontextmanager
    async def renewing(self) -> AsyncGenerator[None, None]:
        """Reservations live as long as this process; at the end, what is being settled is waited for."""
        renewal = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, *self._settling, return_exceptions=True)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self.limiter.renew([r for r in self._open.values() if r.id])
            except Exception as e:
                log.warning("reservations_not_renewed", exc_info=e)

    async def recover(self, engines: Mapping[str, Engine]) -> None:
        """Charge what a former process had begun when it died. engines: by worker name."""
        settled: dict[tuple[str, str], list[UsageRecord]] = {}
        for slot, usage in self.journal.unfinished():
            begun = usage.record
            told = await told_by(engines.get(begun.worker), begun.id)
            counted = Tally(1)
            counted.output = begun.output_tokens
            record = self.ended(begun, counted.spent(begun.prompt_tokens, told), "crashed")
            self.journal.end(slot, record)
            settled.setdefault((begun.tenant, usage.reservation), []).append(record)
        for (tenant, id), records in settled.items():
            await self.settle(Reservation(id=id, tenant=tenant), records)


class Admission:
    """A request that was let in. `close` it, whatever happens."""

    def __init__(self, meter: Meter, reservation: Reservation, generations: Sequence[tuple[Placed, UsageRecord]]):
        self.admitted = reservation.admitted
        self._meter = meter
        self._reservation = reservation
        self._generations = generations
        self._records: list[UsageRecord] = []

    def stream(self) -> EventStream:
        streams = [self._metered(placed, begun) for placed, begun in self._generations]
        return streams[0] if len(streams) == 1 else side_by_side(streams, self._generations[0][0].request.n)

    async def close(self) -> None:
        await self._meter.settle(self._reservation, self._records)

    async def _metered(self, placed: Placed, begun: UsageRecord) -> AsyncGenerator[Sequence[Event], None]:
        journal = self._meter.journal
        slot = journal.begin(OpenUsage(record=begun, reservation=self._reservation.id))
        tally = Tally(placed.request.n)
        outcome: Outcome = "failed"
        try:
            async with aclosing(placed.engine.generate(placed.request)) as events:
                async for batch in events:
                    passed = tally.take(batch)
                    journal.count(slot, tally.output)
                    if tally.usage and outcome != "finished":
                        u = tally.usage
                        self._end(slot, begun, Spent(u.prompt_tokens, u.completion_tokens, u.cached_tokens), "finished")
                        outcome = "finished"
                    if passed:
                        yield passed
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "finished" if outcome == "finished" else "cancelled"
            raise
        finally:
            if outcome != "finished":
                await self._meter.shielded(self._broken(slot, placed, begun, tally, outcome))

    async def _broken(self, slot: int, placed: Placed, begun: UsageRecord, tally: Tally, outcome: Outcome) -> None:
        told = await told_by(placed.engine, begun.id)
        self._end(slot, begun, tally.spent(begun.prompt_tokens, told), outcome)

    def _end(self, slot: int, begun: UsageRecord, spent: Spent, outcome: Outcome) -> None:
        record = self._meter.ended(begun, spent, outcome)
        self._meter.journal.end(slot, record)
        self._records.append(record)


async def told_by(engine: Engine | None, request_id: str) -> Spent | None:
    """The engine's own count; None where there is nobody to ask."""
    with suppress(AntiphonError):
        return await engine.settle(request_id) if engine else None
    return None


async def _prompt_tokens(placed: Placed) -> int:
    request = placed.request
    if isinstance(request.prompt, tuple):
        return len(request.prompt)
    asked = TokenizeRequest(
        model=request.model, text=request.prompt, messages=request.messages, tools=request.tools, whole=True
    )
    return (await placed.engine.tokenize(asked)).count


def _bounded(placed: Placed, prompt: int, tier: Tier, who: Principal) -> Placed:
    """The same with an upper bound on its output, so that it cannot use more than is reserved."""
    request = placed.request
    if not may_use(request.model, tier, who):
        raise ModelNotFound.named(request.model)
    most = min(request.sampling.max_tokens or tier.max_output_tokens, tier.max_output_tokens)
    if tier.max_context is not None:
        most = min(most, tier.max_context - prompt)
        if most < 1:
            raise ContextLengthExceeded(
                f"The prompt has {prompt} tokens; your tier's context is {tier.max_context}, answer included.",
                param="messages" if request.prompt is None else "prompt",
            )
    return replace(placed, request=replace(request, sampling=replace(request.sampling, max_tokens=most)))


def _most_output(request: GenerationRequest) -> int:
    return request.n * (request.sampling.max_tokens or 0)


def _tokens(records: Iterable[UsageRecord]) -> int:
    return sum(r.prompt_tokens + r.output_tokens for r in records)
