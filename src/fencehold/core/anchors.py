"""Anchors: which time of day it was at an instant of logical time, for people to read. Nothing is decided by it.

Logical time counts what entries say has elapsed. It stands still while there is no leader; a wall clock does not.
So now and then an entry also says which time of day it is at the leader: when it takes the lead, and when the two
have drifted apart. That is an *anchor*: what happens after it, until the next, happened at its logical time plus
the anchor's offset.

1. The machine takes what the entry says. A time of day may jump, forwards and back; anchors need not be in its
   order.
2. Which anchor was the newest when something happened follows from numbers that only grow (sessions, tickets,
   fences), not by logical time: a leader may take over within the same millisecond.
3. What happened before the first anchor has no time of day: not known is an answer.
4. Anchors follow what is alive: those from before the oldest session, and the oldest name that is kept, are
   dropped; so are, beyond `ANCHORS_MAX`, the oldest: what is older then has no time of day any more.
"""

from bisect import bisect_left
from operator import attrgetter

from fencehold.core.state import Anchor, Hold, Kept, Session, State, Waiter

ANCHORS_MAX = 512
"""Changes of leaders, pauses and clocks that were set, within the life of the oldest session."""

DRIFT_MS_MAX = 1_000
"""By how much the time of day that is shown may be wrong before a leader drops another anchor."""

_SESSION, _TICKET, _FENCE = attrgetter("session"), attrgetter("ticket"), attrgetter("fence")


def drop_anchor(state: State, unix_ms: int) -> None:
    """Tie logical time, as it is now, to the time of day; forget the anchors that nothing needs any more."""
    anchors = state.anchors
    anchors.append(Anchor(unix_ms - state.now_at, state.session_last, state.ticket, state.fence))
    del anchors[: max(_needed_from(state) - 1, 0)]
    del anchors[:-ANCHORS_MAX]


def _needed_from(state: State) -> int:
    """How many anchors came before all that is alive: the last of them is needed, those before it are not."""
    oldest = next(iter(state.sessions), state.session_last + 1)
    # A name that is kept may outlive its session.
    kept = next(iter(state.kept.values()), None)
    before = bisect_left(state.anchors, oldest, key=_SESSION)
    return before if kept is None else min(before, bisect_left(state.anchors, kept.fence, key=_FENCE))


def will_drift(state: State, elapsed_ms: int, unix_ms: int) -> bool:
    """Whether an entry that says so much has elapsed, at this time of day, would find the newest anchor wrong."""
    now_at = state.now_at + min(elapsed_ms, state.limits.elapsed_ms_max)
    return not state.anchors or abs(state.anchors[-1].offset_ms + now_at - unix_ms) > DRIFT_MS_MAX


def unix_ms_now(state: State) -> int | None:
    """The time of day as of the last entry; None: not known."""
    return state.now_at + state.anchors[-1].offset_ms if state.anchors else None


def opened_unix_ms(state: State, session: Session) -> int | None:
    """The time of day at which a session was opened."""
    return _told(state, bisect_left(state.anchors, session.id, key=_SESSION), session.opened_at)


def granted_unix_ms(state: State, hold: Hold | Kept) -> int | None:
    """The time of day at which a hold, or what a name is kept for, was granted."""
    return _told(state, bisect_left(state.anchors, hold.fence, key=_FENCE), hold.since_at)


def queued_unix_ms(state: State, waiter: Waiter) -> int | None:
    """The time of day at which a waiter joined its queue."""
    return _told(state, bisect_left(state.anchors, waiter.ticket, key=_TICKET), waiter.since_at)


def _told(state: State, count: int, instant_at: int) -> int | None:
    """By the last of so many anchors, which came before it."""
    return instant_at + state.anchors[count - 1].offset_ms if count else None
