"""Showing how a contest goes: a bar for a person, plain lines for a log."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.contest import Watcher


@dataclass
class Lines:
    """One line per step, for logs and pipes."""

    console: Console
    turns: int
    turns_done: int = 0

    def note(self, text: str) -> None:
        counted = f"[{self.turns_done}/{self.turns}] {text}"
        self.console.print(counted, markup=False, highlight=False, soft_wrap=True)

    def advance(self) -> None:
        self.turns_done += 1


@dataclass
class Bar:
    """A bar for a terminal."""

    progress: Progress
    task: TaskID

    def note(self, text: str) -> None:
        self.progress.update(self.task, description=escape(text), refresh=True)

    def advance(self) -> None:
        self.progress.update(self.task, advance=1, refresh=True)


@contextmanager
def shown(console: Console, turns: int) -> Iterator[Watcher]:
    """A watcher that suits the console, for as long as the contest runs."""
    if not console.is_terminal:
        yield Lines(console, turns)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # Drawn between the turns only: a thread that redraws the bar would take its time from the contestant.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        yield Bar(progress, progress.add_task("", total=turns))
