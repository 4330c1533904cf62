"""Token buckets as textbooks have them: levels that rise with time, in exact fractions. To compare stores with."""

from fractions import Fraction

from gateway.limits import LIFETIME, SECOND, Bucket, Claim

ROUNDING = Fraction(1, SECOND)
"""Seconds. Stores round each charge up to a microsecond."""


class Level:
    """One bucket, and all that it has let in since it was first asked."""

    def __init__(self, bucket: Bucket, now: int):
        self.limit, self.period = bucket.rate.limit, bucket.rate.period
        self.level = Fraction(self.limit)
        self.born: int | None = None
        self.seen = now
        self.let_in = 0
        self.forgiven = Fraction(0)
        """Of debts: those beyond one burst are let off at the next request."""
        self.steps = 0

    def settle(self, now: int, back: int) -> None:
        self.level = min(Fraction(self.limit), self.level + self._refill(now - self.seen))
        self.seen = now
        self.level += back
        self.let_in -= back
        self.steps += 1

    def ask(self, now: int) -> None:
        self.born = now if self.born is None else self.born
        self.settle(now, 0)
        if self.level < -self.limit:
            self.forgiven += -self.limit - self.level
            self.level = Fraction(-self.limit)

    @property
    def slack(self) -> Fraction:
        return self.steps * ROUNDING * SECOND * self.limit / self.period

    def promised(self, now: int) -> Fraction:
        """rate · t + burst"""
        return self.limit + self._refill(now - (self.born or now))

    def _refill(self, microseconds: int) -> Fraction:
        return Fraction(microseconds * self.limit, self.period)


class Model:
    def __init__(self, buckets: dict[str, Bucket], money_limit: int, now: int):
        self.levels = {key: Level(b, now) for key, b in buckets.items()}
        self.claims: dict[str, tuple[Claim, int]] = {}
        self.expired: dict[str, Claim] = {}
        self.spent = 0
        self.money_limit = money_limit

    def pass_time(self, now: int) -> None:
        for claim, expires in list(self.claims.values()):
            if expires <= now:
                del self.claims[claim.id]
                self.expired[claim.id] = claim
                self.spent -= claim.budget.cost if claim.budget else 0

    def verdicts(self, claim: Claim, now: int) -> set[bool]:
        """The right ones: both, where only the rounding decides."""
        for b in claim.buckets:
            self.levels[b.key].ask(now)
        if self.lacks_slot_or_money(claim):
            return {False}
        margins = [self.levels[b.key].level - b.cost for b in claim.buckets]
        slacks = [self.levels[b.key].slack for b in claim.buckets]
        if any(m < -s for m, s in zip(margins, slacks, strict=True)):
            return {False}
        return {True} if all(m >= s for m, s in zip(margins, slacks, strict=True)) else {True, False}

    def lacks_slot_or_money(self, claim: Claim) -> bool:
        return any(self.taken(s.key) >= s.limit for s in claim.slots) or bool(
            claim.budget and self.spent + claim.budget.cost > self.money_limit
        )

    def taken(self, key: str) -> int:
        return sum(key in {s.key for s in claim.slots} for claim, _ in self.claims.values())

    def grant(self, claim: Claim, now: int) -> None:
        for b in claim.buckets:
            self.levels[b.key].settle(now, -b.cost)
        self.claims[claim.id] = claim, now + LIFETIME
        self.spent += claim.budget.cost if claim.budget else 0

    def settle(self, claim: Claim, tokens: int, cost: int, now: int) -> None:
        held = self.claims.pop(claim.id, None)
        if held:
            for b in claim.buckets:
                if b.counts == "tokens":
                    self.levels[b.key].settle(now, b.cost - tokens)
            self.spent += cost - claim.budget.cost if claim.budget else 0
        elif self.expired.pop(claim.id, None) and claim.budget:
            self.spent += cost

    def renew(self, claim: Claim, now: int) -> None:
        if claim.id in self.claims:
            self.claims[claim.id] = claim, now + LIFETIME
