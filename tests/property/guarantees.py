"""The guarantees, each as a function that fails when it is broken.

`History` is what the world was told: it follows the answers and notices of every entry in order, and judges them
by themselves, without the model. What the state must be like after an entry is checked by functions that scan it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from fencehold.core import commands as c
from fencehold.core import outcomes as o
from fencehold.core.events import Event, Kind, events_of
from fencehold.core.machine import Machine
from fencehold.core.policy import Policy, Verb
from fencehold.core.state import Hold, State
from fencehold.core.views import view_name
from fencehold.placement.slots import slot_of
from tests.property.model import may, with_change
from tests.property.tables import TABLES, entered

UNCLEAN = (o.Ending.EXPIRED, o.Ending.BROKEN)


@dataclass
class Wait:
    """A request that was told to wait."""

    session: int
    request: int
    names: tuple[str, ...]
    at_least_ms: int


@dataclass
class Least:
    """A grant of a name that is to be granted to nobody else before an instant."""

    granted: o.Granted
    until_at: int


@dataclass
class History:
    """Everything that was told, to anyone."""

    lapsed_max: int
    fence_last: int = 0
    alive: dict[int, int] = field(default_factory=dict)
    """Sessions, and the fence counter when each began."""
    ended: set[int] = field(default_factory=set)
    having: dict[tuple[str, int], int] = field(default_factory=dict)
    """Sessions by the name and fence they were told they hold."""
    lost: dict[tuple[str, int], tuple[int, o.Ending]] = field(default_factory=dict)
    """How holds ended, in that order, and whose they were."""
    waiting: dict[int, Wait] = field(default_factory=dict)
    """By ticket."""
    least: dict[str, Least] = field(default_factory=dict)
    """By name."""
    granted: set[tuple[int, int]] = field(default_factory=set)
    """Session and request of all that were granted."""
    answers: dict[tuple[int, int], o.Outcome] = field(default_factory=dict)
    """The one final answer of each request, by session and request."""
    withdrawn: set[tuple[int, int]] = field(default_factory=set)
    acknowledged: dict[int, int] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    whose: dict[int, str] = field(default_factory=dict)
    """The principal of every session there ever was."""

    def follow(self, entry: c.Entry, applied: o.Applied) -> None:
        """Take in what an entry did: first by time, then by each command, the cause before what it caused."""
        self._notices(applied, -1)
        for index, (command, outcome) in enumerate(zip(entry.commands, applied.outcomes, strict=True)):
            if isinstance(command, c.Request) and not isinstance(outcome, o.NoSession):
                self._request(command, outcome, index in applied.repeated)
            else:
                self._outcome(command, outcome)
            self._notices(applied, index)

    def _notices(self, applied: o.Applied, index: int) -> None:
        for notice in (notice for cause, notice in applied.notices if cause == index):
            match notice:
                case o.WaitEnded():
                    self._wait_ended(notice)
                case o.HoldEnded():
                    self._hold_ended(notice.name, notice.fence, notice.session, notice.ending)
                case o.SessionEnded():
                    self._session_ended(notice)

    def _request(self, command: c.Request, outcome: o.Outcome, is_repeated: bool) -> None:
        if command.request:
            known = self.acknowledged.get(command.session, 0)
            self.acknowledged[command.session] = max(known, command.answered)
        if is_repeated:
            g9_repeating_gives_the_same(self, command, outcome)
            return
        if isinstance(command, c.Release | c.Extend):
            g5_only_the_owner_releases(self, command, outcome)
        if isinstance(command, c.Release) and isinstance(outcome, o.Released):
            for name in dict.fromkeys(command.names):
                if name not in outcome.refused:
                    self._hold_ended(name, command.fence, command.session, o.Ending.RELEASED)
        if isinstance(outcome, o.Queued) and isinstance(command, c.Acquire):
            assert outcome.ticket > max(self.waiting, default=0), "G4: a newcomer stands behind everyone"
            self.waiting[outcome.ticket] = Wait(
                command.session, command.request, command.names, _at_least_ms(command)
            )
            return
        if isinstance(outcome, o.Granted):
            self._granted(outcome, ticket=None, at_least_ms=_at_least_ms(command))
        g9_a_request_ends_once(self, (command.session, command.request), outcome)

    def _outcome(self, command: c.Command, outcome: o.Outcome) -> None:
        match command, outcome:
            case _, o.Opened():
                g6_a_session_begins_once(self, outcome)
                self.alive[outcome.session] = self.fence_last
                self.whose[outcome.session] = getattr(command, "principal", "")
            case c.Cancel(), o.Cancelled():
                self.withdrawn.add((command.session, command.request))
                self._end_least(lambda it: (it.session, it.request) == (command.session, command.request))
            case c.Break(), o.Broken():
                g1_fences_grow(self, outcome.fence)
                fence_max = command.fence or outcome.fence
                self._end_least(lambda it: command.name in it.names and it.fence <= fence_max, command.name)
            case c.ChangePolicy(), o.PolicyChanged():
                self.policy = with_change(self.policy, command.change)
            case c.FollowPolicy(), o.PolicyChanged() if outcome.revision == command.policy.revision:
                self.policy = command.policy
            case c.RaiseFence(), o.FenceRaised():
                g1_a_raised_fence_is_above_all(self, command.at_least, outcome)
            case c.OpenSlots(), o.SlotsOpened():
                g1_a_raised_fence_is_above_all(self, command.fence, outcome)
            case c.ForceSlots(), o.SlotsForced() if outcome.holds:
                # One fence for all that were broken; no outcome tells it.
                self.fence_last += 1

    def _end_least(self, is_ended: Callable[[o.Granted], bool], only: str = "") -> None:
        for name in [name for name, least in self.least.items() if is_ended(least.granted)]:
            if only in ("", name):
                del self.least[name]

    def _granted(self, granted: o.Granted, ticket: int | None, at_least_ms: int) -> None:
        g1_fences_grow(self, granted.fence)
        g2_a_kept_name_is_nobodys(self, granted)
        g4_nobody_is_granted_past_a_waiter(self, granted, ticket)
        g6_only_the_living_are_granted(self, granted)
        g13_nothing_is_granted_that_is_forbidden(self, granted)
        self.granted.add((granted.session, granted.request))
        for name in granted.names:
            self.having[name, granted.fence] = granted.session
            self.least[name] = Least(granted, granted.at_ms + at_least_ms)

    def _wait_ended(self, notice: o.WaitEnded) -> None:
        if isinstance(notice.answer, o.Granted):
            g6_only_the_living_are_granted(self, notice.answer)
        g9_a_wait_ends_once(self, notice)
        wait = self.waiting.pop(notice.ticket)
        if isinstance(notice.answer, o.Granted):
            self._granted(notice.answer, notice.ticket, wait.at_least_ms)
        g9_a_request_ends_once(self, (notice.session, notice.request), notice.answer)

    def _hold_ended(self, name: str, fence: int, session: int, ending: o.Ending) -> None:
        assert self.having.pop((name, fence), None) == session, "a hold ends once, and is had until then"
        self.lost[name, fence] = (session, ending)

    def _session_ended(self, notice: o.SessionEnded) -> None:
        g6_a_session_dies_whole(self, notice)
        for ticket in notice.tickets:
            del self.waiting[ticket]
        for name, fence in notice.holds:
            self._hold_ended(name, fence, notice.session, notice.ending)
        del self.alive[notice.session]
        self.ended.add(notice.session)


def _at_least_ms(command: c.Command) -> int:
    return command.at_least_ms if isinstance(command, c.AcquireAtLeast) else 0


# What was told


def g1_fences_grow(history: History, fence: int) -> None:
    """G1: each fence given away is greater than all before it, on any name."""
    assert fence > history.fence_last, f"G1: fence {fence} after {history.fence_last}"
    history.fence_last = fence


def g1_a_raised_fence_is_above_all(history: History, at_least: int, raised: o.FenceRaised | o.SlotsOpened) -> None:
    """G1: raising the fence never lowers it; whatever follows is above what was asked for."""
    assert raised.fence >= history.fence_last, f"G1: {raised} after {history.fence_last}"
    assert raised.fence >= at_least, f"G1: {raised} for at least {at_least}"
    history.fence_last = raised.fence


def g2_a_kept_name_is_nobodys(history: History, granted: o.Granted) -> None:
    """G2: a name asked for with a least time is granted to nobody else before that has passed."""
    for name in granted.names:
        least = history.least.get(name)
        assert least is None or least.until_at <= granted.at_ms, f"G2: {granted} within {least}"


def g4_nobody_is_granted_past_a_waiter(history: History, granted: o.Granted, ticket: int | None) -> None:
    """G4: when a name is granted, nobody who came earlier still waits for it."""
    for earlier, wait in history.waiting.items():
        if ticket is None or earlier < ticket:
            assert not set(wait.names) & set(granted.names), f"G4: {granted} overtook ticket {earlier}"


def g5_only_the_owner_releases(history: History, command: c.Release | c.Extend, outcome: o.Outcome) -> None:
    """G5: a release or extension works exactly on what its session has; any other is told why, truthfully."""
    if isinstance(outcome, o.Refused):
        return
    assert isinstance(outcome, o.Released | o.Extended)
    key = (command.session, command.fence)
    strange = [
        name
        for name in dict.fromkeys(command.names)
        if history.having.get((name, command.fence)) != command.session
    ]
    assert (outcome.reason is o.Reason.OK) == (not strange), f"G5: {outcome} though {key} lacks {strange}"
    if isinstance(outcome, o.Released):
        assert list(outcome.refused) == strange, f"G5: {outcome} though {key} lacks {strange}"
    if strange:
        reasons = _true_reasons(history, command.session, strange[0], command.fence)
        assert outcome.reason in reasons, f"G5: {outcome} is not one of {reasons}"


def _true_reasons(history: History, session: int, name: str, fence: int) -> set[o.Reason]:
    """What may be said of a hold that a session does not have, by one who knows everything."""
    if (name, fence) in history.having or not 0 < fence <= history.fence_last:
        return {o.Reason.NOT_OWNER}
    owner, ending = history.lost.get((name, fence), (0, o.Ending.RELEASED))
    if owner != session:
        # Never this session's. Only its own are remembered, so of a fence given away in its time it is said, for
        # want of a better word, to be gone already; an earlier one was certainly somebody else's.
        return {o.Reason.NOT_OWNER if fence <= history.alive[session] else o.Reason.ALREADY_RELEASED}
    if ending not in UNCLEAN:
        return {o.Reason.ALREADY_RELEASED}
    taken = [key for key, (whose, how) in history.lost.items() if whose == session and how in UNCLEAN]
    is_recent = (name, fence) in taken[-history.lapsed_max :]
    return {o.Reason.EXPIRED if is_recent else o.Reason.ALREADY_RELEASED}


def g6_a_session_begins_once(history: History, opened: o.Opened) -> None:
    """G6: the id of a session that ended is never given again."""
    assert opened.session not in history.ended, f"G6: {opened} was given before"
    assert opened.session not in history.alive, f"G6: {opened} was given before"


def g6_only_the_living_are_granted(history: History, granted: o.Granted) -> None:
    """G6: nothing is ever granted to a session that has ended."""
    assert granted.session in history.alive, f"G6: {granted} though the session has ended"


def g13_nothing_is_granted_that_is_forbidden(history: History, granted: o.Granted) -> None:
    """G13: the policy at the position of a grant allows its principal every one of its names."""
    principal = history.whose[granted.session]
    forbidden = [name for name in granted.names if not may(history.policy, principal, Verb.ACQUIRE, name)]
    assert not forbidden, f"G13: {granted} though {principal!r} may not acquire {forbidden}"


def g6_a_session_dies_whole(history: History, notice: o.SessionEnded) -> None:
    """G6: its end frees all it was told it held, and withdraws all it waited for, at once."""
    had = {key for key, session in history.having.items() if session == notice.session}
    tickets = {ticket for ticket, wait in history.waiting.items() if wait.session == notice.session}
    assert notice.session in history.alive, f"G6: {notice} ended twice, or never was"
    assert set(notice.holds) == had, f"G6: {notice} held {had}"
    assert set(notice.tickets) == tickets, f"G6: {notice} waited with {tickets}"


def g9_a_wait_ends_once(history: History, notice: o.WaitEnded) -> None:
    """G9: an answer that comes by notice is of a request that was waiting until then."""
    wait = history.waiting.get(notice.ticket)
    assert wait is not None, f"G9: {notice} does not wait"
    assert (wait.session, wait.request) == (notice.session, notice.request), f"G9: {notice} is not {wait}"


def g9_a_request_ends_once(history: History, key: tuple[int, int], answer: o.Outcome) -> None:
    """G9: a request with an id has exactly one final answer; one that was withdrawn has no other."""
    if not key[1] or _is_for_want_of_memory(answer):
        return
    assert key not in history.answers, f"G9: {key} ended twice, with {answer}"
    is_withdrawn = key in history.withdrawn
    assert not is_withdrawn or answer == o.Cancelled(key[1]), f"G9: {key} was withdrawn, and has {answer}"
    history.answers[key] = answer


def _is_for_want_of_memory(answer: o.Outcome) -> bool:
    """No final answer: the request was not taken up, and may be repeated once there is room to remember it."""
    return isinstance(answer, o.Refused) and answer.detail.endswith("say which have arrived")


def g9_repeating_gives_the_same(history: History, command: c.Request, outcome: o.Outcome) -> None:
    """G9: a repeated request still waits, has its first answer, is cancelled, or was acknowledged before."""
    key = (command.session, command.request)
    if isinstance(outcome, o.Queued):
        wait = history.waiting.get(outcome.ticket)
        assert wait is not None, f"G9: {key} is told of ticket {outcome.ticket}, which does not wait"
        assert (wait.session, wait.request) == key, f"G9: {key} is told of the ticket of {wait}"
        return
    is_refused = isinstance(outcome, o.Refused) and command.request <= history.acknowledged[command.session]
    is_withdrawn = outcome == o.Cancelled(command.request) and key in history.withdrawn
    is_same = key in history.answers and outcome == history.answers[key]
    assert is_same or is_withdrawn or is_refused, (
        f"G9: {key} is answered {outcome}, not {history.answers.get(key)}"
    )


def events_tell_the_story(having: set[tuple[str, int]], entry: c.Entry, applied: o.Applied) -> None:
    """Whoever follows the events alone knows who holds what: `having`, which is brought up to date."""
    endings = (Kind.RELEASED, Kind.EXPIRED, Kind.BROKEN, Kind.REVOKED)
    for event in events_of(entry, applied):
        assert isinstance(event, Event)
        keys = {(name, event.fence) for name in event.names}
        if event.kind is Kind.ACQUIRED:
            having |= keys
        elif event.kind in endings:
            assert keys <= having, f"{event} of what nobody had"
            having -= keys


# What there is


def _holds(state: State) -> list[Hold]:
    """Every hold, by way of the sessions."""
    return [hold for session in state.sessions.values() for hold in session.holds()]


def g2_exclusive_is_exclusive(state: State) -> None:
    """G2: a name has one exclusive hold, or shared holds only, or at most its limit of permits."""
    names: dict[str, list[Hold]] = {}
    for hold in _holds(state):
        names.setdefault(hold.name, []).append(hold)
    for name, holds in names.items():
        modes = {hold.mode for hold in holds}
        assert len(modes) == 1, f"G2: {name} is held in {modes}"
        assert len(holds) == 1 or c.Mode.EXCLUSIVE not in modes, f"G2: {name} has {holds}"
        if c.Mode.PERMIT in modes:
            assert {hold.limit for hold in holds} == {holds[0].limit}, f"G2: {name} has {holds}"
            assert len(holds) <= holds[0].limit, f"G2: {name} has {holds}"


def g4_nobody_waits_in_vain(state: State) -> None:
    """G4: whoever is first in all its queues waits only for names that are held, delayed, kept or arriving."""
    for waiter in state.waiters.values():
        is_first = all(view_name(state, name).waiters[0] == waiter for name in waiter.ask.names)
        is_free = all(
            state.admits(name, waiter.ask.mode) and slot_of(name) not in state.arriving
            for name in waiter.ask.names
        )
        assert not (is_first and is_free), f"G4: {waiter} waits for what is free"


def g5_what_is_told_is_what_is(state: State, history: History) -> None:
    """G5: each session has exactly the holds it was told it has, with the fences it was told."""
    had = {(hold.name, hold.fence): hold.session for hold in _holds(state)}
    assert had == history.having, f"G5: {had} are had, {history.having} are known"


def g6_nothing_refers_to_an_ended_session(state: State, history: History) -> None:
    """G6: an ended session is in no table."""
    mentioned = {*state.sessions, *state.sessions_until, *(key for _, key in entered(state.sessions_due))}
    mentioned |= {hold.session for hold in state.held.values()}
    mentioned |= {hold.session for crowd in state.crowds.values() for hold in crowd.holds.values()}
    mentioned |= {waiter.ask.session for waiter in state.waiters.values()}
    mentioned |= {waiter.ask.session for queue in state.queues.values() for waiter in queue.values()}
    mentioned |= {session for session, _ in state.waiting}
    assert mentioned == set(history.alive), f"G6: {mentioned} are mentioned, {set(history.alive)} are alive"


def g8_a_waiter_holds_nothing(state: State, history: History) -> None:
    """G8: who waits was granted nothing yet, and stands in the queue of every name it asked for."""
    for ticket, waiter in state.waiters.items():
        ask = waiter.ask
        assert not ask.request or (ask.session, ask.request) not in history.granted, f"G8: {waiter} has something"
        assert all(ticket in state.queues[name] for name in ask.names), f"G8: {waiter} is not in all its queues"


def g8_granted_whole(state: State, applied: o.Applied, history: History) -> None:
    """G8: what an entry granted is held on all its names with one fence, unless it ended within the entry."""
    told = [notice.answer for _, notice in applied.notices if isinstance(notice, o.WaitEnded)]
    fresh = (outcome for index, outcome in enumerate(applied.outcomes) if index not in applied.repeated)
    for granted in (answer for answer in (*told, *fresh) if isinstance(answer, o.Granted)):
        for name in granted.names:
            hold = state.find(name, granted.fence)
            is_held = hold is not None and hold.session == granted.session and hold.since_at == granted.at_ms
            assert is_held or (name, granted.fence) in history.lost, f"G8: {granted} lacks {name}"


def g9_who_waits_was_told_so(state: State, history: History) -> None:
    """G9: those who wait are those who were told to and have had no answer since."""
    waiting = set(state.waiters)
    assert waiting == set(history.waiting), f"G9: {waiting} wait, {set(history.waiting)} were told to"


def g9_no_wait_outlasts_its_time(state: State) -> None:
    """G9: every request ends: none waits beyond its time."""
    for waiter in state.waiters.values():
        assert waiter.until_at == 0 or waiter.until_at > state.now_at, f"G9: {waiter} waits at {state.now_at}"


def g12_same_entries_same_bytes(machine: Machine, replica: Machine, applied: o.Applied, other: o.Applied) -> None:
    """G12: a replica fed the same entries says the same, and its snapshot has the same bytes."""
    assert applied == other, f"G12: {applied} here, {other} there"
    assert machine.state_hash() == replica.state_hash(), "G12: the replicas have different hashes"


def g9_every_request_has_ended(state: State, history: History) -> None:
    """G9: when all sessions have ended, no request is without an end."""
    assert not history.waiting
    assert not state.waiters


def g11_nothing_is_left(state: State) -> None:
    """G11: when nothing is held, awaited, delayed, kept or alive, every table is empty."""
    # The newest anchor stays: it says which time of day it is now.
    assert len(state.anchors) <= 1
    # Where slots are is no matter of names: there are so many, and no more.
    beside = {"outcomes", "notices", "repeated", "leader", "leader_address", "anchors"}
    beside |= {"slots", "draining", "arriving"}
    for table in sorted(TABLES - beside):
        content = getattr(state, table)
        if hasattr(content, "__len__"):
            assert len(content) == 0, f"G11: {table} still has {content}"
