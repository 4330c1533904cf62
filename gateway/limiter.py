"""The `Limiter` port: from a tier's numbers to buckets, and from a store's verdict to an answer or a refusal."""

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from gateway.limit_store import BucketStore
from gateway.limits import DAY, MINUTE, SECOND, Bucket, Budget, Claim, Rate, Slots, Verdict, excess, remaining, seconds
from gateway.usage_period import month
from services.common.account_messages import Principal
from services.common.errors import InvalidRequest, QuotaExceeded, RateLimited
from services.common.messages import Admitted, RateState
from services.common.telemetry import LIMIT_DECISIONS
from services.common.usage_messages import Ask, Limits, Reservation, Settlement, Subject, Tier
from services.common.usage_ports import Tiers

SLOT_WAIT_S = 1
"""Nobody knows when a stream will end: ask again after this."""
_WORDS = {
    "rpm": "requests per minute", "tpm": "tokens per minute", "tpd": "tokens per day", "streams": "streams at a time",
}  # fmt: skip
_PARAMS = {"chat": "max_tokens", "embedding": "input"}
_ADVICE = {
    "chat": "Shorten the prompt, or ask for less (max_tokens, n).",
    "embedding": "Send the texts in several requests.",
}
_GRANTED, _REFUSED = LIMIT_DECISIONS.labels("granted"), LIMIT_DECISIONS.labels("refused")
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
        self._ids = map(f"{secrets.token_hex(10)}-{{:x}}".format, itertools.count())
        self._open: dict[str, Claim] = {}
        self._given_back: set[asyncio.Task[None]] = set()
        self._plans: dict[tuple[str, str, str, str], tuple[Tier, Plan]] = {}
        self._month = month(clock())

    async def reserve(self, ask: Ask) -> Reservation:
        who = ask.principal
        tier = self._tiers.tier(who.tier)
        plan = self._plan(tier, ask.model_class, who)
        costs = {"requests": ask.requests, "tokens": ask.tokens}
        buckets = tuple([b.taking(costs[b.counts]) for b in plan.buckets])
        claim = Claim(next(self._ids), who.tenant, buckets, plan.slots, self._budget(who, tier, ask.cost))
        _require_passable(ask, claim)
        if not (claim.buckets or claim.slots or claim.budget):
            return Reservation()
        try:
            verdict = await self._store.reserve(claim)
            if verdict.spent is None:
                spent = await self._spent(who.tenant, self._month.start)
                verdict = await self._store.reserve(claim, spent)
        except asyncio.CancelledError:
            self._give_back(claim)
            raise
        if not verdict.granted:
            _REFUSED.inc()
            raise _refusal(claim, verdict)
        _GRANTED.inc()
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
                ("organisation", who.tenant),
                ("user", who.user_id and f"{who.tenant}/{who.user_id}"),
                ("key", who.key_id and f"{who.tenant}/{who.key_id}"),
            ]
            plan = _plan(tier, model_class, subjects)
            if len(self._plans) > 50_000:
                self._plans.clear()
            self._plans[key] = tier, plan
        return plan

    def _budget(self, who: Principal, tier: Tier, cost: int) -> Budget | None:
        limits = [n for n in (tier.monthly_budget, who.monthly_budget) if n is not None]
        if not limits:
            return None
        if not self._month.start <= (now := self._clock()) < self._month.end:
            self._month = month(now)
        return Budget(f"budget:{who.tenant}:{self._month.name}", min(limits), cost)


def _plan(tier: Tier, model_class: str, subjects: Sequence[tuple[Subject, str]]) -> Plan:
    """Whatever a key takes, its user and its organisation take too, so a bucket that is no smaller than one of theirs
    promises nothing more, and is left out."""
    buckets: list[Bucket] = []
    slots: list[Slots] = []
    least: dict[str, int] = {}
    for subject, id in subjects:
        limits = tier.limits.get(model_class, {}).get(subject, Limits()) if id else Limits()
        for kind, limit, period, counts in (
            ("rpm", limits.requests_per_minute, MINUTE, "requests"),
            ("tpm", limits.tokens_per_minute, MINUTE, "tokens"),
            ("tpd", limits.tokens_per_day, DAY, "tokens"),
            ("streams", limits.concurrent_streams, 0, ""),
        ):
            if limit is None or limit >= least.get(kind, limit + 1):
                continue
            least[kind] = limit
            key = f"{subject}:{id}:{model_class}:{kind}"
            if period:
                buckets.append(Bucket(key, Rate(limit, period), counts))
            else:
                slots.append(Slots(key, limit))
    return Plan(tuple(buckets), tuple(slots))


def _require_passable(ask: Ask, claim: Claim) -> None:
    for b in claim.buckets:
        if b.cost > b.rate.limit:
            tokens = b.counts == "tokens"
            raise InvalidRequest(
                f"This request may use {b.cost} {b.counts}{', prompt and answer together' if tokens else ''}; your limit of "
                f"{b.rate.limit} {_words(b.key)} can never let it through. {_ADVICE.get(ask.model_class, 'Ask for less.')}",
                param=_PARAMS.get(ask.model_class) if tokens else None, code="request_exceeds_limit",
            )  # fmt: skip


def _refusal(claim: Claim, verdict: Verdict) -> RateLimited:
    error = _reason(claim, verdict)
    error.admitted = _admitted(claim, verdict)
    return error


def _reason(claim: Claim, verdict: Verdict) -> RateLimited:
    money = claim.budget
    if money and (verdict.spent or 0) + money.cost > money.limit:
        return QuotaExceeded(
            "This request could pass your organisation's budget for this month. See the usage page, or ask an owner to raise it."
        )  # fmt: skip
    waits = [
        (excess(tat, verdict.now, b), b.key, b.rate.limit) for tat, b in zip(verdict.tats, claim.buckets, strict=True)
    ]
    waits += [
        (SLOT_WAIT_S * SECOND, s.key, s.limit) for n, s in zip(verdict.taken, claim.slots, strict=True) if n >= s.limit
    ]
    wait, key, limit = max(waits)
    return RateLimited(
        f"Your limit of {limit} {_words(key)} is reached. Try again in {seconds(wait)} s.", retry_after=seconds(wait)
    )


def _words(key: str) -> str:
    """organisation:org_1:chat:tpm → tokens per minute (organisation, chat models)"""
    subject, _, rest = key.partition(":")
    model_class, kind = rest.rsplit(":", 2)[1:]
    return f"{_WORDS[kind]} ({subject}, {model_class} models)"


def _admitted(claim: Claim, verdict: Verdict) -> Admitted:
    requests = tokens = None
    now = verdict.now
    for tat, b in zip(verdict.tats, claim.buckets, strict=True):
        left = remaining(tat, now, b.rate)
        least = requests if b.counts == "requests" else tokens
        if least is None or left < least.remaining:
            least = RateState(b.rate.limit, left, max(0, tat - now) / SECOND)
            if b.counts == "requests":
                requests = least
            else:
                tokens = least
    return Admitted(requests, tokens)
