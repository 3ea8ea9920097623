"""Files of backups: writing and reading them, progress, and a summary of their content.

1. A backup gets its name only when it is complete and durable: until then it is a temporary file beside it. Only
   its owner may read it: it contains the secrets of sessions.
2. An error with a file is one sentence that names the file.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from fencehold.backup import Contents
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.output import console, note, say_json, tell
from fencehold.cli.shapes import seconds
from fencehold.errors import UsageError

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup; - is stdout or stdin.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]

STANDARD = Path("-")
"""Instead of a file: stdout, or stdin."""
_SHOW_EVERY = 1_024


def name_of(file: Path) -> str:
    """How messages name the file that is read."""
    return "stdin" if file == STANDARD else str(file)


@contextlib.contextmanager
def written(file: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A stream for a backup; at the end the file gets its name, or it is removed after an error."""
    if file == STANDARD:
        if sys.stdout.isatty():
            raise UsageError("a backup is binary: name a file, or redirect stdout to one")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if file.exists() and not force:
        raise fail(Exit.USAGE, f"{file} exists already", "name another file, or add --force to overwrite it")
    with _said("write", file):
        number, draft = tempfile.mkstemp(dir=file.absolute().parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(number, "wb") as sink:
                yield sink
                sink.flush()
                os.fsync(number)
            os.replace(draft, file)
        except BaseException:
            os.unlink(draft)
            raise
        _sync(file.absolute().parent)


@contextlib.contextmanager
def read(file: Path) -> Iterator[BinaryIO]:
    """Where to read a backup from."""
    if file == STANDARD:
        yield sys.stdin.buffer
        return
    if file.is_dir():
        # A data directory, most likely.
        hint = f"of a journal in a directory, give that as --engine {file}"
        raise fail(Exit.USAGE, f"{file} is a directory, not a backup", hint)
    with _said("read", file), file.open("rb") as source:
        yield source


@contextlib.contextmanager
def progress(doing: str, *, wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A callback for each entry; shows a person the progress, if there are many."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    with contextlib.ExitStack() as stack:
        bars: list[Callable[[int, int], None]] = []

        def show(done: int, total: int) -> None:
            if done % _SHOW_EVERY == 0:
                if not bars:
                    bars.append(_bar(stack, doing))
                bars[0](done, max(done, total))

        yield show


def _bar(stack: contextlib.ExitStack, doing: str) -> Callable[[int, int], None]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("entries"))
    bar = stack.enter_context(Progress(*columns, console=console(stderr=True), transient=True))
    task = bar.add_task(doing)
    return lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def _said(doing: str, file: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        code = Exit.USAGE if isinstance(error, FileNotFoundError) else Exit.UNAVAILABLE
        raise fail(code, f"cannot {doing} {file}: {error.strerror or error}") from None


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def check_output(file: Path, as_json: bool) -> None:
    """Raise `UsageError` if stdout would have to carry two things."""
    if file == STANDARD and as_json:
        raise UsageError("the backup goes to stdout, and so would the JSON: name a file")


def say_written(done: str, file: Path, contents: Contents, as_json: bool) -> None:
    """Report the content of a backup that was written."""
    if as_json:
        say_json({"file": str(file), "bytes": file.stat().st_size, **contents_shape(contents)})
    elif file == STANDARD:
        note(f"{done} {summary(contents)}")
    else:
        tell(f"{done} {summary(contents)} to {file}")


def contents_shape(contents: Contents) -> dict[str, Any]:
    """What is in a backup, or a journal, as `--json` writes it."""
    return {
        "engine": contents.engine,
        "epoch": contents.epoch,
        "snapshot_position": contents.snapshot_position,
        "position": contents.position,
        "entry_count": contents.entries,
        "logical_s": seconds(contents.logical_ms),
        "fence": contents.fence,
        "session_count": contents.sessions,
        "hold_count": contents.holds,
        "waiter_count": contents.waiters,
        "longest_ttl_s": seconds(contents.ttl_ms_longest),
    }


def summary(contents: Contents) -> str:
    """What is in a backup, in a few words."""
    return (
        f"position {contents.position} with fence {contents.fence}, {_count(contents.sessions, 'session')} and "
        f"{_count(contents.holds, 'hold')}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
