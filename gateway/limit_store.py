"""Where buckets are kept: what a store promises, and the one in memory."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.limits import LIFETIME, Claim, Verdict, arrival, bounded, refund

MOST = 10_000
"""Of buckets that are full, and of claims that have expired: beyond it, they are forgotten."""


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
        """With when each expires, the first one first."""
        self._expired: dict[str, Claim] = {}
        self._forget_above = MOST

    async def reserve(self, claim: Claim, spent: int | None = None) -> Verdict:
        now = self._clock()
        self._sweep(now)
        taken = [len(self._slots.get(s.key, ())) for s in claim.slots]
        granted = True
        for n, slots in zip(taken, claim.slots, strict=True):
            granted = granted and n < slots.limit
        tats, arrivals = [], []
        for bucket in claim.buckets:
            tat, full = self._tats.get(bucket.key, 0), now + bucket.rate.period
            if tat > full:
                tat = self._tats[bucket.key] = bounded(tat, now, bucket.rate)
            later = arrival(tat, now, bucket)
            granted = granted and later <= full
            tats.append(tat)
            arrivals.append(later)
        if money := claim.budget:
            spent = self._spent.get(money.key, spent)
            if spent is None:
                return Verdict(False, now, tats, taken, None)
            self._spent[money.key] = spent
            granted = granted and spent + money.cost <= money.limit
        if granted:
            return self._grant(claim, now, arrivals)
        return Verdict(False, now, tats, taken, spent or 0)

    def _grant(self, claim: Claim, now: int, arrivals: Sequence[int]) -> Verdict:
        self._tats.update(zip([b.key for b in claim.buckets], arrivals, strict=True))
        for slots in claim.slots:
            self._slots.setdefault(slots.key, set()).add(claim.id)
        spent = 0
        if claim.budget:
            spent = self._spent[claim.budget.key] = self._spent[claim.budget.key] + claim.budget.cost
        self._claims[claim.id] = claim, now + LIFETIME
        return Verdict(True, now, arrivals, [len(self._slots[s.key]) for s in claim.slots], spent)

    async def settle(self, claim: Claim, tokens: int, cost: int) -> None:
        now = self._clock()
        self._sweep(now)
        if self._claims.pop(claim.id, None):
            for bucket in claim.buckets:
                if bucket.counts == "tokens":
                    self._tats[bucket.key] = max(now, self._tats.get(bucket.key, 0)) - refund(bucket, tokens)
            self._free(claim, cost)
        elif self._expired.pop(claim.id, None) and claim.budget:
            self._spent[claim.budget.key] += cost

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
            if self._claims.pop(claim.id, None):
                self._claims[claim.id] = claim, now + LIFETIME

    async def find(self, tenant: str, id: str) -> Claim | None:
        claim = self._claims[id][0] if id in self._claims else self._expired.get(id)
        return claim if claim and claim.tenant == tenant else None

    def drain(self, key: str, until_full: int) -> None:
        """Let a bucket be at least so empty that it needs this time to be full again."""
        self._tats[key] = max(self._tats.get(key, 0), self._clock() + until_full)

    def _sweep(self, now: int) -> None:
        """Expired claims: their tokens count as used, their streams and money are free. Full buckets are forgotten."""
        while self._claims:
            claim, expires = next(iter(self._claims.values()))
            if expires > now:
                break
            del self._claims[claim.id]
            self._expired[claim.id] = claim
            self._free(claim, 0)
        while len(self._expired) > MOST:
            del self._expired[next(iter(self._expired))]
        if len(self._tats) > self._forget_above:
            self._tats = {key: tat for key, tat in self._tats.items() if tat > now}
            self._forget_above = max(MOST, 2 * len(self._tats))
