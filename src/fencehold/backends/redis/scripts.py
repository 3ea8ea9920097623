"""The steps that Redis does atomically, as Lua scripts; the keys of names, and the parts of scripts.

A lock is a string under its name: the token of the ask that holds it (32 characters), its fence, when it was
granted, and its owner. It expires by itself. So it excludes other libraries that set a key only if it is absent,
and they exclude it.

A semaphore is a sorted set under its name: the tokens that have a permit, by when they expire. A hash beside it
has the limit, and for each permit its fence, when it was granted, and its owner.

The waiters for either are a sorted set of tokens, in the order in which they came; a hash beside it has for each
until when it counts as alive, whether it was notified, since when it waits, the channel of its client, and its
owner. All of these expire by themselves.

The keys of a script are, in this order: the name, its queue, its waiters, the permits, and the counter of fences,
if there is one.
"""

from fencehold.drivers.resp.client import Script

WAITER_MS = 6_000
"""How long a waiter counts as alive after its last call."""
REFRESH_MS = 2_000
"""How often a waiter calls when nothing happens."""
CALLED_MS = 2_000
"""How long a notified waiter may take to call, before the next one is notified."""
FOREIGN_MS = 100
"""How often the first waiter polls a lock of another library: there is no notification when it is gone."""
WAITERS_MAX = 10_000
"""How many may wait for one name."""
SEEN_MAX = 1_000
"""How many of them are shown."""

NOW = """
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
"""

QUEUE = """
local function drop(token)
  redis.call('ZREM', KEYS[2], token)
  redis.call('HDEL', KEYS[3], token)
end

local function read(record)
  return string.match(record or '', '^(%d+) (%d) (%d+) (%S+) (.*)$')
end

-- The first waiter that is alive; those before it that are not are removed.
local function head(at)
  while true do
    local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if not first then return nil end
    local deadline, called, since, channel, stamp = read(redis.call('HGET', KEYS[3], first))
    if deadline and tonumber(deadline) > at then
      return first, tonumber(deadline), called, since, channel, stamp
    end
    drop(first)
  end
end

-- Notify the first waiter. One that is no longer connected is skipped.
local function call(at, name)
  while true do
    local first, deadline, called, since, channel, stamp = head(at)
    if not first or called == '1' then return end
    if redis.call('PUBLISH', channel, first .. name) > 0 then
      -- pcall: without memory for this the name is still released, and this one has the longer time.
      local until_ms = math.min(deadline, at + CALLED_MS)
      redis.pcall('HSET', KEYS[3], first, until_ms .. ' 1 ' .. since .. ' ' .. channel .. ' ' .. stamp)
      return
    end
    drop(first)
  end
end

-- Join the queue, or keep the place in it; false if it is full.
local function stand(at, token, channel, stamp)
  local _, _, since = read(redis.call('HGET', KEYS[3], token))
  if not redis.call('ZSCORE', KEYS[2], token) then
    if redis.call('ZCARD', KEYS[2]) >= WAITERS_MAX then return false end
    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0
    redis.call('ZADD', KEYS[2], last + 1, token)
  end
  redis.call('HSET', KEYS[3], token,
    (at + WAITER_MS) .. ' 0 ' .. (since or at) .. ' ' .. channel .. ' ' .. stamp)
  redis.call('PEXPIRE', KEYS[2], 2 * WAITER_MS)
  redis.call('PEXPIRE', KEYS[3], 2 * WAITER_MS)
  return true
end

-- When to try again, in ms: the first when the holds expire, the others when the first should have called.
local function again(at, token, left)
  local first, deadline = head(at)
  if first == token then return math.min(left, REFRESH_MS) end
  if first and left <= 0 then return math.min(math.max(deadline - at, 1), REFRESH_MS) end
  return REFRESH_MS
end
"""

PERMITS = """
-- Remove the permits that have expired; returns how many have not.
local function live(at)
  local over = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', at)
  for _, token in ipairs(over) do
    redis.call('ZREM', KEYS[1], token)
    redis.call('HDEL', KEYS[4], token)
  end
  return redis.call('ZCARD', KEYS[1])
end

local function limit() return tonumber(redis.call('HGET', KEYS[4], 'limit') or 0) end

local function keep(token, until_ms, key, permits)
  redis.call('ZADD', key, until_ms, token)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', key, last)
  redis.call('PEXPIREAT', permits, last)
end
"""


def script(*parts: str) -> Script:
    """A script made of parts, with the constants filled in."""
    text = "".join(parts)
    for name in ("WAITER_MS", "REFRESH_MS", "CALLED_MS", "FOREIGN_MS", "WAITERS_MAX", "SEEN_MAX"):
        text = text.replace(name, str(globals()[name]))
    return Script(text)


FULL = -1
OTHER_LIMIT = -2
BUSY = -3

TAKE = script(
    """
-- token, ttl in ms, whether it waits, channel, name, stamp
if not KEYS[5] and redis.call('EXISTS', KEYS[2]) == 0 then
  -- The usual case, in as few steps as possible: no waiter, no holder, no counter of fences.
  local t = redis.call('TIME')
  local at = t[1] * 1000 + math.floor(t[2] / 1000)
  if redis.call('SET', KEYS[1], ARGV[1] .. ' 0 ' .. at .. ' ' .. ARGV[6], 'PX', ARGV[2], 'NX') then return 0 end
end
""",
    NOW,
    QUEUE,
    """
local function grant(at)
  local fence = 0
  if KEYS[5] then fence = redis.call('INCR', KEYS[5]) end
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. fence .. ' ' .. at .. ' ' .. ARGV[6], 'PX', ARGV[2])
  return fence
end
local value = redis.call('GET', KEYS[1])
local at = now()
if value and string.sub(value, 1, 32) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(string.match(value, '^%S+ (%d+)'))
end
if not value then
  local first = head(at)
  if not first or first == ARGV[1] then
    drop(ARGV[1])
    return grant(at)
  end
  call(at, ARGV[5])
end
if ARGV[3] == '0' then return {-3, 0} end
if not stand(at, ARGV[1], ARGV[4], ARGV[6]) then return {-1, WAITERS_MAX} end
local left = value and redis.call('PTTL', KEYS[1]) or 0
if value and not string.match(value, '^%x+ %d+ %d+ ') then
  left = left < 0 and FOREIGN_MS or math.min(left, FOREIGN_MS)
elseif value and left < 0 then
  left = REFRESH_MS
end
return {-3, again(at, ARGV[1], left)}
""",
)

FREE = script(
    """
-- token, name
local value = redis.call('GET', KEYS[1])
local had = 0
if value and string.sub(value, 1, 32) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  had = 1
  value = nil
end
if redis.call('EXISTS', KEYS[2]) == 0 then return had end
""",
    NOW,
    QUEUE,
    """
drop(ARGV[1])
if not value then call(now(), ARGV[2]) end
return had
""",
)

RENEW = script(
    """
-- ttl in ms, then a token for each key
local kept = {}
for at, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and string.sub(value, 1, 32) == ARGV[at + 1] then
    kept[at] = redis.call('PEXPIRE', key, ARGV[1])
  else
    kept[at] = 0
  end
end
return kept
"""
)

TAKE_PERMIT = script(
    """
-- token, ttl in ms, whether it waits, channel, name, stamp, limit
""",
    NOW,
    QUEUE,
    PERMITS,
    """
local at = now()
local token, wanted = ARGV[1], tonumber(ARGV[7])
local count = live(at)
if count > 0 and limit() ~= wanted then return {-2, limit()} end
if redis.call('ZSCORE', KEYS[1], token) then
  keep(token, at + ARGV[2], KEYS[1], KEYS[4])
  return tonumber(string.match(redis.call('HGET', KEYS[4], token), '^%d+'))
end
if count < wanted then
  local first = head(at)
  if not first or first == token then
    local fence = 0
    if KEYS[5] then fence = redis.call('INCR', KEYS[5]) end
    redis.call('HSET', KEYS[4], 'limit', wanted, token, fence .. ' ' .. at .. ' ' .. ARGV[6])
    keep(token, at + ARGV[2], KEYS[1], KEYS[4])
    if first then drop(token) end
    if count + 1 < wanted then call(at, ARGV[5]) end
    return fence
  end
  call(at, ARGV[5])
end
if ARGV[3] == '0' then return {-3, 0} end
if not stand(at, token, ARGV[4], ARGV[6]) then return {-1, WAITERS_MAX} end
local left = 0
if count >= wanted then left = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] - at end
return {-3, again(at, token, left)}
""",
)

FREE_PERMIT = script(
    """
-- token, name
""",
    NOW,
    QUEUE,
    PERMITS,
    """
local at = now()
live(at)
local had = redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
local count = redis.call('ZCARD', KEYS[1])
local most = limit()
if count == 0 then redis.call('DEL', KEYS[4]) end
drop(ARGV[1])
if count == 0 or count < most then call(at, ARGV[2]) end
return had
""",
)

RENEW_PERMITS = script(
    """
-- ttl in ms, then a token for each two keys: the name and its permits
""",
    NOW,
    PERMITS,
    """
local kept = {}
local at = now()
for i = 1, #KEYS / 2 do
  local key, token = KEYS[2 * i - 1], ARGV[i + 1]
  local ends = redis.pcall('ZSCORE', key, token)
  if type(ends) == 'string' and tonumber(ends) > at then
    keep(token, at + ARGV[1], key, KEYS[2 * i])
    kept[i] = 1
  else
    kept[i] = 0
  end
end
return kept
""",
)

BREAK = script(
    """
-- the highest fence to be force-released, or 0 for any; name
""",
    NOW,
    QUEUE,
    """
local kind = redis.call('TYPE', KEYS[1]).ok
local most = tonumber(ARGV[1])
local function may(fence) return most == 0 or (tonumber(fence) or 0) <= most end
local broken = 0
if kind == 'zset' then
  for _, token in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if may(string.match(redis.call('HGET', KEYS[4], token) or '', '^%d+')) then
      redis.call('HDEL', KEYS[4], token)
      broken = broken + redis.call('ZREM', KEYS[1], token)
    end
  end
  if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('DEL', KEYS[4]) end
elseif kind ~= 'none' then
  if may(string.match(redis.call('GET', KEYS[1]), '^%x+ (%d+) ')) then broken = redis.call('DEL', KEYS[1]) end
end
if broken == 0 then return 0 end
local fence = 0
if KEYS[5] then fence = redis.call('INCR', KEYS[5]) end
call(now(), ARGV[2])
return fence
""",
)

LOOK = script(
    NOW,
    """
local at = now()
local kind = redis.call('TYPE', KEYS[1]).ok
local holders = {}
if kind == 'zset' then
  local permits = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. at, '+inf', 'WITHSCORES', 'LIMIT', 0, SEEN_MAX)
  for i = 1, #permits, 2 do
    local record = redis.call('HGET', KEYS[4], permits[i]) or '0 0 '
    holders[#holders + 1] = {permits[i] .. ' ' .. record, permits[i + 1] - at}
  end
elseif kind ~= 'none' then
  holders[1] = {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
end
local queue = {}
for _, token in ipairs(redis.call('ZRANGE', KEYS[2], 0, SEEN_MAX - 1)) do
  queue[#queue + 1] = redis.call('HGET', KEYS[3], token) or ''
end
local limit = kind == 'zset' and redis.call('HGET', KEYS[4], 'limit') or '0'
return {at, limit, holders, queue}
""",
)
