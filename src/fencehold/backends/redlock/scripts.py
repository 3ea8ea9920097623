"""The steps that each Redis does at once.

A lock is a string under its name: the token of the ask that has it (32 characters), the number of the attempt,
when it was granted, and whose it is. It expires by itself.
"""

from fencehold.drivers.resp.client import Script

TAKE = Script("""
-- token, attempt, ttl in ms, stamp
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 32) ~= ARGV[1] then return 0 end
local t = redis.call('TIME')
local at = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. at .. ' ' .. ARGV[4], 'PX', ARGV[3])
return 1
""")

FREE = Script("""
-- what the value begins with: a token, or that and an attempt
local value = redis.call('GET', KEYS[1])
if not value or string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
""")

RENEW = Script("""
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
""")

LOOK = Script("""
local t = redis.call('TIME')
return {t[1] * 1000 + math.floor(t[2] / 1000), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]) or ''}
""")

BREAK = Script("return redis.call('DEL', KEYS[1])")
