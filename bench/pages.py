"""Large listings: pages of names, sessions and waiters, and what listing costs all others.

A page is what the listener makes of the state: the question, and the bytes of its reply. Names are put in order in
slices, as on a node; then pages are read from all over the list. What an index costs while it is kept is seen by
applying acquires and releases with one and without, by turns of milliseconds.
"""

import asyncio
import random
import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter

from bench.contest import Benchmark, Contest, Contestant
from bench.machine import BATCH, MANY, TURN, Load
from bench.musts import at_least, at_most, median
from bench.samples import Figures
from fencehold.core.commands import Acquire, Entry, OpenSession, SetLimits
from fencehold.core.limits import Limits
from fencehold.core.state import State
from fencehold.doors.resp import pages, replies
from fencehold.journal.codec import decode
from fencehold.node.names import Names

SESSIONS, WAITERS = 100_000, 10_000
_ITEMS = 100
_RESP3 = 3


class Pages(Contestant):
    """Pages of a hundred, from anywhere: of 500,000 names, 100,000 sessions, 10,000 waiters."""

    def __init__(self, pages: int, turns: int) -> None:
        super().__init__("pages of 100")
        self._pages, self._turns = pages, turns

    def setup(self) -> None:
        self._load, self._plain = Load(MANY), Load(MANY)
        _crowd(self._load)
        _crowd(self._plain)
        self._names = Names()

    async def round(self) -> Figures:
        self._names.drop()
        made_s = await _made(self._names, self._load.machine.state)
        figures = {
            "index_made_s": made_s,
            "names_us": self._median_us(self._of_names),
            "names_with_holds_us": self._median_us(partial(self._of_names, with_hold=True)),
            "sessions_us": self._median_us(self._of_sessions),
            "waiters_us": self._median_us(self._of_waiters),
        }
        with_index: list[float] = []
        without: list[float] = []
        for _ in range(self._turns):
            without.append(_turn(self._plain, None))
            with_index.append(_turn(self._load, self._names))
        figures["applied_beside_an_index"] = statistics.median(
            ours / plain for ours, plain in zip(with_index, without, strict=True)
        )
        return figures

    def _median_us(self, page: Callable[[State], object]) -> float:
        state, took_s = self._load.machine.state, []
        for _ in range(self._pages):
            started = perf_counter()
            replies.reply(page(state), _RESP3)
            took_s.append(perf_counter() - started)
        return statistics.median(took_s) * 1e6

    def _of_names(self, state: State, *, with_hold: bool = False) -> object:
        cursor = f"held:{random.randrange(MANY - _ITEMS):08}"
        return pages.names_page(self._names, "held:", cursor, _ITEMS, with_hold, _RESP3, "", state)

    def _of_sessions(self, state: State) -> object:
        return pages.sessions_page(bool, random.randrange(SESSIONS - _ITEMS), _ITEMS, _RESP3, "", state)

    def _of_waiters(self, state: State) -> object:
        ticket = random.randrange(1, WAITERS - _ITEMS)
        return pages.info_page("held:00000000", None, ticket, _ITEMS, _RESP3, "", state)


def _crowd(load: Load) -> None:
    """Sessions that hold nothing, and a queue."""
    machine = load.machine
    limits = Limits(waiters_per_name_max=WAITERS, sessions_max=2 * SESSIONS)
    machine.apply(machine.position + 1, Entry(0, (SetLimits(limits),)))
    idle = tuple(OpenSession(30_000, 1_000, meta='{"client":"idle"}') for _ in range(SESSIONS))
    machine.apply(machine.position + 1, Entry(0, idle))
    first = machine.state.session_last - SESSIONS + 1
    waits = (Acquire(first + turn, ("held:00000000",), 1, wait_ms=-1) for turn in range(WAITERS))
    machine.apply(machine.position + 1, Entry(0, tuple(waits)))


async def _made(names: Names, state: State) -> float:
    """Seconds until the names are in order, with nothing else to do."""
    ready = asyncio.Event()
    started = perf_counter()
    names.prepare(state, ready.set)
    await ready.wait()
    names.page(state, "", "", 1)
    return perf_counter() - started


def _turn(load: Load, names: Names | None) -> float:
    """Commands applied per second, over a turn of them; an index is updated, if there is one."""
    entries = [decode(data) for data in load.batches(BATCH * TURN)]
    machine = load.machine
    started = perf_counter()
    for entry in entries:
        applied = machine.apply(machine.position + 1, entry)
        if names is not None and names.index is not None:
            names.feed(entry, applied)
    return BATCH * TURN / (perf_counter() - started)


def build(quick: bool) -> Contest:
    """The contest."""
    pages = Pages(100 if quick else 500, 10 if quick else 40)
    return Contest(
        contestants=[pages],
        rounds=3 if quick else 7,
        musts=[
            at_most("a page of 100 names at 500,000", median(pages.name, "names_us"), 1_000, "µs"),
            at_most("a page of 100 sessions at 100,000", median(pages.name, "sessions_us"), 2_000, "µs"),
            at_most("a page of 100 waiters at 10,000", median(pages.name, "waiters_us"), 1_000, "µs"),
            at_least(
                "applied beside an index, times without", median(pages.name, "applied_beside_an_index"), 0.8, "×"
            ),
        ],
    )


BENCHMARK = Benchmark("pages", "looking on: pages at 500,000 names, and what an index costs", build)
