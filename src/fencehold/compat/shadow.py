"""What a shadow reports, and the summary of many reports. ``python -m fencehold.compat.shadow FILE`` prints one.

1. A report is one line of JSON, and says who: ours, and the other party where there is one.
2. An overlap is reported when it is found, and once more with its length when it is over, with the same `id`.
3. A summary is bounded: of names, the first thousand that had something reported are counted one by one.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["overlap", "overlap_over", "retaken", "expired", "late_release", "lost"]

KINDS: dict[Kind, str] = {
    "overlap": "two had it at the same time",
    "retaken": "another client took it while its holder still trusted it",
    "expired": "held for longer than its timeout",
    "late_release": "released after its timeout had run out",
    "lost": "gone from Redis before its timeout had run out",
}
"""The kinds that are counted, and what they mean. That an overlap is over is no finding of its own."""
NAMES_MAX = 1_000
TOP = 10


class Side(msgspec.Struct, frozen=True):
    """One holder of the lock."""

    client: str
    host: str
    pid: int
    owner: str
    """The thread or task."""
    since: float
    """When it got the lock: seconds since 1970, by the clock of the reporting process."""
    timeout: float | None
    """Its timeout; None: it has none, or it is not known."""
    fence: int = 0
    """Of its record in Fencehold; 0 if there is none."""

    def __str__(self) -> str:
        return f"{self.client or 'an unnamed client'} on {self.host} (pid {self.pid}), {self.owner}"


class Report(msgspec.Struct, frozen=True):
    """One finding."""

    kind: Kind
    name: str
    at: float
    """When it was found: seconds since 1970."""
    seconds: float
    """How long the overlap has lasted, how late the release was, how long it was held when it was found lost."""
    ours: Side
    other: Side | None = None
    detail: str = ""
    id: str = ""

    def __str__(self) -> str:
        other = f"; the other: {self.other}" if self.other is not None else ""
        why = f" ({self.detail})" if self.detail else ""
        return f"{self.kind} of {self.name!r}, {self.seconds:.3f} s: {self.ours}{other}{why}"


class NameSummary(msgspec.Struct, frozen=True):
    """What was found about one name."""

    name: str
    findings: int
    overlaps: int
    worst_overlap_s: float


class Summary(msgspec.Struct, frozen=True):
    """What was found in all."""

    findings: dict[str, int]
    """How often each kind was reported."""
    worst_overlap_s: float
    names: tuple[NameSummary, ...]
    """The names with the most findings."""
    names_uncounted: int = 0
    """Findings about names beyond those that are counted one by one."""
    recorded: int = 0
    """Acquires that were recorded in Fencehold."""
    failures: int = 0
    """Acquires and releases that could not be recorded, and reports that could not be written."""
    dropped: int = 0
    """Acquires that were not recorded, since there were too many."""

    def __str__(self) -> str:
        return "\n".join(_lines(self))


class _Count:
    __slots__ = ("findings", "overlaps", "worst_s")

    def __init__(self) -> None:
        self.findings = self.overlaps = 0
        self.worst_s = 0.0


class Tally:
    """Counts reports. Only one thread adds."""

    def __init__(self) -> None:
        self._kinds: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._names: dict[str, _Count] = {}
        self._uncounted = 0
        self._worst_s = 0.0

    def add(self, report: Report) -> None:
        """Count one."""
        is_finding = report.kind in self._kinds
        if is_finding:
            self._kinds[report.kind] += 1
        overlap_s = report.seconds if report.kind in ("overlap", "overlap_over") else 0.0
        self._worst_s = max(self._worst_s, overlap_s)
        count = self._names.get(report.name)
        if count is None:
            if len(self._names) >= NAMES_MAX:
                self._uncounted += is_finding
                return
            count = self._names[report.name] = _Count()
        count.findings += is_finding
        count.overlaps += report.kind == "overlap"
        count.worst_s = max(count.worst_s, overlap_s)

    def summary(self, *, recorded: int = 0, failures: int = 0, dropped: int = 0) -> Summary:
        """What has been counted so far."""
        seen = list(self._names.items())
        worst = sorted(seen, key=lambda item: (-item[1].overlaps, -item[1].findings, item[0]))[:TOP]
        names = tuple(NameSummary(name, each.findings, each.overlaps, each.worst_s) for name, each in worst)
        return Summary(dict(self._kinds), self._worst_s, names, self._uncounted, recorded, failures, dropped)


def read(lines: Iterable[bytes]) -> tuple[Summary, int]:
    """The summary of a file of reports, and how many of its lines are not reports."""
    tally, unreadable = Tally(), 0
    decoder = msgspec.json.Decoder(Report)
    for line in lines:
        try:
            tally.add(decoder.decode(line))
        except msgspec.MsgspecError:
            unreadable += bool(line.strip())
    return tally.summary(), unreadable


def _lines(summary: Summary) -> Iterable[str]:
    for kind, meaning in KINDS.items():
        yield f"{kind:<14}{summary.findings.get(kind, 0):>8}  {meaning}"
    if summary.findings.get("overlap"):
        yield f"{'longest':<14}{summary.worst_overlap_s:>7.3f}s  of the overlaps"
    if summary.names:
        yield ""
        yield f"{'findings':>8} {'overlaps':>8} {'longest':>9}  name"
        for each in summary.names:
            yield f"{each.findings:>8} {each.overlaps:>8} {each.worst_overlap_s:>8.3f}s  {each.name}"


def main(arguments: Sequence[str]) -> int:
    """Print the summary of a file; returns the exit code: 1 if there were overlaps, 2 if it cannot be read."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m fencehold.compat.shadow FILE.jsonl\n")
        return 2
    try:
        with Path(arguments[0]).open("rb") as file:
            summary, unreadable = read(file)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{summary}\n")
    if unreadable:
        sys.stderr.write(f"{unreadable} lines are not reports of a shadow\n")
    return 1 if summary.findings["overlap"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
