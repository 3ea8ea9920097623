"""The steps that Redis does at once, in its own language. What they are about, `parts` says."""

from fencehold.backends.redis.parts import NOW, PERMITS, QUEUE, script

FULL = -1
OTHER_LIMIT = -2
BUSY = -3

TAKE = script(
    """
-- token, ttl in ms, whether it waits, channel, name, stamp
if not KEYS[5] and redis.call('EXISTS', KEYS[2]) == 0 then
  -- What is usual, in as few steps as there can be: nobody waits, nobody has it, nothing is counted.
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
-- the highest fence to be broken, or 0 for any; name
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
