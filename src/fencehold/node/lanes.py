"""Lanes: each connection's commands that no entry has taken yet, scheduled round robin.

1. Each connection has a *lane*. Its commands are taken in order; between lanes there is no order to keep.
2. An entry takes one command of every lane that had none waiting, and more only within its *budget*: from each
   lane up to a *share*, the budget divided by the active lanes. What is beyond waits in its own lane, and lanes
   with something waiting have their shares in turn, over as many entries as it takes: a flood delays only itself.
   The connections of one principal have one share among them, which their lanes use in turn: a principal with a
   thousand connections gets no more than one with a single one.
3. The budget follows what commands cost. It is so many that the work for one entry takes a quarter of a
   millisecond, or half as long as the append of an entry if that is longer: that is how long another client waits
   because of a flood.
4. A lane that has been alone for a while has a larger share: batches are what makes a journal quick.
5. A client that was quiet may come in a burst: once in a while a share may be exceeded, within a bound for all of
   them together. So what many request at the same moment is journaled in the order in which it came, and no second
   request goes before the first ones that are read already. Only a flood loses its place.
6. All that waits has a bound. A lane that has its part of it is *full*: its connection stops reading until there
   is room (back-pressure).

A command weighs one for each name, and one for each quarter kilobyte of other text; a question, as much as
several; what ends a session, one more for every eight names that it has or waits for.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from fencehold.core.commands import Command
from fencehold.runtime.shared import Shared

BUDGET_MIN, BUDGET_MAX = 16, 512
SHARE_MIN: Final = 8
"""Less from each of many would cost more than it gives: the replies to a connection at once are one write."""
ALONE_MAX: Final = 1_024
"""The share of one that is alone."""
ALONE_AFTER_MS: Final = 100.0
WORK_MS_MIN, WORK_MS_MAX = 0.25, 4.0
"""How long the work for one entry should take, depending on how long an append does."""
BURST_EVERY_MS = 1_000.0
BURST_MAX, BURSTS_MAX = 16, 512
"""What one share, and all of them together, may take beyond their shares in that time: five milliseconds of work
in a second, so that a crowd that comes in bursts harms fewer than one in a hundred."""
QUESTION_WEIGHT = 4
OVERFLOW_MIN, OVERFLOW_MAX = 16, 256
"""What one lane may have waiting, if there is room for it: some shares, so that it is never idle. More of it from
each of a hundred is objects that the garbage collector traverses, all at once, while all clients wait."""
OVERFLOW_SHARES = 4

_SEVERAL: Final = 2
_CROWD_PER_SHARE: Final = 2

_LEARN = 0.1
WORTH_LEARNING: Final = 8
"""An entry that weighs less says little about what its commands cost."""


class Waiting(NamedTuple):
    """What is over a lane's share: a command, or a question, and the callback for its outcome."""

    command: Command | None
    question: Any
    reply: Callable[..., None]
    weight: int


class Share:
    """What one principal may take of an entry, over all its connections; or one connection without a principal."""

    __slots__ = ("batch", "burst", "burst_since_ms", "lanes", "taken")

    def __init__(self) -> None:
        self.burst = 0
        """What it took beyond its share, since then."""
        self.burst_since_ms = -BURST_EVERY_MS
        self.batch = -1
        """The last batch it has something in."""
        self.taken = 0
        """The weight of that."""
        self.lanes: deque[Lane] = deque()
        """Those with something waiting, in turn."""


class Lane:
    """One connection's place at the leader."""

    __slots__ = ("_shared", "is_full", "is_gathering", "on_room", "overflow", "share")

    def __init__(self, on_room: Callable[[], None] | None = None, shared: Shared[Share] | None = None) -> None:
        self._shared = shared
        """Referenced: while something of it waits, other lanes of its principal must find the same share."""
        self.share = Share() if shared is None else shared.thing
        self.overflow: deque[Waiting] = deque()
        self.is_full = False
        self.is_gathering = False
        """Its connection may have read more commands, and will say when that was all (`Leader.commit_here`)."""
        self.on_room = on_room
        """Called when it was full and has room again."""


Asked: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], None]]


class Batch(NamedTuple):
    """What goes into one entry, and the questions that are put when it is applied."""

    commands: list[Command]
    answers: list[Callable[..., None]]
    questions: list[Asked]
    weight: int
    crowd: int
    """How many commands, as `Lanes.crowd` counts them."""


class Lanes:
    """All lanes of one leader. Fed with `now_ms`, as everything here that depends on time."""

    def __init__(self, pending_max: int) -> None:
        self._pending_max = pending_max
        self.commands: list[Command] = []
        self.answers: list[Callable[..., None]] = []
        self.questions: list[Asked] = []
        self._weight = 0
        self._batch = 0
        self._asking = 0
        """Shares that have something in the batch that gathers."""
        self._last: Share | None = None
        self._others_came = False
        """More than one share was seen since the last batch was taken."""
        self._shared_until_ms = 0.0
        self._now_ms = 0.0
        """When the last batch was taken."""
        self._burst = 0
        """What all of them took beyond their shares, since then."""
        self._burst_since_ms = -BURST_EVERY_MS
        self._crowded: deque[Share] = deque()
        """Those that want more than their share, in turn."""
        self.overflow = 0
        """How many wait in lanes, beyond their shares."""
        self._share = self._weight_max = ALONE_MAX
        self.budget = float(BUDGET_MAX)
        """What an entry may weigh, as far as lanes have more than one command."""

    @property
    def is_crowded(self) -> bool:
        """Whether there is more than the batch that gathers may take."""
        return bool(self._crowded)

    @property
    def is_empty(self) -> bool:
        return not (self.commands or self.questions or self._crowded)

    @property
    def is_alone(self) -> bool:
        """Whether all that has gathered is of one share, and no other has sent anything for a while."""
        return self._share == ALONE_MAX and not self._others_came and not self._crowded

    @property
    def pending(self) -> int:
        """Commands and questions that no entry has taken."""
        return len(self.commands) + len(self.questions) + self.overflow

    @property
    def crowd(self) -> int:
        """How many commands have gathered from many clients: much from a few makes no crowd."""
        count = len(self.commands)
        return count if self._share == ALONE_MAX else min(count, _CROWD_PER_SHARE * self._asking)

    def put(self, lane: Lane, command: Command, answer: Callable[..., None], weight: int = 1) -> None:
        """Take a command into the batch that gathers, or let it wait in its lane."""
        share = lane.share
        if share.batch != self._batch:
            self._begin(share)
        taken = share.taken
        if lane.overflow or (
            taken
            and (taken >= self._share or self._weight >= self._weight_max)
            and not self._may_burst(share, weight)
        ):
            self._defer(lane, Waiting(command, None, answer, weight))
        else:
            share.taken = taken + weight
            self._weight += weight
            self.commands.append(command)
            self.answers.append(answer)

    def ask(self, lane: Lane, question: Callable[[Any], Any], reply: Callable[[Any], None]) -> None:
        """Take a question, to be put after all commands that came before it in its lane."""
        share = lane.share
        if share.batch != self._batch:
            self._begin(share)
        if lane.overflow or (share.taken and (share.taken >= self._share or self._weight >= self._weight_max)):
            self._defer(lane, Waiting(None, question, reply, QUESTION_WEIGHT))
        else:
            share.taken += QUESTION_WEIGHT
            self._weight += QUESTION_WEIGHT
            self.questions.append((question, reply))

    def _begin(self, share: Share) -> None:
        share.batch = self._batch
        share.taken = 0
        self._asking += 1
        if share is not self._last:
            self._last = share
            self._others_came = True
        if self._asking == _SEVERAL and self._share == ALONE_MAX:
            self._share_out()

    def _may_burst(self, share: Share, weight: int) -> bool:
        """Whether it may exceed its share, as one that was quiet lately; what it takes beyond is counted."""
        now_ms = self._now_ms
        if now_ms - share.burst_since_ms >= BURST_EVERY_MS:
            share.burst_since_ms, share.burst = now_ms, 0
        if now_ms - self._burst_since_ms >= BURST_EVERY_MS:
            self._burst_since_ms, self._burst = now_ms, 0
        if (
            share.lanes
            or self._share == ALONE_MAX
            or share.burst + weight > BURST_MAX
            or self._burst + weight > BURSTS_MAX
        ):
            return False
        share.burst += weight
        self._burst += weight
        return True

    def _defer(self, lane: Lane, waiting: Waiting) -> None:
        share = lane.share
        if not lane.overflow:
            if not share.lanes:
                self._crowded.append(share)
            share.lanes.append(lane)
        lane.overflow.append(waiting)
        self.overflow += 1
        if len(lane.overflow) >= self._overflow_max(share) or self.overflow >= self._pending_max // 2:
            # Until `on_room` is called: its bound can grow meanwhile, and nothing would tell its connection.
            lane.is_full = True

    def _overflow_max(self, share: Share) -> int:
        """What one lane of a share may have waiting."""
        of_share = self._pending_max // 2 // max(1, len(self._crowded))
        wanted = max(OVERFLOW_MIN, OVERFLOW_SHARES * self._share)
        return max(1, min(OVERFLOW_MAX, wanted, of_share // max(1, len(share.lanes))))

    def take(self, now_ms: float) -> Batch:
        """The batch that has gathered; the next one begins with what has waited in lanes."""
        # A single command is a crowd of one, whichever client sent it.
        crowd = 1 if len(self.commands) == 1 else self.crowd
        taken = Batch(self.commands, self.answers, self.questions, self._weight, crowd)
        self._now_ms = now_ms
        if self._others_came:
            self._others_came = False
            self._shared_until_ms = now_ms + ALONE_AFTER_MS
        if now_ms >= self._shared_until_ms:
            self._share = self._weight_max = ALONE_MAX
        else:
            self._share_out()
        self.commands, self.answers, self.questions, self._weight = [], [], [], 0
        self._batch += 1
        self._asking = 0
        if self._crowded:
            self._refill()
        return taken

    def _share_out(self) -> None:
        """Let each lane have its part of the budget, if as many are active as were last."""
        self._weight_max = int(self.budget)
        self._share = max(SHARE_MIN, int(self.budget / max(_SEVERAL, self._asking)))

    def _refill(self) -> None:
        """Give those that want more than their share turns, as far as the budget goes; the rest comes later."""
        crowded = self._crowded
        for _ in range(len(crowded)):
            if self._weight >= self._weight_max:
                return
            share = crowded.popleft()
            self._begin(share)
            self._admit(share)
            if share.lanes:
                crowded.append(share)

    def _admit(self, share: Share) -> None:
        """Let the lanes of a share have it, each some in its turn."""
        lanes = share.lanes
        while lanes and share.taken < self._share:
            lane = lanes.popleft()
            until = min(share.taken + SHARE_MIN, self._share) if lanes else self._share
            overflow = lane.overflow
            while overflow and share.taken < until:
                waiting = overflow.popleft()
                self.overflow -= 1
                share.taken += waiting.weight
                self._weight += waiting.weight
                if waiting.command is not None:
                    self.commands.append(waiting.command)
                    self.answers.append(waiting.reply)
                else:
                    self.questions.append((waiting.question, waiting.reply))
            if overflow:
                lanes.append(lane)
            if lane.is_full and len(overflow) <= self._overflow_max(share) // 2:
                lane.is_full = False
                if lane.on_room is not None:
                    lane.on_room()

    def put_back(
        self, commands: list[Command], answers: list[Callable[..., None]], questions: list[Asked]
    ) -> None:
        """Let what one entry could not take be the first of the next."""
        self.commands[:0], self.answers[:0], self.questions[:0] = commands, answers, questions

    def clear(self) -> tuple[list[Callable[..., None]], list[Callable[..., None]]]:
        """Drop all that waits; returns the callbacks of the commands, and those of the questions."""
        answers, replies = self.answers, [reply for _, reply in self.questions]
        lanes = [lane for share in self._crowded for lane in share.lanes]
        for share in self._crowded:
            share.lanes.clear()
        for lane in lanes:
            answers += [waiting.reply for waiting in lane.overflow if waiting.command is not None]
            replies += [waiting.reply for waiting in lane.overflow if waiting.command is None]
            lane.overflow.clear()
            lane.is_full = False
            if lane.on_room is not None:
                lane.on_room()
        self._crowded.clear()
        self.commands, self.answers, self.questions, self._weight, self.overflow = [], [], [], 0, 0
        return answers, replies

    def learn(self, weight: int, work_ms: float, append_ms: float) -> None:
        """The work for an entry of that weight took so long, and its append."""
        if weight >= WORTH_LEARNING and work_ms > 0:
            wanted_ms = min(max(append_ms / 2, WORK_MS_MIN), WORK_MS_MAX)
            fitting = min(max(wanted_ms * weight / work_ms, BUDGET_MIN), BUDGET_MAX)
            self.budget += _LEARN * (fitting - self.budget)
