"""Leaps: much time passes at a node at once, while its connected clients keep their sessions.

The machine is given the entries that a leader would have made had every client sent its keep-alives: one for each
ttl, which renews all sessions that are connected. They are in the journal like any others, so a restart finds the
same state. Nothing else may happen in a leap: it ends before the next hold, wait, delay or disconnected session
does.
"""

from collections.abc import Iterable
from contextlib import suppress
from math import inf

from fencehold.core.commands import Entry, Renew
from fencehold.core.state import State
from fencehold.journal.codec import encode
from fencehold.node.node import Node
from fencehold.types import Position

_ENTRIES_MAX = 400
"""Entries of one leap, during which nothing else runs: some milliseconds."""


def quiet_for(node: Node) -> float:
    """Seconds for which a node can leap; 0 if it does not lead."""
    if not node.leads:
        return 0.0
    state, routes = node.replica.machine.state, node.routes
    left = [at for session, at in state.sessions_until.items() if not routes.is_attached(session)]
    return max(0.0, min(due_in(state, left) - 0.001, _step_ms(state) * _ENTRIES_MAX / 1000))


def due_in(state: State, sessions_until: Iterable[int]) -> float:
    """Seconds until something ends: a hold, a wait, a delay, a least time, or one of these sessions."""
    holds = (hold for session in state.sessions.values() for hold in session.holds())
    ends = [hold.until_at for hold in holds] + [waiter.until_at for waiter in state.waiters.values()]
    ends += [*sessions_until, *state.delays.values(), *(kept.until_at for kept in state.kept.values())]
    return min((at - state.now_at for at in ends if at), default=inf) / 1000


def leap(node: Node, elapsed_ms: int) -> None:
    """Let time pass for a leader."""
    state, routes = node.replica.machine.state, node.routes
    renewal = Renew(tuple(session for session in state.sessions if routes.is_attached(session)))
    step_ms = _step_ms(state)
    _feed(node, Entry(0, (renewal,)))
    while elapsed_ms > 0:
        passing_ms = int(min(elapsed_ms, step_ms))
        _feed(node, Entry(passing_ms, (renewal,)))
        elapsed_ms -= passing_ms


def _feed(node: Node, entry: Entry) -> None:
    machine = node.replica.machine
    position = Position(machine.position + 1)
    machine.apply(position, entry)
    # The memory engine's append is one step of the loop, so this is all of it.
    with suppress(StopIteration):
        node.journal.append(encode(entry), epoch=node.epoch, position=position).__await__().__next__()
    node.position = position


def _step_ms(state: State) -> float:
    """How often all sessions are renewed."""
    return min((session.ttl_ms for session in state.sessions.values()), default=inf) * 0.9
