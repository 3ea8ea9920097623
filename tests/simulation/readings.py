"""Readings: what is asked without `STALE` must have been so at some moment between question and answer."""

from fencehold.core.machine import Machine
from tests.simulation.story import Violation
from tests.simulation.wire import Said


class Readings:
    """Follows a story, and looks for the moment each reading was true."""

    def __init__(self, said: list[Said]) -> None:
        readings = [each for each in said if _is_reading(each)]
        self._coming = sorted(readings, key=lambda each: each.heard_ns, reverse=True)
        self._open: list[Said] = []
        self.wrong: list[Said] = []
        self.count = len(readings)

    def before(self, at_ns: int, machine: Machine) -> None:
        """The next entry is durable at this time; until then it was as the machine says."""
        while self._coming and self._coming[-1].heard_ns < at_ns:
            reading = self._coming.pop()
            if not _is_true(reading, machine):
                self._open.append(reading)
        if self._open:
            self.wrong += [reading for reading in self._open if reading.at_ns < at_ns]
            self._open = [reading for reading in self._open if reading.at_ns >= at_ns]

    def after(self, machine: Machine) -> None:
        """The entry is applied."""
        if self._open:
            self._open = [reading for reading in self._open if not _is_true(reading, machine)]

    def end(self, machine: Machine) -> None:
        """No entry follows."""
        self.before(1 << 62, machine)

    def violation(self, reading: Said, sealed: bool) -> Violation:
        what = f"{reading.node} said {reading.reply!r}, which was not so since it was asked"
        return Violation("G10" if sealed else "G3", reading.at_ns, what)


def _is_reading(said: Said) -> bool:
    return bool(said.words) and said.words[0] == b"LOCK.INFO" and b"STALE" not in said.words and _has_holds(said)


def _has_holds(said: Said) -> bool:
    return isinstance(said.reply, dict) and b"holds" in said.reply


def _is_true(reading: Said, machine: Machine) -> bool:
    state, name = machine.state, reading.words[1].decode()
    holds = [hold.fence for hold in state.holders(name)]
    waiters = list(state.queues.get(name, ()))
    told = [hold[b"fence"] for hold in reading.reply[b"holds"]]
    return holds == told and waiters == [waiter[b"ticket"] for waiter in reading.reply[b"waiters"]]
