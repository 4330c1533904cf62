"""Buckets that all gateways share: one Lua script a step, on Redis's own clock."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from redis.asyncio import Redis

from gateway.limit_scripts import MEND, RENEW, RESERVE, SETTLE
from gateway.limits import LIFETIME, SECOND, Claim, Verdict, refund

KEEP = 20 * LIFETIME
"""How long an unsettled claim can still be settled: late, it only counts as money."""
MONTH_S = 40 * 24 * 3600
MOST_TENANTS = 10_000
MOST_BUCKETS = 1_000
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Claim).decode


class Seen(msgspec.Struct):
    """What this process knows of a tenant's buckets, for when Redis is away or has lost everything."""

    birth: bytes
    tats: dict[str, tuple[int, int]] = {}
    """By bucket, the one seen last at the end: its TAT and its period."""


class RedisBuckets:
    """All keys of an organisation share one hash tag, so that a cluster keeps them together.

    redis: a client that gives bytes, and tries nothing again by itself: a step that is sent twice counts twice.
    clock: microseconds, for tests that make time pass; None: Redis's TIME, whatever the gateways' clocks say.
    """

    def __init__(self, redis: Redis, prefix: str = "antiphon", clock: Callable[[], int] | None = None):
        self._redis = redis
        self._prefix = prefix
        self._clock = clock
        self._reserve, self._settle, self._renew, self._mend = (
            redis.register_script(s) for s in (RESERVE, SETTLE, RENEW, MEND)
        )
        self._seen: dict[str, Seen] = {}
        self._ahead = 0
        """Of our monotonic clock, Redis's."""

    async def reserve(self, claim: Claim, spent: int | None = None) -> Verdict:
        money = claim.budget
        limit, cost = (money.limit, money.cost) if money else (-1, 0)
        pairs = [n for b in claim.buckets for n in (b.charge, b.rate.period)]
        before: list[Any] = [
            self._now(),
            claim.id,
            _encode(claim),
            LIFETIME,
            KEEP,
            limit,
            cost,
            -1 if spent is None else spent,
        ]
        after = [len(claim.buckets), *pairs, *(s.limit for s in claim.slots)]
        keys = self._keys(claim)
        while True:
            answer = await self._reserve(keys=keys, args=[*before, MONTH_S, self._birth(claim.tenant), *after])
            granted, now, tats, taken, known, birth = answer
            if granted >= 0:
                break
            await self.mend(claim.tenant, {})
        verdict = Verdict(granted == 1, int(now), [int(t) for t in tats], taken, None if known == b"-1" else int(known))
        self._remember(claim, verdict, birth)
        return verdict

    async def settle(self, claim: Claim, tokens: int, cost: int) -> None:
        refunds = [refund(b, tokens) if b.counts == "tokens" else 0 for b in claim.buckets]
        args: list[Any] = [self._now(), claim.id, cost, len(refunds), *refunds]
        await self._settle(keys=self._keys(claim), args=args)

    async def renew(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            names = [f"claim:{claim.id}", "open", *(s.key for s in claim.slots)]
            keys = [self._key(claim.tenant, name) for name in names]
            await self._renew(keys=keys, args=[self._now(), claim.id, LIFETIME, KEEP])

    async def find(self, tenant: str, id: str) -> Claim | None:
        text = await cast("Any", self._redis.hget(self._key(tenant, f"claim:{id}"), "claim"))
        return _decode(text) if text else None

    async def mend(self, tenant: str, owed: Mapping[str, tuple[int, int]]) -> None:
        """Put what was decided without Redis (by bucket: charge, period) on a tenant's buckets, whatever they hold.

        A Redis that has lost its memory first gets ours back.
        """
        tats = self._seen[tenant].tats if tenant in self._seen else {}
        args: list[Any] = [self._now(), MONTH_S, self._birth(tenant)]
        names = {**tats, **owed}
        for name, (_, period) in names.items():
            args += [tats.get(name, (0, 0))[0], owed.get(name, (0, 0))[0], period]
        birth = await self._mend(keys=[self._key(tenant, name) for name in ("birth", *names)], args=args)
        if tenant in self._seen:
            self._seen[tenant].birth = birth

    def until_full(self, tenant: str, bucket: str) -> int:
        """Microseconds until it is full again, as far as this process has seen."""
        seen = self._seen.get(tenant)
        tat = seen.tats.get(bucket, (0, 0))[0] if seen else 0
        return max(0, tat - self._ahead - _monotonic())

    def _remember(self, claim: Claim, verdict: Verdict, birth: bytes) -> None:
        if len(self._seen) > MOST_TENANTS:
            self._seen.clear()
        seen = self._seen.setdefault(claim.tenant, Seen(birth))
        for bucket, tat in zip(claim.buckets, verdict.tats, strict=True):
            seen.tats.pop(bucket.key, None)
            seen.tats[bucket.key] = tat, bucket.rate.period
        while len(seen.tats) > MOST_BUCKETS:
            del seen.tats[next(iter(seen.tats))]
        self._ahead = verdict.now - _monotonic()

    def _birth(self, tenant: str) -> bytes:
        return self._seen[tenant].birth if tenant in self._seen else b""

    def _keys(self, claim: Claim) -> list[str]:
        names = [f"claim:{claim.id}", "open", claim.budget.key if claim.budget else "budget", "birth"]
        names += [b.key for b in claim.buckets]
        names += [s.key for s in claim.slots]
        start = f"{self._prefix}:{{{claim.tenant}}}:"
        return [start + name for name in names]

    def _key(self, tenant: str, name: str) -> str:
        return f"{self._prefix}:{{{tenant}}}:{name}"

    def _now(self) -> int:
        return self._clock() if self._clock else 0


def _monotonic() -> int:
    return int(time.monotonic() * SECOND)
