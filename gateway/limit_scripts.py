"""The steps of buckets in Redis, in Lua. Redis runs each without another one in between.

Every number is an integer of microseconds, below 2^53. A bucket's key holds its TAT and outlives it by a minute, for
clocks that are set back. Of a claim there is a hash, a member in each of its slots' sets, and, if it has a budget, one
in its tenant's `open`: all with the time at which it expires.
"""

_BASICS = """
local function clock(given)
  if given ~= '0' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
local function ms(microseconds) return math.max(1, math.ceil(microseconds / 1000)) end
local function integer(n) return string.format('%.0f', n) end
local function read(key) return tonumber(redis.call('GET', key) or '0') end
local function write(key, tat, now)
  if tat > now then
    redis.call('SET', key, integer(tat), 'PX', ms(tat - now + 60000000))
  else
    redis.call('DEL', key)
  end
end
-- Of a tenant's memory here; another one than before means that all was lost.
local function born(key, now, expiry)
  local birth = redis.call('GETEX', key, 'EX', expiry)
  if not birth then
    birth = integer(now)
    redis.call('SET', key, birth, 'EX', expiry)
  end
  return birth
end
"""

_SWEEP = """
-- Expired claims: their tokens count as used, their money is free again.
local function sweep(open, prefix, now, keep)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', open, '-inf', integer(now), 'LIMIT', 0, 32)) do
    redis.call('ZREM', open, id)
    local held = redis.call('HMGET', prefix .. id, 'budget', 'cost')
    if held[1] and held[2] then
      redis.call('HDEL', prefix .. id, 'cost')
      redis.call('PEXPIRE', prefix .. id, ms(keep))
      if redis.call('EXISTS', held[1]) == 1 then redis.call('DECRBY', held[1], held[2]) end
    end
  end
end
"""

RESERVE = (
    _BASICS
    + _SWEEP
    + """
-- KEYS: claim, open, budget, birth, buckets…, slots…
-- ARGV: clock, id, claim's text, lifetime, keep, budget's limit (-1: none), its cost, spent (-1: unknown), its expiry (s),
--       known birth ('': none), buckets, then charge and period of each, then the limit of each kind of slots
-- Gives: granted (-1: the memory was lost, nothing is decided), now, TATs, slots taken, spent (-1: unknown), birth
local now, id = clock(ARGV[1]), ARGV[2]
local lifetime, keep = tonumber(ARGV[4]), tonumber(ARGV[5])
local limit, cost, spent, expiry = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local count = tonumber(ARGV[11])
local tats, arrivals, taken = {}, {}, {}
local granted = 1
local birth = born(KEYS[4], now, expiry)
if ARGV[10] ~= '' and ARGV[10] ~= birth then return {-1, integer(now), tats, taken, '0', birth} end
for i = 1, count do
  local charge, period = tonumber(ARGV[10 + 2 * i]), tonumber(ARGV[11 + 2 * i])
  local tat = read(KEYS[4 + i])
  if tat > now + 2 * period then
    tat = now + 2 * period
    write(KEYS[4 + i], tat, now)
  end
  tats[i] = integer(tat)
  arrivals[i] = math.max(now, tat) + charge
  if arrivals[i] - now > period then granted = 0 end
end
for i = 1, #KEYS - 4 - count do
  local key = KEYS[4 + count + i]
  redis.call('ZREMRANGEBYSCORE', key, '-inf', integer(now))
  taken[i] = redis.call('ZCARD', key)
  if taken[i] >= tonumber(ARGV[11 + 2 * count + i]) then granted = 0 end
end
if limit >= 0 then
  sweep(KEYS[2], string.sub(KEYS[1], 1, #KEYS[1] - #id), now, keep)
  local known = redis.call('GET', KEYS[3])
  if not known then
    if spent < 0 then return {0, integer(now), tats, taken, '-1', birth} end
    redis.call('SET', KEYS[3], integer(spent), 'EX', expiry)
    known = spent
  end
  spent = tonumber(known)
  if spent + cost > limit then granted = 0 end
end
if granted == 0 then return {0, integer(now), tats, taken, integer(math.max(spent, 0)), birth} end
for i = 1, count do
  write(KEYS[4 + i], arrivals[i], now)
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
  -- Money stays held until it is swept, however long the tenant is silent.
  redis.call('EXPIRE', KEYS[1], expiry)
  redis.call('EXPIRE', KEYS[2], expiry)
  spent = redis.call('INCRBY', KEYS[3], integer(cost))
end
return {1, integer(now), arrivals, taken, integer(math.max(spent, 0)), birth}
"""
)

SETTLE = (
    _BASICS
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
  local refund = tonumber(ARGV[4 + i])
  if refund ~= 0 then write(KEYS[4 + i], math.max(now, read(KEYS[4 + i])) - refund, now) end
end
return 1
"""
)

RENEW = (
    _BASICS
    + """
-- KEYS: claim, open, slots…;  ARGV: clock, id, lifetime, keep
local now, id, lifetime = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local held = redis.call('HMGET', KEYS[1], 'expires', 'cost')
if not held[1] or tonumber(held[1]) <= now then return 0 end
local later = integer(now + lifetime)
redis.call('HSET', KEYS[1], 'expires', later)
if not held[2] then redis.call('PEXPIRE', KEYS[1], ms(tonumber(ARGV[4]))) end
redis.call('ZADD', KEYS[2], 'XX', later, id)
for i = 3, #KEYS do
  redis.call('ZADD', KEYS[i], 'XX', later, id)
  redis.call('PEXPIRE', KEYS[i], ms(lifetime))
end
return 1
"""
)

MEND = (
    _BASICS
    + """
-- Put charges on buckets whatever they hold; where the memory was lost, on top of the TAT that is known from before.
-- KEYS: birth, buckets…;  ARGV: clock, expiry (s), known birth, then known TAT, charge (may be negative), period of each
local now = clock(ARGV[1])
local birth = born(KEYS[1], now, ARGV[2])
local lost = ARGV[3] ~= '' and ARGV[3] ~= birth
for i = 1, #KEYS - 1 do
  local known, charge, period = tonumber(ARGV[1 + 3 * i]), tonumber(ARGV[2 + 3 * i]), tonumber(ARGV[3 + 3 * i])
  local tat = math.max(now, read(KEYS[1 + i]))
  if lost then tat = math.max(tat, known) end
  write(KEYS[1 + i], math.min(tat + charge, now + 2 * period), now)
end
return birth
"""
)
