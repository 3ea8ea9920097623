"""`python -m tests.simulation`: run many seeds, replay one, or look for planted bugs.

Exits 0 when no guarantee was broken (or every bug was found), 1 otherwise, 130 when interrupted. What was found
goes to standard output, progress to standard error.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.simulation.bugs import BUGS, Bug
from tests.simulation.runs import Run, run, run_many, seeds_from
from tests.simulation.world import CHAOS_S

LINE_EVERY_S = 15.0
BUG_SEEDS_MAX = 500


def main(argv: Sequence[str], out: Console, err: Console) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.what == "bugs":
        return _find_bugs(arguments, out)
    if arguments.seed is not None:
        return _replay(arguments, out)
    return _run_many(arguments, out, err)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Run the whole service on virtual time."
    )
    parser.add_argument("what", nargs="?", choices=("seeds", "bugs"), default="seeds")
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--minutes", type=float, help="stop after so many, however many seeds are left")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run them in (1)")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell all that happens")
    parser.add_argument("--moves", action="store_true", help="only those in which slots move between shards")
    parser.add_argument("--length", type=float, default=CHAOS_S, help=f"seconds of faults in each ({CHAOS_S:.0f})")
    parser.add_argument("--bug", default="", help="with one of the planted bugs in place, by its name")
    return parser


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _replay(arguments: argparse.Namespace, out: Console) -> int:
    say = (lambda text: _say(out, text)) if arguments.trace else None
    told = run(arguments.seed, arguments.bug, say, chaos_s=arguments.length)
    _say(out, str(told))
    _tell(told, out)
    return 1 if told.violations else 0


def _tell(told: Run, out: Console) -> None:
    for violation in told.violations:
        _say(out, f"  {violation}")
    if told.void:
        _say(out, f"  void: {told.void}")


class Sums:
    """What many runs came to."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.runs: list[Run] = []
        self.failed: list[int] = []
        self.void: list[int] = []

    def add(self, told: Run) -> None:
        self.runs.append(told)
        if told.violations:
            self.failed.append(told.seed)
        if told.void:
            self.void.append(told.seed)

    def __str__(self) -> str:
        elapsed_s, runs = time.monotonic() - self.began_s, self.runs
        hours = sum(each.simulated_s for each in runs) / 3600
        return (
            f"{len(runs)} seeds, {len(self.failed)} failed, {len(self.void)} void, "
            f"{len(runs) / max(elapsed_s, 0.001):.2f} seeds/s: {hours:.1f} simulated hours, "
            f"{sum(each.faults for each in runs)} faults, {sum(each.leads for each in runs)} epochs, "
            f"{sum(each.grants for each in runs)} grants of {sum(each.asks for each in runs)} acquires, "
            f"{sum(each.answers for each in runs)} answers checked; {sum(each.shards > 1 for each in runs)} with "
            f"several shards: {sum(each.moves for each in runs)} moves of slots, "
            f"{sum(each.struck for each in runs)} of them with faults in the middle, "
            f"{sum(each.joint for each in runs)} joint grants, "
            f"{sum(each.followed for each in runs)} policies followed"
        )


def _run_many(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    sums = Sums()
    seeds = islice(seeds_from(arguments.first, of_moves=arguments.moves), arguments.seeds)
    if arguments.minutes is not None:
        until_s = sums.began_s + 60 * arguments.minutes
        seeds = takewhile(lambda _: time.monotonic() < until_s, seeds)  # type: ignore[assignment]
    with _shown(err, arguments.seeds) as show:
        for told in run_many(seeds, arguments.jobs, arguments.bug, arguments.length):
            sums.add(told)
            if told.violations or told.void:
                _say(out, f"seed {told.seed}")
                _tell(told, out)
                if told.violations:
                    length = "" if arguments.length == CHAOS_S else f" --length {arguments.length:g}"
                    _say(out, f"  replay: python -m tests.simulation --seed {told.seed}{length} --trace")
            show(sums)
    _say(out, str(sums))
    if sums.failed:
        _say(out, f"failed: {' '.join(map(str, sorted(sums.failed)))}")
    return 1 if sums.failed or sums.void else 0


@contextmanager
def _shown(console: Console, total: int) -> "Iterator[Shower]":
    if not console.is_terminal:
        yield Shower(console)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        yield Shower(console, progress, total)


class Shower:
    """Shows how it goes: a bar for a person, a line now and then for a log."""

    def __init__(self, console: Console, progress: Progress | None = None, total: int = 0) -> None:
        self._console = console
        self._progress = progress
        self._task = None if progress is None else progress.add_task("", total=total)
        self._next_s = time.monotonic() + LINE_EVERY_S

    def __call__(self, sums: Sums) -> None:
        if self._progress is not None and self._task is not None:
            rate = len(sums.runs) / max(time.monotonic() - sums.began_s, 0.001)
            text = f"{rate:.2f} seeds/s, {len(sums.failed)} failed"
            self._progress.update(self._task, completed=len(sums.runs), description=escape(text))
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LINE_EVERY_S
            _say(self._console, str(sums))


def _find_bugs(arguments: argparse.Namespace, out: Console) -> int:
    wanted = [bug for bug in BUGS if arguments.bug in ("", bug.name)]
    found = [_find_bug(bug, arguments, out) for bug in wanted]
    return 0 if all(found) else 1


def _find_bug(bug: Bug, arguments: argparse.Namespace, out: Console) -> bool:
    seeds = islice(seeds_from(arguments.first, of_moves=bug.of_moves), BUG_SEEDS_MAX)
    for tried, told in enumerate(run_many(seeds, arguments.jobs, bug.name, arguments.length), start=1):
        named = [each for each in told.violations if each.guarantee in bug.guarantees]
        if named:
            _say(out, f"{bug.name}: found by seed {told.seed}, after {tried}: {named[0]}")
            return True
    _say(out, f"{bug.name}: not found in {BUG_SEEDS_MAX} seeds")
    return False


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:], Console(), Console(stderr=True)))
    except KeyboardInterrupt:
        sys.exit(130)
