"""Where buckets are kept: what a store promises, and the one in memory."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.limits import LIFETIME, SECOND, Claim, Verdict, arrival, refund


class BucketStore(Protocol):
    """Each method is one step that no other step of any process comes between."""

    async def reserve(self, claim: Claim, spent: int | None = None) -> Verdict:
        """Grant all of a claim or nothing. spent: what the ledger says of its budget, where the store does not know."""
        ...

    async def settle(self, claim: Claim, tokens: int, cost: int) -> None:
        """Replace what was reserved by what was used. Of a claim that is settled or expired only money still counts:
        once for an expired one."""
        ...

    async def renew(self, claims: Sequence[Claim]) -> None:
        """Give them another LIFETIME. One that has expired is not brought back."""
        ...

    async def find(self, tenant: str, id: str) -> Claim | None:
        """A claim that is neither settled nor forgotten, for a process that has not made it."""
        ...


class MemoryBuckets:
    """For one process. The clock is monotonic: setting the machine's time changes nothing."""

    def __init__(self, clock: Callable[[], int] = lambda: time.monotonic_ns() // 1000):
        self._clock = clock
        self._tats: dict[str, int] = {}
        self._slots: dict[str, set[str]] = {}
        self._spent: dict[str, int] = {}
        self._claims: dict[str, tuple[Claim, int]] = {}
        self._expired: dict[str, Claim] = {}
        self._swept = 0

    async def reserve(self, claim: Claim, spent: int | None = None) -> Verdict:
        now = self._clock()
        self._sweep(now)
        tats = [self._tats.get(b.key, 0) for b in claim.buckets]
        taken = [len(self._slots.get(s.key, ())) for s in claim.slots]
        money = claim.budget
        if money:
            spent = self._spent.setdefault(money.key, spent) if spent is not None else self._spent.get(money.key)
            if spent is None:
                return Verdict(False, now, tats, taken, None)
        arrivals = [arrival(tat, now, b) for tat, b in zip(tats, claim.buckets, strict=True)]
        if (
            any(a - now > b.rate.period for a, b in zip(arrivals, claim.buckets, strict=True))
            or any(n >= s.limit for n, s in zip(taken, claim.slots, strict=True))
            or (money and (spent or 0) + money.cost > money.limit)
        ):
            return Verdict(False, now, tats, taken, spent or 0)
        return self._grant(claim, now, arrivals)

    def _grant(self, claim: Claim, now: int, arrivals: Sequence[int]) -> Verdict:
        for bucket, tat in zip(claim.buckets, arrivals, strict=True):
            self._tats[bucket.key] = tat
        for slots in claim.slots:
            self._slots.setdefault(slots.key, set()).add(claim.id)
        if claim.budget:
            self._spent[claim.budget.key] += claim.budget.cost
        self._claims[claim.id] = claim, now + LIFETIME
        taken = [len(self._slots[s.key]) for s in claim.slots]
        return Verdict(True, now, arrivals, taken, self._spent[claim.budget.key] if claim.budget else 0)

    async def settle(self, claim: Claim, tokens: int, cost: int) -> None:
        self._sweep(self._clock())
        held = self._claims.pop(claim.id, None)
        if held is None:
            if self._expired.pop(claim.id, None) and claim.budget:
                self._spent[claim.budget.key] += cost
            return
        for bucket in claim.buckets:
            if bucket.counts == "tokens":
                self._tats[bucket.key] = self._tats.get(bucket.key, 0) - refund(bucket, tokens)
        self._free(claim, cost)

    def _free(self, claim: Claim, cost: int) -> None:
        for slots in claim.slots:
            holders = self._slots[slots.key]
            holders.discard(claim.id)
            if not holders:
                del self._slots[slots.key]
        if claim.budget:
            self._spent[claim.budget.key] += cost - claim.budget.cost

    async def renew(self, claims: Sequence[Claim]) -> None:
        now = self._clock()
        self._sweep(now)
        for claim in claims:
            if claim.id in self._claims:
                self._claims[claim.id] = claim, now + LIFETIME

    async def find(self, tenant: str, id: str) -> Claim | None:
        claim = self._claims[id][0] if id in self._claims else self._expired.get(id)
        return claim if claim and claim.tenant == tenant else None

    def _sweep(self, now: int) -> None:
        """Expired claims: their tokens count as used, their streams and money are free. Full buckets are forgotten."""
        if now - self._swept < SECOND // 10:
            return
        self._swept = now
        for claim, expires in list(self._claims.values()):
            if expires <= now:
                del self._claims[claim.id]
                self._expired[claim.id] = claim
                self._free(claim, 0)
        while len(self._expired) > 10_000:
            del self._expired[next(iter(self._expired))]
        if len(self._tats) > 10_000:
            self._tats = {key: tat for key, tat in self._tats.items() if tat > now}
