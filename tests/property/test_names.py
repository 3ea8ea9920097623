"""Pages of names while names come and go: whatever is there throughout is listed exactly once."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencehold.core.commands import (
    FOREVER,
    Acquire,
    AcquireAtLeast,
    Break,
    CloseSession,
    Command,
    Entry,
    Mode,
    OpenSession,
    Release,
)
from fencehold.core.machine import Machine
from fencehold.core.views import names_in_use
from fencehold.node import names as module
from fencehold.node.names import Names
from tests.property.test_machine_model import EXAMPLES, PROFILE

ODD = ["a", "b", "\x00", "\uffff", "\ud800", "\udfff", "\U0010ffff", "é"]
"""Characters at the edges of what text can be, lone surrogates among them."""
NAMES = st.text(st.sampled_from(ODD), min_size=1, max_size=3)
PREFIXES = st.text(st.sampled_from(ODD), max_size=2)
SESSIONS = 4


class Step(NamedTuple):
    """Something that happens to names between two pages."""

    kind: str
    session: int
    names: tuple[str, ...]


STEPS = st.builds(
    Step,
    st.sampled_from(
        ["acquire", "acquire", "share", "wait", "wait", "delay", "keep", "release", "break", "close", "tick"]
    ),
    st.integers(1, SESSIONS),
    st.lists(NAMES, min_size=1, max_size=4, unique=True).map(tuple),
)


class Told:
    """A machine that tells an index what it applied, and which names were in use throughout, or ever."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.names = Names()
        self._request = 0
        self._apply(*(OpenSession(600_000) for _ in range(SESSIONS)))
        self.throughout: set[str] = set()
        self.ever: set[str] = set()

    def begin(self) -> None:
        """From here on it is seen which names are in use."""
        self.throughout = set(names_in_use(self.machine.state))
        self.ever = set(self.throughout)

    def do(self, step: Step) -> None:
        self._apply(*self._commands(step), elapsed_ms=1_000 if step.kind == "tick" else 1)
        now = set(names_in_use(self.machine.state))
        self.throughout &= now
        self.ever |= now

    def _commands(self, step: Step) -> list[Command]:
        state = self.machine.state
        session = list(state.sessions)[step.session - 1]
        self._request += 1
        match step.kind:
            case "acquire":
                return [Acquire(session, step.names, wait_ms=0)]
            case "share":
                return [Acquire(session, step.names, wait_ms=0, mode=Mode.SHARED)]
            case "wait":
                return [Acquire(session, step.names, self._request, wait_ms=FOREVER)]
            case "delay":
                return [Acquire(session, step.names, wait_ms=0, ttl_ms=500, lock_delay_ms=2_000)]
            case "keep":
                return [AcquireAtLeast(session, step.names, wait_ms=0, at_least_ms=2_000)]
            case "release":
                holds = state.sessions[session].holds()[:2]
                return [Release(session, (hold.name,), hold.fence) for hold in holds]
            case "break":
                return [Break(name) for name in step.names]
            case "close":
                return [CloseSession(session), OpenSession(600_000)]
        return []

    def _apply(self, *commands: Command, elapsed_ms: int = 0) -> None:
        entry = Entry(elapsed_ms, commands)
        applied = self.machine.apply(self.machine.position + 1, entry)
        if self.names.index is not None:
            self.names.feed(entry, applied)


async def listed(told: Told, prefix: str, count: int, steps: Iterator[Step]) -> list[str]:
    """All pages, with something happening in every turn of the loop and between any two pages."""
    found: list[str] = []
    cursor = ""
    while True:
        ready = asyncio.Event()
        told.names.prepare(told.machine.state, ready.set)
        while not ready.is_set():
            if step := next(steps, None):
                told.do(step)
            await asyncio.sleep(0)
        page = told.names.page(told.machine.state, prefix, cursor, count)
        if page is None:
            continue
        assert len(page.names) <= count
        found += page.names
        cursor = page.cursor
        if not cursor:
            return found
        if step := next(steps, None):
            told.do(step)


@pytest.mark.parametrize("few_names", [2, 10_000])
def test_what_is_there_throughout_is_listed_exactly_once(monkeypatch: pytest.MonkeyPatch, few_names: int) -> None:
    """In order, and nothing that was never there: with odd characters, with an index that is made and dropped."""
    bounds = {"_BUCKET_MAX": 4, "LOOKED_MAX": 5, "_STALE_FEW": 1, "_STALE_MORE": 4}
    for bound, value in {**bounds, "FEW_NAMES": few_names, "SLICE_NAMES": 2, "_PAUSE_S": 0}.items():
        monkeypatch.setattr(module, bound, value)

    @settings(PROFILE, max_examples=(EXAMPLES + 1) // 2)
    @given(
        st.lists(STEPS, max_size=20), st.lists(STEPS, max_size=60), PREFIXES, st.integers(1, 4), st.integers(1, 3)
    )
    def check(before: list[Step], during: list[Step], prefix: str, count: int, times: int) -> None:
        told = Told()
        for step in before:
            told.do(step)
        steps = iter(during)
        for _ in range(times):
            told.begin()
            found = asyncio.run(listed(told, prefix, count, steps))
            assert found == sorted(set(found))
            assert {name for name in told.throughout if name.startswith(prefix)} <= set(found)
            assert set(found) <= {name for name in told.ever if name.startswith(prefix)}

    check()
