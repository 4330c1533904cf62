"""Buckets that all gateways share: one Lua script a step, on Redis's own clock."""

from collections.abc import Awaitable, Sequence
from typing import Any, cast

import msgspec
from redis.asyncio import Redis

from gateway.limits import LIFETIME, Claim, Verdict, refund

KEEP = 20 * LIFETIME
"""How long an unsettled claim can still be settled: late, it only counts as money."""

_CLOCK = """
local function clock(given)
  if given ~= '0' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
local function ms(microseconds) return math.max(1, math.ceil(microseconds / 1000)) end
local function integer(n) return string.format('%.0f', n) end
"""

_SWEEP = """
-- Expired claims: their tokens count as used, their money is free again. 'open' holds id -> expiry of those with a budget.
local function sweep(open, prefix, now)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', open, '-inf', integer(now), 'LIMIT', 0, 32)) do
    redis.call('ZREM', open, id)
    local held = redis.call('HMGET', prefix .. id, 'budget', 'cost')
    if held[1] and held[2] then
      redis.call('HDEL', prefix .. id, 'cost')
      if redis.call('EXISTS', held[1]) == 1 then redis.call('DECRBY', held[1], held[2]) end
    end
  end
end
"""

_RESERVE = (
    _CLOCK
    + _SWEEP
    + """
-- KEYS: claim, open, budget, birth, buckets…, slots…
-- ARGV: clock, id, claim's text, lifetime, keep, budget's limit (-1: none), its cost, spent (-1: unknown), its expiry (s),
--       buckets, then charge and period of each, then the limit of each kind of slots
local now, id = clock(ARGV[1]), ARGV[2]
local lifetime, keep = tonumber(ARGV[4]), tonumber(ARGV[5])
local limit, cost, spent = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local count = tonumber(ARGV[10])
local prefix = string.sub(KEYS[1], 1, #KEYS[1] - #id)
local tats, arrivals, taken = {}, {}, {}
local granted = 1
local birth = redis.call('GET', KEYS[4])
if not birth then
  birth = integer(now)
  redis.call('SET', KEYS[4], birth, 'EX', ARGV[9])
end
for i = 1, count do
  local charge, period = tonumber(ARGV[9 + 2 * i]), tonumber(ARGV[10 + 2 * i])
  local tat = tonumber(redis.call('GET', KEYS[4 + i]) or '0')
  tats[i] = integer(tat)
  arrivals[i] = math.max(now, math.min(tat, now + period)) + charge
  if arrivals[i] - now > period then granted = 0 end
end
for i = 1, #KEYS - 4 - count do
  local key = KEYS[4 + count + i]
  redis.call('ZREMRANGEBYSCORE', key, '-inf', integer(now))
  taken[i] = redis.call('ZCARD', key)
  if taken[i] >= tonumber(ARGV[10 + 2 * count + i]) then granted = 0 end
end
if limit >= 0 then
  sweep(KEYS[2], prefix, now)
  local known = redis.call('GET', KEYS[3])
  if not known then
    if spent < 0 then return {0, integer(now), tats, taken, '-1', birth} end
    redis.call('SET', KEYS[3], integer(spent), 'EX', ARGV[9])
    known = spent
  end
  spent = tonumber(known)
  if spent + cost > limit then granted = 0 end
end
if granted == 0 then return {0, integer(now), tats, taken, integer(math.max(spent, 0)), birth} end
for i = 1, count do
  redis.call('SET', KEYS[4 + i], integer(arrivals[i]), 'PX', ms(arrivals[i] - now))
  arrivals[i] = integer(arrivals[i])
end
for i = 1, #KEYS - 4 - count do
  local key = KEYS[4 + count + i]
  redis.call('ZADD', key, integer(now + lifetime), id)
  redis.call('PEXPIRE', key, ms(lifetime))
  taken[i] = taken[i] + 1
end
redis.call('HSET', KEYS[1], 'claim', ARGV[3], 'expires', integer(now + lifetime))
redis.call('PEXPIRE', KEYS[1], ms(keep))
if limit >= 0 then
  redis.call('HSET', KEYS[1], 'budget', KEYS[3], 'cost', integer(cost))
  redis.call('ZADD', KEYS[2], integer(now + lifetime), id)
  redis.call('PEXPIRE', KEYS[2], ms(keep))
  spent = redis.call('INCRBY', KEYS[3], integer(cost))
end
return {1, integer(now), arrivals, taken, integer(math.max(spent, 0)), birth}
"""
)

_SETTLE = (
    _CLOCK
    + """
-- KEYS: claim, open, budget, birth, buckets…, slots…;  ARGV: clock, id, cost (used), buckets, the refund of each
local now, id, used, count = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local held = redis.call('HMGET', KEYS[1], 'expires', 'budget', 'cost')
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call('ZREM', KEYS[2], id)
if held[2] and redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('INCRBY', KEYS[3], integer(used - tonumber(held[3] or '0')))
end
for i = 1, #KEYS - 4 - count do redis.call('ZREM', KEYS[4 + count + i], id) end
if tonumber(held[1]) <= now then return 0 end
for i = 1, count do
  local tat = tonumber(redis.call('GET', KEYS[4 + i]) or '0') - tonumber(ARGV[4 + i])
  if tat > now then redis.call('SET', KEYS[4 + i], integer(tat), 'PX', ms(tat - now)) else redis.call('DEL', KEYS[4 + i]) end
end
return 1
"""
)

_RENEW = (
    _CLOCK
    + """
-- KEYS: claim, open, slots…;  ARGV: clock, id, lifetime, keep
local now, id, lifetime = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local expires = redis.call('HGET', KEYS[1], 'expires')
if not expires or tonumber(expires) <= now then return 0 end
local later = integer(now + lifetime)
redis.call('HSET', KEYS[1], 'expires', later)
redis.call('PEXPIRE', KEYS[1], ms(tonumber(ARGV[4])))
redis.call('ZADD', KEYS[2], 'XX', later, id)
redis.call('PEXPIRE', KEYS[2], ms(tonumber(ARGV[4])))
for i = 3, #KEYS do
  redis.call('ZADD', KEYS[i], 'XX', later, id)
  redis.call('PEXPIRE', KEYS[i], ms(lifetime))
end
return 1
"""
)

_ADD = (
    _CLOCK
    + """
-- KEYS: buckets…;  ARGV: clock, then charge (may be negative) and period of each
local now = clock(ARGV[1])
for i = 1, #KEYS do
  local charge, period = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local tat = math.max(now, tonumber(redis.call('GET', KEYS[i]) or '0')) + charge
  tat = math.min(tat, now + period)
  if tat > now then redis.call('SET', KEYS[i], integer(tat), 'PX', ms(tat - now)) else redis.call('DEL', KEYS[i]) end
end
return 1
"""
)

_RAISE = (
    _CLOCK
    + """
-- KEYS: buckets…;  ARGV: clock, then TAT and period of each
local now = clock(ARGV[1])
for i = 1, #KEYS do
  local tat = math.max(tonumber(redis.call('GET', KEYS[i]) or '0'), tonumber(ARGV[2 * i]))
  tat = math.min(tat, now + tonumber(ARGV[2 * i + 1]))
  if tat > now then redis.call('SET', KEYS[i], integer(tat), 'PX', ms(tat - now)) end
end
return 1
"""
)

MONTH_S = 40 * 24 * 3600
MOST_TENANTS = 10_000
MOST_BUCKETS = 1_000
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Claim).decode


class RedisBuckets:
    """All keys of an organisation share one hash tag, so that a cluster keeps them together.

    clock: microseconds, for tests that make time pass; None: Redis's TIME, whatever the gateways' clocks say.
    """

    def __init__(self, redis: "Redis", prefix: str = "antiphon", clock: Any = None):
        self._redis = redis
        self._prefix = prefix
        self._clock = clock
        self._reserve, self._settle, self._renew, self._add, self._raise = (
            redis.register_script(s) for s in (_RESERVE, _SETTLE, _RENEW, _ADD, _RAISE)
        )
        self._births: dict[str, bytes] = {}
        self._mirror: dict[str, dict[str, tuple[int, int]]] = {}
        """By tenant and bucket: the TAT and the period that we saw last, for a Redis that has lost everything."""

    async def reserve(self, claim: Claim, spent: int | None = None) -> Verdict:
        money = claim.budget
        limit, cost = (money.limit, money.cost) if money else (-1, 0)
        pairs = [n for b in claim.buckets for n in (b.charge, b.rate.period)]
        args = [
            self._now(), claim.id, _encode(claim), LIFETIME, KEEP, limit, cost, -1 if spent is None else spent, MONTH_S,
            len(claim.buckets), *pairs, *(s.limit for s in claim.slots),
        ]  # fmt: skip
        granted, now, tats, taken, known, birth = await self._run(self._reserve, self._keys(claim), args)
        await self._remember(claim, [int(t) for t in tats], birth)
        found = int(known)
        return Verdict(bool(granted), int(now), [int(t) for t in tats], taken, None if found < 0 else found)

    async def settle(self, claim: Claim, tokens: int, cost: int) -> None:
        refunds = [refund(b, tokens) if b.counts == "tokens" else 0 for b in claim.buckets]
        args = [self._now(), claim.id, cost, len(refunds), *refunds]
        await self._run(self._settle, self._keys(claim), args)

    async def renew(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            keys = [self._claim_key(claim.tenant, claim.id), self._key(claim.tenant, "open")]
            keys += [self._key(claim.tenant, s.key) for s in claim.slots]
            await self._run(self._renew, keys, [self._now(), claim.id, LIFETIME, KEEP])

    async def find(self, tenant: str, id: str) -> Claim | None:
        text = await cast("Awaitable[Any]", self._redis.hget(self._claim_key(tenant, id), "claim"))
        return _decode(text) if text else None

    async def add(self, tenant: str, charges: Sequence[tuple[str, int, int]]) -> None:
        """Put (bucket, charge, period) on the buckets whatever they hold: what was decided while Redis was away."""
        pairs = [n for _, charge, period in charges for n in (charge, period)]
        await self._run(self._add, [self._key(tenant, key) for key, _, _ in charges], [self._now(), *pairs])

    async def _remember(self, claim: Claim, tats: Sequence[int], birth: bytes) -> None:
        """Redis's memory of a tenant has a birth. Another one than before: it was lost, and is mended from ours."""
        tenant = claim.tenant
        if len(self._births) > MOST_TENANTS:
            self._births.clear()
            self._mirror.clear()
        former = self._births.setdefault(tenant, birth)
        seen = self._mirror.setdefault(tenant, {})
        if former != birth:
            self._births[tenant] = birth
            keys = [self._key(tenant, key) for key in seen]
            await self._run(self._raise, keys, [self._now(), *(n for pair in seen.values() for n in pair)])
            return
        if len(seen) > MOST_BUCKETS:
            seen.clear()
        for bucket, tat in zip(claim.buckets, tats, strict=True):
            seen[bucket.key] = tat, bucket.rate.period

    async def _run(self, script: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        return await script(keys=keys, args=args)

    def _keys(self, claim: Claim) -> list[str]:
        names = [
            claim.budget.key if claim.budget else "budget",
            *(b.key for b in claim.buckets),
            *(s.key for s in claim.slots),
        ]
        tenant = claim.tenant
        names.insert(1, "birth")
        return [self._claim_key(tenant, claim.id), self._key(tenant, "open"), *(self._key(tenant, n) for n in names)]

    def _claim_key(self, tenant: str, id: str) -> str:
        return self._key(tenant, f"claim:{id}")

    def _key(self, tenant: str, name: str) -> str:
        return f"{self._prefix}:{{{tenant}}}:{name}"

    def _now(self) -> int:
        return self._clock() if self._clock else 0
