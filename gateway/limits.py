"""Token buckets, kept as one timestamp each (the GCRA form): pure arithmetic, with the time as an argument.

A bucket of `limit` tokens a period refills at rate = limit / period and holds `limit` tokens when it is full (its
burst). TAT, the theoretical arrival time, is when it will be full again:

    TAT' = max(now, TAT) + charge(cost),  charge(n) = ceil(n · period / limit)
    admit iff TAT' − now ≤ period, for every bucket of the request at once
    settle: TAT = max(now, TAT) − (charge(reserved) − charge(used))

All times are integers of microseconds, so that nothing is lost in sums and every store decides alike; a charge is
rounded up, so that what is admitted in a time t never exceeds rate · t + burst. Who uses more than was reserved owes it
to the bucket, up to one burst. Source: SEMANTICS.md, "Limits".
"""

from collections.abc import Sequence

from msgspec import Struct

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
LIFETIME = 60 * SECOND
"""How long a reservation lives without being renewed."""


class Rate(Struct, frozen=True, gc=False):
    limit: int
    period: int

    def charge(self, cost: int) -> int:
        """The time that the bucket needs to refill `cost` tokens."""
        return -(-cost * self.period // self.limit)


class Bucket(Struct, frozen=True, array_like=True, gc=False):
    """One bucket of a request, and what the request takes from it."""

    key: str
    rate: Rate
    counts: str
    """requests or tokens."""
    cost: int = 0
    charge: int = 0
    """Of the cost."""

    def taking(self, cost: int) -> "Bucket":
        return Bucket(self.key, self.rate, self.counts, cost, self.rate.charge(cost))


class Slots(Struct, frozen=True, array_like=True, gc=False):
    """Streams that may be open at a time: each holds a slot until it is settled or its holder is dead."""

    key: str
    limit: int


class Budget(Struct, frozen=True, array_like=True, gc=False):
    """Money that may be spent in one month. cost: what the request may cost at most."""

    key: str
    limit: int
    cost: int


class Claim(Struct, frozen=True, array_like=True, gc=False):
    """Everything that one request wants, to be granted together or not at all."""

    id: str
    tenant: str
    buckets: tuple[Bucket, ...]
    slots: tuple[Slots, ...] = ()
    budget: Budget | None = None


class Verdict(Struct, frozen=True, gc=False):
    """What a store found. `tats` and `taken` are in the claim's order: after a grant with it, after a refusal without.

    spent: of the budget, with what is reserved; None: the store does not know it, and has granted nothing.
    """

    granted: bool
    now: int
    tats: Sequence[int]
    taken: Sequence[int] = ()
    spent: int | None = 0


def bounded(tat: int, now: int, rate: Rate) -> int:
    """TAT with a debt of one burst at most. One further ahead comes from a clock that has been set back since."""
    most = now + 2 * rate.period
    return tat if tat < most else most


def arrival(tat: int, now: int, bucket: Bucket) -> int:
    """TAT if the request is admitted."""
    return (tat if tat > now else now) + bucket.charge


def excess(tat: int, now: int, bucket: Bucket) -> int:
    """How long to wait until the bucket lets the request in; nothing or less if it does now."""
    return arrival(tat, now, bucket) - now - bucket.rate.period


def refund(bucket: Bucket, used: int) -> int:
    """What settling takes off the TAT; negative where more was used than reserved."""
    return bucket.charge - bucket.rate.charge(used)


def remaining(tat: int, now: int, rate: Rate) -> int:
    """Whole tokens that the bucket holds."""
    if tat <= now:
        return rate.limit
    room = rate.period - (tat - now)
    return room * rate.limit // rate.period if room > 0 else 0


def scaled(claim: Claim, replicas: int) -> Claim:
    """The claim as one of `replicas` decides it alone: a share of each rate, burst and number of streams."""
    rates = [Rate(max(1, b.rate.limit // replicas), b.rate.period) for b in claim.buckets]
    buckets = [Bucket(b.key, rate, b.counts).taking(b.cost) for b, rate in zip(claim.buckets, rates, strict=True)]
    slots = [Slots(s.key, max(1, s.limit // replicas)) for s in claim.slots]
    return Claim(claim.id, claim.tenant, tuple(buckets), tuple(slots), claim.budget)


def seconds(microseconds: int) -> int:
    """Rounded up: a wait must not end too early."""
    return -(-microseconds // SECOND)
