"""Circles of waiting owners: each that is certain is refused, with the shortest that there is, and nothing else.

The conversations (`test_machine_model`) meet long circles but rarely. Here each session has a name to begin with,
or all permits of one, and they only ask and never give back. That leads to circles soon: of holds and of places in
queues, through readers, semaphores and several names at once.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from fencehold.core import commands as c
from fencehold.core import outcomes as o
from fencehold.core.machine import Machine
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
