"""A real server in a process of its own, and the command called as a user calls it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from fencehold.cli.app import build, prepared

PATIENCE_S = 60.0
COMMAND = [sys.executable, "-m", "fencehold.cli"]


class Said(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


class Served:
    """A server that runs."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, place: Path) -> None:
        self.process = process
        self.url = f"fencehold://127.0.0.1:{port}"
        self.place = place
        """Where it was started."""

    def call(self, *words: str, stdin: str = "") -> Said:
        """Call the command in this process: quick, and enough for what writes and ends."""
        result = CliRunner().invoke(build(list(words)), prepared(list(words)), stdin, {"FENCEHOLD_URL": self.url})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[str]":
        """Start the command in a process of its own."""
        return start(*words, FENCEHOLD_URL=self.url, **variables)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def start(*words: str, **variables: str) -> "subprocess.Popen[str]":
    """Start the command, with these variables and no others of its own."""
    return start_in(Path.cwd(), *words, **variables)


def start_in(place: Path, *words: str, **variables: str) -> "subprocess.Popen[str]":
    """Start the command in this folder, with these variables and no others of its own."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("FENCEHOLD_")}
    return subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
        env=clean | variables,
    )


def ended(process: "subprocess.Popen[str]") -> Said:
    """Wait for its end."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as late:
        process.kill()
        process.wait(PATIENCE_S)
        # Not read to the end: what it started may still have the other end.
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        raise AssertionError(f"it did not end; it wrote {late.stdout!r} and {late.stderr!r}") from None
    return Said(process.returncode, out, err)


@contextmanager
def serving(place: Path, *options: str, **variables: str) -> Iterator[Served]:
    """A server with these options, ended at the end. Its data are in this folder, if no option says where."""
    port_file = place / f"port-{time.monotonic_ns()}"
    process = start_in(place, "serve", "--port", "0", "--port-file", str(port_file), *options, **variables)
    try:
        until(lambda: port_file.exists() or process.poll() is not None)
        if process.poll() is not None:
            raise AssertionError(f"it does not serve: {ended(process)}")
        yield Served(process, int(port_file.read_text()), place)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        ended(process)


def until(happened: Callable[[], object]) -> None:
    """Wait for something, but not for ever."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(0.01)
