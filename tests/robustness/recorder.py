"""The recorder: what nodes, members, clients and the machine were like, so that what went wrong can be explained.

1. Each source is asked by a thread of its own, every so often: one that hangs keeps no other waiting. What it says
   is written down when it is another thing than before; so is an answer that took long.
2. Only the last minutes are kept: whoever finds something writes down what was around it, at once.
3. *Was it the machine?* A thread that sleeps for a moment, time and again, sees how much later than it should it
   goes on. So long has nobody been let run, if it is that much in a gap, the gap may be the machine's.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from rig.lasting import Lasting

EVERY_S = 0.1
SLOW_S = 0.3
"""An answer that took longer is worth a line."""
KEPT = 20_000
NAP_S = 0.02
LATE_S = 0.1
"""Who goes on that much too late is written down."""


class Line(NamedTuple):
    """Something that was so from an instant on."""

    at: float
    who: str
    what: str


class Recorder(Lasting):
    """Asks sources from its `start` to its `stop`; or ``with``. Keeps what they said."""

    def __init__(self, sources: Mapping[str, Callable[[], str]], every_s: float = EVERY_S) -> None:
        self._sources = dict(sources)
        self._every_s = every_s
        self._lines: deque[Line] = deque(maxlen=KEPT)
        self._lates: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        works = [lambda who=who, ask=ask: self._watch(who, ask) for who, ask in self._sources.items()]
        for work in (*works, self._nap):
            thread = threading.Thread(target=work, name="recorder", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10.0)

    def note(self, who: str, what: str) -> None:
        """Write something down."""
        self._lines.append(Line(time.monotonic(), who, what))

    def between(self, since: float, until: float) -> list[Line]:
        """What was written down in a time, in order; and before that the last line of each source."""
        lines = sorted(self._lines)
        before = {line.who: line for line in lines if line.at < since}
        return sorted(before.values()) + [line for line in lines if since <= line.at <= until]

    def late_s(self, since: float, until: float) -> float:
        """The longest time in which this process was not let run, as far as that touches a time."""
        lates = (late_s for at, late_s in tuple(self._lates) if at >= since and at - late_s <= until)
        return max(lates, default=0.0)

    def _watch(self, who: str, ask: Callable[[], str]) -> None:
        said = ""
        while not self._stopping.is_set():
            asked_at = time.monotonic()
            what = ask()
            took_s = time.monotonic() - asked_at
            if what != said or took_s > SLOW_S:
                said = what
                self.note(who, f"{what} (answered after {took_s:.1f} s)" if took_s > SLOW_S else what)
            self._stopping.wait(self._every_s)

    def _nap(self) -> None:
        while not self._stopping.is_set():
            due_at = time.monotonic() + NAP_S
            time.sleep(NAP_S)
            now = time.monotonic()
            if now - due_at > LATE_S:
                self._lates.append((now, now - due_at))
                self.note("machine", f"let nobody run for {now - due_at:.2f} s; {load_of_machine()}")


def load_of_machine() -> str:
    """How busy it is, in the words of the kernel."""
    average = Path("/proc/loadavg").read_text().split()
    return f"load {average[0]}, {average[3]} run"
