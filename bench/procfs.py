"""What the kernel says of a process: the processor time it used, the memory it has and had at the most."""

import contextlib
import os
from pathlib import Path

_FORGET_PEAK = "5"


def cpu_seconds(pid: int) -> float:
    """Processor time it has used so far."""
    return sum(cpu_times_s(pid))


def cpu_times_s(pid: int) -> tuple[float, float]:
    """Processor time it has used so far: by its own code, and in system calls."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks_per_s, int(fields[12]) / ticks_per_s


def niceness(pid: int) -> int:
    """How far it stands back behind others; 0: not at all."""
    return os.getpriority(os.PRIO_PROCESS, pid)


def family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found.extend(child for child, parent in parents.items() if parent == each)
    return found


def resident_mb(pid: int) -> float:
    """Memory it has now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb(pid: int) -> float:
    """The most memory it ever had, or since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 / 1e6 for line in lines if line.startswith("VmHWM"))


def forget_peak(pid: int) -> None:
    """Let the peak be what it has now, where the kernel allows that."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text(_FORGET_PEAK)
