"""Circles of waiting owners: each that is certain is refused, with the shortest that there is, and nothing else.

The conversations (`test_machine_model`) meet long circles but rarely. Here each session has a name to begin with,
or all permits of one, and they only ask and never give back. That leads to circles soon: of holds and of places in
queues, through readers, semaphores and several names at once.
"""

from itertools import combinations, pairwise, product
from typing import TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fencehold.core import commands as c
from fencehold.core import deadlock
from fencehold.core import outcomes as o
from fencehold.core.machine import Machine
from fencehold.core.state import State
from tests.property import forward_search
from tests.property.conversation import ANCHORS_MAX, KEPT_MAX, LAPSED_MAX
from tests.property.model import Model, agrees
from tests.property.test_machine_model import EXAMPLES, PROFILE

NAMES = "abcdefg"
SESSIONS = 5
START = c.Entry(
    0,
    (
        *(c.OpenSession(60_000) for _ in range(SESSIONS)),
        *(c.Acquire(session, (name,), owner="t") for session, name in enumerate("abc", start=1)),
        # One has both permits of a semaphore, one the only permit; of two more some are free.
        *(c.Acquire(4, ("d",), owner="t", mode=c.Mode.PERMIT, limit=2) for _ in "12"),
        c.Acquire(5, ("e",), owner="t", mode=c.Mode.PERMIT, limit=1),
    ),
)
LIMITS = {"e": 1, "f": 3}
modes = st.sampled_from((c.Mode.EXCLUSIVE, c.Mode.EXCLUSIVE, c.Mode.EXCLUSIVE, c.Mode.SHARED, c.Mode.PERMIT))
names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True).map(tuple)
owners = st.sampled_from(("t", "t", "t", "t", "u", ""))


@st.composite
def asks(draw: st.DrawFn) -> c.Acquire:
    """Someone asks for one name or two, and would wait for ever."""
    mode = draw(modes)
    wanted = draw(names)[: 1 if mode is c.Mode.PERMIT else 2]
    limit = LIMITS.get(wanted[0], 2) if mode is c.Mode.PERMIT else 0
    return c.Acquire(draw(st.integers(1, SESSIONS)), wanted, owner=draw(owners), mode=mode, limit=limit)


@settings(PROFILE, max_examples=(EXAMPLES + 1) // 2)
@given(st.lists(asks(), min_size=4, max_size=30))
def test_a_request_is_refused_when_it_would_close_a_circle_and_only_then(requests: list[c.Acquire]) -> None:
    """The machine and the model agree on every deadlock, and each circle told is a true one, link by link."""
    machine = Machine()
    model = Model(machine.state.limits, LAPSED_MAX, KEPT_MAX, ANCHORS_MAX)
    machine.apply(1, START)
    model.apply(START)
    for position, ask in enumerate(requests, start=2):
        entry = c.Entry(1, (ask,))
        (told,), (right,) = machine.apply(position, entry).outcomes, model.apply(entry)
        assert agrees(told, right), f"{ask} is told {told}, not {right}"
        if isinstance(told, o.Deadlock):
            assert len({(link.session, link.owner) for link in told.circle}) == len(told.circle), "nobody twice"


Step: TypeAlias = c.Acquire | tuple[str, int]
"""Somebody asks; or one of those who hold, wait or live, by number, does something else."""
others = st.tuples(st.sampled_from(("release", "cancel", "extend", "break", "close")), st.integers(0, 99))
steps = st.lists(st.one_of(asks(), asks(), asks(), asks(), others), min_size=4, max_size=40)

FURTHER_UP_A_QUEUE: list[Step] = [
    *[c.Acquire(5, ("h",))] * 20,
    c.Acquire(2, ("a", "f"), owner="t"),
    c.Acquire(3, ("f", "g"), owner="t"),
    c.Acquire(4, ("g", "h"), owner="t"),
    c.Acquire(5, ("a", "g"), owner="t"),
    c.Acquire(1, ("h",), owner="t"),
]
"""Backward, the queue of `g` is met at its end first, and further up later, where the circle goes through.
Forward, there are so many in the way that this does not come first."""
A_WRITER_AMONG_READERS: list[Step] = [
    c.Acquire(2, ("g",), owner="t", mode=c.Mode.SHARED),
    c.Acquire(4, ("g",), owner="t"),
    c.Acquire(5, ("g",), owner="t", mode=c.Mode.SHARED),
    *[c.Acquire(1, ("c",))] * 20,
    c.Acquire(2, ("c",), owner="t"),
    c.Acquire(3, ("g",), owner="t", mode=c.Mode.SHARED),
]
"""Two wait for the same name, and only one of them for who shares it now. Backward, there are many in the way."""
EITHER_OF_TWO_READERS: list[Step] = [
    c.Acquire(2, ("g",), owner="t", mode=c.Mode.SHARED),
    c.Acquire(1, ("g",), owner="t", mode=c.Mode.SHARED),
    c.Acquire(1, ("c",), owner="t"),
    c.Acquire(2, ("c",), owner="t"),
    c.Acquire(3, ("g",), owner="t"),
]
"""Two circles of the same length, through readers whose fences and sessions are in opposite orders."""


def command(state: State, step: Step, request: int) -> c.Command | None:
    """The command that a step stands for now; None if there is nobody to take it."""
    if isinstance(step, c.Acquire):
        return replace(step, request=request)
    verb, number = step
    if verb == "cancel":
        waiters = list(state.waiters.values())
        ask = waiters[number % len(waiters)].ask if waiters else None
        return None if ask is None else c.Cancel(ask.session, ask.request)
    if verb == "close":
        return c.CloseSession(number % SESSIONS + 1) if number % 7 == 0 else None
    holds = [hold for session in state.sessions.values() for hold in session.holds()]
    if not holds:
        return None
    hold = holds[number % len(holds)]
    if verb == "break":
        return c.Break(hold.name)
    if verb == "extend":
        return c.Extend(hold.session, (hold.name,), hold.fence, number * 100)
    return c.Release(hold.session, (hold.name,), hold.fence)


def probes(state: State) -> list[c.Acquire]:
    """What anybody might ask next: any name, any two of them, in any mode."""
    single = [(name,) for name in NAMES]
    asked = [*product((c.Mode.EXCLUSIVE, c.Mode.SHARED), (*single, *combinations(NAMES, 2)))]
    asked += [(c.Mode.PERMIT, names) for names in single]
    return [
        c.Acquire(session, names, owner="t", mode=mode, limit=mode is c.Mode.PERMIT and LIMITS.get(names[0], 2))
        for session in state.sessions
        for mode, names in asked
    ]


def check_search(machine: Machine, asked: list[c.Acquire]) -> None:
    """Both ways find what the one way finds, and a restored machine tells the same circle."""
    state, restored = machine.state, Machine.restore(b"".join(machine.snapshot())).state
    for ask in asked:
        found, right = deadlock.find_circle(state, ask), forward_search.find_circle(state, ask)
        assert len(found) == len(right), f"{ask} would close {found}, not {right}"
        assert found == deadlock.find_circle(restored, ask), "a restored machine tells another circle"
        owners = [(link.session, link.owner) for link in found]
        for (owner, following), link in zip(pairwise([*owners, *owners[:1]]), found, strict=True):
            assert (following, link) in list(forward_search.edges_from(state, owner, ask)), f"{link} is not true"
    assert restored.blocking == state.blocking


def converse(taken: list[Step]) -> None:
    machine = Machine()
    machine.apply(1, START)
    for request, step in enumerate(taken, start=1):
        if isinstance(step, c.Acquire) and step.session in machine.state.sessions:
            check_search(machine, [step])
        told = command(machine.state, step, request)
        machine.apply(machine.position + 1, c.Entry(1, () if told is None else (told,)))
    check_search(machine, probes(machine.state))


@settings(PROFILE, max_examples=(EXAMPLES + 3) // 4)
@example(FURTHER_UP_A_QUEUE)
@example(A_WRITER_AMONG_READERS)
@example(EITHER_OF_TWO_READERS)
@given(steps)
def test_the_search_from_both_ends_finds_what_a_search_from_one_end_finds(taken: list[Step]) -> None:
    """No circle more, none less, none longer; whatever was released, withdrawn, broken or restored before."""
    converse(taken)
