"""The `Limiter` port: from a tier's numbers to buckets, and from a store's verdict to an answer or a refusal."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from gateway.limit_store import BucketStore
from gateway.limits import DAY, MINUTE, SECOND, Bucket, Budget, Claim, Rate, Slots, Verdict, excess, remaining, seconds
from services.common.account_messages import Principal
from services.common.errors import InvalidRequest, QuotaExceeded, RateLimited
from services.common.messages import Admitted, RateState
from services.common.telemetry import LIMIT_DECISIONS
from services.common.usage_messages import Ask, Reservation, Settlement, Subject, Tier
from services.common.usage_ports import Tiers

SLOT_WAIT_S = 1
"""Nobody knows when a stream will end: ask again after this."""
_WORDS = {
    "rpm": "requests per minute", "tpm": "tokens per minute", "tpd": "tokens per day", "streams": "streams at a time",
}  # fmt: skip
Spent = Callable[[str, float], Awaitable[int]]
"""What a tenant's ledger says it has spent since a time."""


class Plan(Struct, frozen=True):
    """The buckets that a caller's requests take from, but for how much."""

    buckets: tuple[Bucket, ...]
    slots: tuple[Slots, ...]


class TierLimiter:
    def __init__(self, tiers: Tiers, store: BucketStore, spent: Spent, clock: Callable[[], float] = time.time):
        self._tiers = tiers
        self._store = store
        self._spent = spent
        self._clock = clock
        self._open: dict[str, Claim] = {}
        self._given_back: set[asyncio.Task[None]] = set()
        self._plans: dict[tuple[str, str, str, str], tuple[Tier, Plan]] = {}

    async def reserve(self, ask: Ask) -> Reservation:
        who = ask.principal
        tier = self._tiers.tier(who.tier)
        plan = self._plan(tier, ask.model_class, who)
        costs = {"requests": ask.requests, "tokens": ask.tokens}
        buckets = tuple([Bucket(b.key, b.rate, b.counts, costs[b.counts]) for b in plan.buckets])
        claim = Claim(secrets.token_hex(12), who.tenant, buckets, plan.slots, self._budget(who, tier, ask.cost))
        _require_passable(claim)
        if not (claim.buckets or claim.slots or claim.budget):
            return Reservation()
        try:
            verdict = await self._store.reserve(claim)
            if verdict.spent is None:
                spent = await self._spent(who.tenant, _month(self._clock()).timestamp())
                verdict = await self._store.reserve(claim, spent)
        except asyncio.CancelledError:
            self._give_back(claim)
            raise
        LIMIT_DECISIONS.labels("granted" if verdict.granted else "refused").inc()
        if not verdict.granted:
            raise _refusal(claim, verdict)
        self._open[claim.id] = claim
        return Reservation(id=claim.id, tenant=who.tenant, admitted=_admitted(claim, verdict))

    def _give_back(self, claim: Claim) -> None:
        """The asker has gone while the store decided: it may have granted."""
        task = asyncio.create_task(self._store.settle(claim, 0, 0))
        self._given_back.add(task)
        task.add_done_callback(self._given_back.discard)

    async def settle(self, settlement: Settlement) -> None:
        if not settlement.id:
            return
        claim = self._open.pop(settlement.id, None) or await self._store.find(settlement.tenant, settlement.id)
        if claim:
            await self._store.settle(claim, settlement.tokens, settlement.cost)

    async def renew(self, reservations: Sequence[Reservation]) -> None:
        await self._store.renew([c for r in reservations if (c := self._open.get(r.id))])

    def _plan(self, tier: Tier, model_class: str, who: Principal) -> Plan:
        key = (model_class, who.tenant, who.user_id, who.key_id)
        tier_then, plan = self._plans.get(key, (None, None))
        if plan is None or tier_then is not tier:
            subjects: list[tuple[Subject, str]] = [
                ("organisation", who.tenant), ("user", who.user_id), ("key", who.key_id),
            ]  # fmt: skip
            plan = _plan(tier, model_class, subjects)
            if len(self._plans) > 50_000:
                self._plans.clear()
            self._plans[key] = tier, plan
        return plan

    def _budget(self, who: Principal, tier: Tier, cost: int) -> Budget | None:
        limits = [n for n in (tier.monthly_budget, who.monthly_budget) if n is not None]
        if not limits:
            return None
        return Budget(f"budget:{who.tenant}:{_month(self._clock()):%Y-%m}", min(limits), cost)


def _plan(tier: Tier, model_class: str, subjects: Sequence[tuple[Subject, str]]) -> Plan:
    buckets: list[Bucket] = []
    slots: list[Slots] = []
    of_class = tier.limits.get(model_class, {})
    for subject, id in subjects:
        limits = of_class.get(subject)
        if limits is None or not id:
            continue
        stem = f"{subject}:{id}:{model_class}:"
        for kind, limit, period, counts in (
            ("rpm", limits.requests_per_minute, MINUTE, "requests"),
            ("tpm", limits.tokens_per_minute, MINUTE, "tokens"),
            ("tpd", limits.tokens_per_day, DAY, "tokens"),
        ):
            if limit is not None:
                buckets.append(Bucket(stem + kind, Rate(limit, period), counts, 0))
        if limits.concurrent_streams is not None:
            slots.append(Slots(stem + "streams", limits.concurrent_streams))
    return Plan(tuple(buckets), tuple(slots))


def _require_passable(claim: Claim) -> None:
    for b in claim.buckets:
        if b.cost > b.rate.limit:
            what = _words(b.key)
            raise InvalidRequest(
                f"This request may use {b.cost} {b.counts}, prompt and answer together; your limit of {b.rate.limit} {what} "
                "can never let it through. Shorten the prompt, or ask for less (max_tokens, n).",
                param="max_tokens" if b.counts == "tokens" else None, code="request_exceeds_limit",
            )  # fmt: skip


def _refusal(claim: Claim, verdict: Verdict) -> RateLimited:
    money = claim.budget
    if money and (verdict.spent or 0) + money.cost > money.limit:
        return QuotaExceeded(
            "This request could pass your organisation's budget for this month. See the usage page, or ask an owner to raise it."
        )  # fmt: skip
    waits = [
        (excess(tat, verdict.now, b), b.key, b.rate.limit) for tat, b in zip(verdict.tats, claim.buckets, strict=True)
    ]
    full = [s for n, s in zip(verdict.taken, claim.slots, strict=True) if n >= s.limit]
    if full:
        waits.append((SLOT_WAIT_S * SECOND, full[0].key, full[0].limit))
    wait, key, limit = max(waits)
    error = RateLimited(
        f"Your limit of {limit} {_words(key)} is reached. Try again in {seconds(wait)} s.", retry_after=seconds(wait)
    )
    error.admitted = _admitted(claim, verdict)
    return error


def _words(key: str) -> str:
    """organisation:org_1:chat:tpm → tokens per minute of the organisation for chat models"""
    subject, _, rest = key.partition(":")
    model_class, kind = rest.rsplit(":", 2)[1:]
    return f"{_WORDS[kind]} ({subject}, {model_class} models)"


def _admitted(claim: Claim, verdict: Verdict) -> Admitted:
    tightest: dict[str, RateState] = {}
    for tat, b in zip(verdict.tats, claim.buckets, strict=True):
        left = remaining(tat, verdict.now, b.rate)
        if b.counts not in tightest or left < tightest[b.counts].remaining:
            reset = max(0, tat - verdict.now) / SECOND
            tightest[b.counts] = RateState(b.rate.limit, left, reset)
    return Admitted(tightest.get("requests"), tightest.get("tokens"))


def _month(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
