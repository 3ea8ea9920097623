"""`python -m bench NAME`: run a benchmark, tell its figures, judge its musts.

Exits 0 when every must was met, 1 when one was missed or a benchmark failed, 2 on usage errors, 130 when
interrupted. The table and the musts go to standard output, progress and failures to standard error.
"""

import argparse
import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench import host, progress, registry, report
from bench.contest import Benchmark, ContestFailed, Family, run

RESULTS = Path(__file__).parent / "results"
TABLE_WIDTH_MAX = 280


@dataclass(frozen=True)
class Surroundings:
    """What the command works with, so that a test can hand it something else."""

    modules: Sequence[str]
    results: Path
    now: datetime
    env: Mapping[str, str]
    out: Console
    err: Console


def main(argv: Sequence[str], around: Surroundings) -> int:
    """Run the command, and return its exit code."""
    arguments = _parser().parse_args(argv)
    known = registry.names(around.modules)
    if arguments.name is None:
        return _list(around)
    if arguments.name not in (*known, "all"):
        _say(around.err, f"bench: no benchmark {arguments.name!r}; there are: {', '.join(known)}, all")
        return 2
    chosen = known if arguments.name == "all" else [arguments.name]
    quick = arguments.quick or around.env.get("QUICK", "") not in ("", "0")
    # Every one runs, also after one that failed.
    codes = [_run_all(name, arguments.only, quick, around) for name in chosen]
    return max(codes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Fencehold and its peers.")
    parser.add_argument("name", nargs="?", help="a benchmark, or all; without it, they are listed")
    parser.add_argument("--quick", action="store_true", help="the short form, musts included (also: QUICK=1)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="of a benchmark that has several: this one"
    )
    return parser


def _list(around: Surroundings) -> int:
    known = registry.names(around.modules)
    width = max(len(name) for name in known)
    for name in known:
        try:
            doc = registry.load(name, around.modules).doc
        except Exception as error:  # One broken module must not hide the others.
            doc = f"cannot be loaded: {error}"
        _say(around.out, f"{name:{width}}  {doc}")
    return 0


def _run_all(name: str, only: Sequence[str], quick: bool, around: Surroundings) -> int:
    """Run a benchmark, or the parts of it that are asked for."""
    try:
        found = registry.load(name, around.modules)
    except Exception:
        _say(around.err, traceback.format_exc().rstrip())
        _say(around.err, f"bench {name}: cannot be run")
        return 1
    members = found.members if isinstance(found, Family) else {}
    unknown = [part for part in only if part not in members]
    if unknown:
        there_are = f"; there are: {', '.join(members)}" if members else ": it has no parts"
        _say(around.err, f"bench {name}: no part {unknown[0]!r}{there_are}")
        return 2
    if isinstance(found, Benchmark):
        return _run(found, quick, around)
    # Every one runs, also after one that failed.
    return max([_run(found.members[part], quick, around) for part in only or members])


def _run(benchmark: Benchmark, quick: bool, around: Surroundings) -> int:
    try:
        return _contest(benchmark, quick, around)
    except ContestFailed as failed:
        for failure in failed.failures:
            _say(around.err, "".join(traceback.format_exception(failure.__cause__)).rstrip())
            _say(around.err, f"bench {benchmark.name}: {failure}")
    except Exception:
        _say(around.err, traceback.format_exc().rstrip())
        _say(around.err, f"bench {benchmark.name}: cannot be run")
    return 1


def _contest(benchmark: Benchmark, quick: bool, around: Surroundings) -> int:
    contest = benchmark.build(quick)
    with progress.shown(around.err, contest.turns()) as watcher:
        results = asyncio.run(run(contest, watcher))
    verdicts = [must.judge(results) for must in contest.musts]
    told = report.Report(benchmark, contest, results, verdicts, quick, around.now, host.facts())
    report.show(told, around.out)
    _say(around.out, f"every sample: {report.write(told, around.results)}")
    if (drawn := report.picture(told, around.results)) is not None:
        _say(around.out, f"a picture of it: {drawn}")
    report.show_musts(verdicts, around.out)
    return 0 if all(verdict.met for verdict in verdicts) else 1


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr)
    # A pipe or a log does not wrap lines at 80: the table takes the width it needs.
    return console if console.is_terminal else Console(stderr=stderr, width=TABLE_WIDTH_MAX)


def surroundings() -> Surroundings:
    """Those of the command itself."""
    return Surroundings(
        modules=registry.MODULES,
        results=RESULTS,
        now=datetime.now(UTC),
        env=os.environ,
        out=_console(stderr=False),
        err=_console(stderr=True),
    )


def interruptible(command: Callable[[], int]) -> None:
    """Run a command, and exit with its code. Ended from outside, it still tears down: no server outlives it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(command())
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    interruptible(lambda: main(sys.argv[1:], surroundings()))
