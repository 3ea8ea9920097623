"""A shell that is told what a reader types, and hears what the reader sees.

1. One bash per page: jobs in the background live on between the blocks, and are ended with it.
2. Its output is a terminal, so that commands write what they write for people; colours are taken out.
3. Commands come by a pipe of their own: what they start reads nothing of it.
"""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

PATIENCE_S = 60.0

_LOOP = r"""
code=0
while IFS= read -r command <&9; do
    (exit $code)
    eval "$command"
    code=$?
    printf '\001%d\002' $code
done
"""
_ENDED = re.compile("\x01(\\d+)\x02")
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_JOB = re.compile(r"^bash: line \d+: +\d+ (Killed|Terminated)\b.*\n", re.MULTILINE)
"""What bash says of a job that was killed. An interactive shell says it in other words, and at another moment."""


class Shell:
    """A running bash."""

    def __init__(self, commands: int, terminal: int) -> None:
        self._commands = commands
        self._terminal = terminal
        self._heard = ""
        self._has_jobs = False

    def type(self, command: str) -> int:
        """Run a command; returns its exit code. Of one in the background, that it was started."""
        self._has_jobs = self._has_jobs or command.endswith("&")
        os.write(self._commands, command.encode() + b"\n")
        give_up_at = time.monotonic() + PATIENCE_S
        while not (ended := _ENDED.search(self._heard)):
            assert self._listen(give_up_at), f"{command!r} did not end; it wrote {self._heard!r}"
        self._heard = self._heard[: ended.start()] + self._heard[ended.end() :]
        return int(ended[1])

    def forget(self) -> None:
        """Nobody wants to know what was written."""
        self._heard = ""

    def expect(self, shown: list[str]) -> None:
        """Wait until what was written is what the page shows, and take it as read."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._matches(shown, seen := plain(self._heard)):
            assert self._listen(give_up_at), "shown:\n{}\nwritten:\n{}".format("\n".join(shown), seen)
        self._heard = ""

    def _matches(self, shown: list[str], seen: str) -> bool:
        if pattern(shown).fullmatch(seen):
            return True
        # Two processes that were told the same thing at the same moment write in whatever order.
        lines = seen.splitlines(keepends=True)
        return self._has_jobs and len(lines) == len(shown) and any_order(shown, lines)

    def _listen(self, until: float) -> bool:
        if not select.select([self._terminal], [], [], max(0.0, until - time.monotonic()))[0]:
            return False
        data = os.read(self._terminal, 1 << 16).decode(errors="replace")
        self._heard += data.replace("\r", "")
        return True


def plain(heard: str) -> str:
    """What a reader compares: spaces are for looks only."""
    lines = _JOB.sub("", _STYLE.sub("", heard)).splitlines(keepends=True)
    # A line that has not ended yet is not what it will be.
    return "".join(" ".join(line.split()) + ("\n" if line.endswith("\n") else "") for line in lines)


def pattern(shown: list[str]) -> re.Pattern[str]:
    """What is shown as a pattern: a line of … stands for any lines, … within one for any text."""
    return re.compile("".join(_line(" ".join(line.split())) for line in shown))


def any_order(shown: list[str], lines: list[str]) -> bool:
    """Whether each line that is shown is one of those written."""
    left = list(lines)
    for line in shown:
        found = next((each for each in left if pattern([line]).fullmatch(each)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _line(text: str) -> str:
    if text == "…":
        return r"(?:.*\n)*?"
    return ".*?".join(re.escape(part) for part in text.split("…")) + r"\n"


def _variables() -> dict[str, str]:
    # Told not to buffer, Python writes each part of a line by itself: two processes would share lines.
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@contextmanager
def shell(place: Path, variables: Mapping[str, str]) -> Iterator[Shell]:
    """A bash in a directory. At the end it and all that it started are killed."""
    commands_read, commands = os.pipe()
    terminal, screen = pty.openpty()
    ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    process = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-c", f"exec 9<&{commands_read}; {_LOOP}", "bash"],
        stdin=subprocess.DEVNULL,
        stdout=screen,
        stderr=screen,
        pass_fds=[commands_read],
        cwd=place,
        env={**_variables(), "NO_COLOR": "1", "TERM": "xterm", **variables},
        start_new_session=True,
    )
    os.close(commands_read)
    os.close(screen)
    try:
        yield Shell(commands, terminal)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(commands)
        os.close(terminal)
