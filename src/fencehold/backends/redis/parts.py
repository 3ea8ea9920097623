"""What Redis keeps for names, and the parts that its scripts are made of.

A lock is a string under its name: the token of the ask that has it (32 characters), its fence, when it was
granted, and whose it is. It expires by itself. So we and whoever else sets a key only if it is absent, as other
libraries do, exclude one another.

A semaphore is a sorted set under its name: the tokens that have a permit, by when they expire. A hash beside it
knows the limit, and of each permit its fence, when it was granted, and whose it is.

Who waits for either stands in a sorted set of tokens, in the order in which they came; a hash beside it knows of
each until when it counts as alive, whether it was called, since when it waits, the channel of its client, and
who it is. All of these expire by themselves.

The keys of a script are, in this order: the name, its queue, who waits in it, the permits, and the counter of
fences, where there is one.
"""

from fencehold.drivers.resp.client import Script

WAITER_MS = 6_000
"""So long one who waits counts as alive without having been heard of."""
REFRESH_MS = 2_000
"""So often one who waits is to be heard of, when nothing happens."""
CALLED_MS = 2_000
"""So long one who was called may take to come, before the next one is."""
FOREIGN_MS = 100
"""So often the first who waits looks whether a lock of another library is gone: nobody tells when it is."""
WAITERS_MAX = 10_000
"""So many may wait for one name."""
SEEN_MAX = 1_000
"""So many of them are shown."""

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

-- The first who waits and is alive; those before it who are not are forgotten.
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

-- Tell the first who waits that it may come. Who is not connected any more is passed over.
local function call(at, name)
  while true do
    local first, deadline, called, since, channel, stamp = head(at)
    if not first or called == '1' then return end
    if redis.call('PUBLISH', channel, first .. name) > 0 then
      -- pcall: without memory for this the name is freed all the same, and this one has the longer time.
      local until_ms = math.min(deadline, at + CALLED_MS)
      redis.pcall('HSET', KEYS[3], first, until_ms .. ' 1 ' .. since .. ' ' .. channel .. ' ' .. stamp)
      return
    end
    drop(first)
  end
end

-- Stand in the queue, or go on standing there; false if it is full.
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

-- When to try again, in ms: the first when what is had runs out, the others when it should have been heard of.
local function again(at, token, left)
  local first, deadline = head(at)
  if first == token then return math.min(left, REFRESH_MS) end
  if first and left <= 0 then return math.min(math.max(deadline - at, 1), REFRESH_MS) end
  return REFRESH_MS
end
"""

PERMITS = """
-- The permits that have run out are forgotten; says how many have not.
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
    """A script made of parts, with the figures in it."""
    text = "".join(parts)
    for name in ("WAITER_MS", "REFRESH_MS", "CALLED_MS", "FOREIGN_MS", "WAITERS_MAX", "SEEN_MAX"):
        text = text.replace(name, str(globals()[name]))
    return Script(text)
