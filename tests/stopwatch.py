"""How long something took, but for what a busy machine took: for tests that say how long something may take.

A bound of a second or two is true of what is tested, and false of a machine that others use as well. Linux says of
each thread how long it waited for a processor. What this process and the servers it started have waited does not
count here, so on an idle machine a bound is as strict as it looks, and on a busy one it is patient.
"""

import contextlib
import os
import time
from pathlib import Path


class Stopwatch:
    """It begins when it is made."""

    def __init__(self) -> None:
        self._begun_at = time.monotonic()
        self._waited_s = _waited_s()

    @property
    def passed_s(self) -> float:
        """Seconds since it began, but for those in which something was ready to run, and did not."""
        waited_s = max(0.0, _waited_s() - self._waited_s)
        return max(0.0, time.monotonic() - self._begun_at - waited_s)


def _waited_s() -> float:
    """How long the threads of this process and of its children have waited for a processor, all together."""
    mine = list(_threads(os.getpid()))
    children = {int(pid) for thread in mine for pid in _read(thread / "children").split()}
    threads = [*mine, *(thread for pid in children for thread in _threads(pid))]
    return sum(int((_read(thread / "schedstat") or "0 0 0").split()[1]) for thread in threads) / 1e9


def _threads(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def _read(file: Path) -> str:
    # A thread may end meanwhile; and a kernel may not keep count, which leaves every bound strict.
    with contextlib.suppress(OSError):
        return file.read_text()
    return ""
