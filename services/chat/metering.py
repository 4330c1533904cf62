"""What a request may cost, and what it has cost: reserved before it runs, settled once however it ends.

One request is admitted as a whole, all its generations together; each generation has a record of its own in the
ledger's journal, written before its end goes on. See docs/adr/0006-metering.md.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from msgspec.structs import replace

from services.chat.generation import Placed, side_by_side
from services.chat.permission import may_use
from services.chat.tally import Tally
from services.common.account_messages import Principal
from services.common.errors import ContextLengthExceeded, EngineFailed, ModelNotFound
from services.common.messages import Event, GenerationRequest, Spent, TokenizeRequest
from services.common.ports import Engine, EventStream
from services.common.telemetry import log
from services.common.usage_messages import Ask, OpenUsage, Outcome, Reservation, Settlement, Tier, UsageRecord
from services.common.usage_ports import Journal, Limiter, Prices, Tiers

RENEW_S = 15.0
"""Well under the lifetime of a reservation."""
TELL_S = 10.0
"""How long an engine may take to tell what a generation has used. `Metered` waits half of it for the generation's end."""
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

    def require_permitted(self, who: Principal, model: str) -> None:
        """Errors: `ModelNotFound` for what the caller's tier or key does not have, as if it were not there."""
        if not may_use(model, self.tiers.tier(who.tier), who):
            raise ModelNotFound.named(model)

    async def admit(self, who: Principal, placed: Sequence[Placed]) -> "Admission":
        """Errors: the limiter's; `ContextLengthExceeded` for a prompt that the caller's tier has no room for."""
        tier = self.tiers.tier(who.tier)
        one = len(placed) == 1  # the usual request, for which tasks cost more than they bring
        prompts = [await _prompt_tokens(placed[0])] if one else await asyncio.gather(*map(_prompt_tokens, placed))
        bounded = [_bounded(p, prompt, tier) for p, prompt in zip(placed, prompts, strict=True)]
        begun = [
            self.begun(who, p.request.request_id, p.model_class, p.request.model, p.worker, prompt)
            for p, prompt in zip(bounded, prompts, strict=True)
        ]
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

    def begun(self, who: Principal, id: str, kind: str, model: str, worker: str, prompt_tokens: int) -> UsageRecord:
        return UsageRecord(
            id=id, tenant=who.tenant, at=self.clock(), kind=kind, model=model, worker=worker, user_id=who.user_id,
            key_id=who.key_id, project=who.project, prompt_tokens=prompt_tokens,
        )  # fmt: skip

    def ended(self, begun: UsageRecord, spent: Spent, outcome: Outcome) -> UsageRecord:
        record = replace(
            begun, at=self.clock(), prompt_tokens=spent.prompt_tokens, cached_tokens=spent.cached_tokens,
            output_tokens=spent.completion_tokens, outcome=outcome,
        )  # fmt: skip
        return replace(record, cost=self.prices.cost(record))

    async def settle(self, reservation: Reservation, records: Sequence[UsageRecord]) -> None:
        """Once a request is over. Never raises: a reservation that cannot be settled expires, and counts in full."""
        self._open.pop(reservation.id, None)
        settlement = Settlement(
            id=reservation.id, tenant=reservation.tenant, tokens=_tokens(records), cost=sum(r.cost for r in records)
        )
        try:
            await self.limiter.settle(settlement)
        except Exception as e:
            log.error("reservation_not_settled", reservation=reservation.id, tenant=reservation.tenant, exc_info=e)

    def whatever_happens(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """A task of its own. Shield it: then it comes to its end though who waits for it is cancelled, and once more."""
        task = asyncio.create_task(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return task

    @asynccontextmanager
    async def renewing(self) -> AsyncGenerator[None, None]:
        """Reservations live as long as this process; at the end, what is being settled is waited for."""
        renewal = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            while self._settling:
                await asyncio.wait(self._settling)

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
        self._ending: list[asyncio.Task[None]] = []

    def stream(self) -> EventStream:
        streams = [self._metered(placed, begun) for placed, begun in self._generations]
        return streams[0] if len(streams) == 1 else side_by_side(streams, self._generations[0][0].request.n)

    async def close(self) -> None:
        if self._ending:
            await asyncio.shield(self._meter.whatever_happens(self._settle()))
            return
        # The usual end, which costs no task. Settling is safe to begin twice: the first one counts.
        try:
            await self._settle()
        except asyncio.CancelledError:
            self._meter.whatever_happens(self._settle())
            raise

    async def _settle(self) -> None:
        if self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)
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
                    if outcome != "finished":
                        journal.count(slot, tally.output)
                        if u := tally.usage:
                            outcome = "finished"
                            spent = Spent(u.prompt_tokens, u.completion_tokens, u.cached_tokens)
                            self._end(slot, begun, spent, outcome)
                    if passed:
                        yield passed
            if outcome != "finished":
                raise EngineFailed("The engine stopped without an account of its answer.")
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "finished" if outcome == "finished" else "cancelled"
            raise
        finally:
            if outcome != "finished":
                ending = self._meter.whatever_happens(self._broken(slot, placed, begun, tally, outcome))
                self._ending.append(ending)
                await asyncio.shield(ending)

    async def _broken(self, slot: int, placed: Placed, begun: UsageRecord, tally: Tally, outcome: Outcome) -> None:
        told = await told_by(placed.engine, begun.id)
        self._end(slot, begun, tally.spent(begun.prompt_tokens, told), outcome)

    def _end(self, slot: int, begun: UsageRecord, spent: Spent, outcome: Outcome) -> None:
        record = self._meter.ended(begun, spent, outcome)
        self._meter.journal.end(slot, record)
        self._records.append(record)


async def told_by(engine: Engine | None, request_id: str) -> Spent | None:
    """The engine's own count; None where there is nobody to ask."""
    if engine is None:
        return None
    try:
        async with asyncio.timeout(TELL_S):
            return await engine.settle(request_id)
    except Exception as e:
        log.warning("engine_did_not_tell_usage", request_id=request_id, cause=f"{type(e).__name__}: {e}")
        return None


async def _prompt_tokens(placed: Placed) -> int:
    request = placed.request
    if isinstance(request.prompt, tuple):
        return len(request.prompt)
    asked = TokenizeRequest(
        model=request.model, text=request.prompt, messages=request.messages, tools=request.tools, whole=True
    )
    return (await placed.engine.tokenize(asked)).count


def _bounded(placed: Placed, prompt: int, tier: Tier) -> Placed:
    """The same with an upper bound on its output, so that it cannot use more than is reserved."""
    request = placed.request
    most = min(request.sampling.max_tokens or tier.max_output_tokens, tier.max_output_tokens)
    if not request.sampling.max_tokens and (room := placed.context_window - prompt) > 0:
        most = min(most, room)  # some servers refuse a bound that is beyond their window
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
