"""The script of the Redis guard, its arguments, and the meaning of its replies. Nothing here talks to a Redis.

1. *Checked, raised and written in one step*: Redis runs a script alone.
2. *Digits are compared as text, by length first*: Lua's numbers are doubles, which cannot tell apart whole
   numbers above 2^53, and fences go beyond.
3. *A mark that is no number is damage, and refused*: treated as 0, it would accept every fence.
4. *The fence is all or nothing, the commands are not*: of a command that fails, those before it stay done.
"""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from fencehold.errors import Damaged, LimitExceeded, StaleFence, UsageError
from fencehold.guards.offer import Offer
from fencehold.guards.redis_commands import COMMANDS_MAX, Command
from fencehold.locks.traces import noted

OK, STALE, MISSING, ODD = range(4)

SCRIPT = f"""
local mark = redis.call('GET', KEYS[1])
if not mark then
  if ARGV[2] == '1' then return {{{MISSING}}} end
  mark = '0'
elseif mark ~= '0' and not string.find(mark, '^[1-9]%d*$') then
  return {{{ODD}, mark}}
end
local fence = ARGV[1]
if #fence < #mark or (#fence == #mark and fence < mark) then return {{{STALE}, mark}} end
if fence ~= mark then redis.call('SET', KEYS[1], fence) end
local results, at = {{{OK}}}, 3
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  results[#results + 1] = redis.call(unpack(ARGV, at + 1, last))
  at = last + 1
end
return results
"""
SHA = sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
"""The hash by which Redis knows a script that it has seen."""


def words(prefix: str, offer: Offer, *, strict: bool, commands: Sequence[Command]) -> list[bytes | int]:
    """The arguments after the script in an EVAL: the number of keys, the keys, and the rest.

    Raises:
        LimitExceeded: there are too many commands.
    """
    if len(commands) > COMMANDS_MAX:
        raise LimitExceeded(f"{COMMANDS_MAX} commands can run behind a fence at once, not {len(commands)}")
    # In order and each once: what is sent does not depend on the hash seed.
    keys = list(dict.fromkeys([(prefix + offer.name).encode(), *(key for each in commands for key in each.keys)]))
    said: list[bytes | int] = [len(keys), *keys, str(offer.fence).encode(), b"1" if strict else b"0"]
    for each in commands:
        said += [len(each.words), *each.words]
    return said


def results(offer: Offer, answer: Any) -> list[Any]:
    """The results of the commands, in their order, as Redis returns them in a script.

    Raises:
        StaleFence: the mark is greater; nothing was written.
        UsageError: strict, and there is no mark; nothing was written.
        Damaged: there is something else in the place of the mark; nothing was written.
    """
    code, rest = answer[0], list(answer[1:])
    if code == STALE:
        raise noted(StaleFence(name=offer.name, fence=offer.fence, mark=int(rest[0])))
    if code == MISSING:
        raise UsageError(f"{offer.name!r} has no mark: this guard is strict, register the name first")
    if code == ODD:
        raise Damaged(f"the mark of {offer.name!r} is {rest[0]!r}, which is not a fence: nothing was written")
    return rest
