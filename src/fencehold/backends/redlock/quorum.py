"""One request to several Redises at once, and their votes, counted until it is decided; and the scripts.

1. It ends as soon as the votes received decide it, and at the latest at its timeout. A vote that comes later
   changes nothing.
2. A node without a connection is sent the request as soon as there is one, if that is in time. After the end
   nothing more is sent, unless the request must reach all, however late.
3. What was sent to one of them is done there in the order in which it was sent, whether or not a caller waits for
   it.

A lock is a string under its name: the token of the ask that holds it (32 characters), the number of the attempt,
when it was granted, and its owner. It expires by itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from fencehold.drivers.resp.client import RespClient, Script
from fencehold.drivers.resp.connection import Word
from fencehold.drivers.resp.failures import Refusal, answered, final_among
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable

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


class QuorumQuestion(NamedTuple):
    """A script, and its arguments."""

    script: Script
    keys: Sequence[str]
    words: Sequence[Word] = ()


class Votes(NamedTuple):
    """The votes received."""

    answers: list[Any]
    """Of the nodes that answered."""
    absent: int
    """How many certainly did not do it."""
    unknown: int
    """How many may have done it, and did not answer."""
    errors: list[FenceholdError]

    def yes(self) -> int:
        """How many answered yes: with a truthy value."""
        return sum(1 for each in self.answers if each)


class QuorumPoll:
    """One request, in flight."""

    def __init__(
        self,
        clients: Sequence[RespClient],
        question: QuorumQuestion,
        is_decided: Callable[[list[Any]], bool],
        late: "set[asyncio.Task[None]] | None" = None,
    ) -> None:
        """`late`: keeps the tasks that continue after the end; with it, the request must reach all."""
        self._question = question
        self._is_late_allowed = late is not None
        self._is_decided = is_decided
        self._size = len(clients)
        self._answers: list[Any] = []
        self._errors: list[FenceholdError] = []
        self._tasks: set[asyncio.Task[None]] = set() if late is None else late
        self._end = asyncio.get_running_loop().create_future()
        script, keys, words = question
        by_hash = script.by_hash(keys, words)
        for client in clients:
            connection = client.connection
            if connection is None:
                self._ask_later(client)
                continue
            # Whole at first: a node without the script would need a second try, when it may be decided already.
            command = script.whole(keys, words) if connection.is_new_to(script.hash) else by_hash
            connection.send(command).add_done_callback(partial(self._on_future, client))

    async def result(self, seconds: float) -> Votes:
        """The votes, when it is decided, or after so many seconds."""
        loop = self._end.get_loop()
        # One iteration later: replies that have arrived while the loop was busy count.
        timer = loop.call_later(seconds, loop.call_soon, self._finish)
        try:
            await self._end
        finally:
            timer.cancel()
            self._finish()
        absent = sum(1 for error in self._errors if not isinstance(error, OutcomeUnknown))
        return Votes(self._answers, absent, self._size - len(self._answers) - absent, self._errors)

    def _ask_later(self, client: RespClient) -> None:
        task = asyncio.create_task(self._asked(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _asked(self, client: RespClient) -> None:
        try:
            self._on_vote(await client.run(*self._question))
        except FenceholdError as error:
            self._on_vote(error)

    def _on_future(self, client: RespClient, future: "asyncio.Future[Any]") -> None:
        if future.cancelled() or (self._end.done() and not self._is_late_allowed):
            return
        reply = future.result()
        if self._is_unheard(reply):
            self._ask_later(client)
        else:
            self._on_vote(answered(reply, client.server) if isinstance(reply, Refusal) else reply)

    def _is_unheard(self, reply: Any) -> bool:
        """Whether to send it again: the node does not know the script yet, or was lost and must get this."""
        if isinstance(reply, Refusal):
            return reply.is_unknown_script
        return self._is_late_allowed and isinstance(reply, FenceholdError)

    def _on_vote(self, vote: Any) -> None:
        if self._end.done():
            return
        if isinstance(vote, FenceholdError):
            self._errors.append(vote)
        else:
            self._answers.append(vote)
        if len(self._answers) + len(self._errors) == self._size or self._is_decided(self._answers):
            self._finish()

    def _finish(self) -> None:
        if not self._end.done():
            self._end.set_result(None)
        if not self._is_late_allowed:
            for task in self._tasks:
                task.cancel()


def failure(votes: Votes, quorum: int) -> FenceholdError:
    """The error for a request that too few have answered."""
    if final := final_among(votes.errors):
        return final
    said = "; ".join(sorted({str(error) for error in votes.errors})) or "no answer came in time"
    text = f"{len(votes.answers)} Redises answered, and {quorum} are needed: {said}"
    return OutcomeUnknown(text) if votes.unknown + votes.yes() >= quorum else Unavailable(text)
