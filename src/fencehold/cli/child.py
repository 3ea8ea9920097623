"""The command that `run` runs: forked before the acquire, started at the grant, never left running.

1. It is forked while this process has one thread: a fork among threads may deadlock before it comes to its exec.
2. It has a process group of its own, so that what it starts in turn can be ended with it.
3. If this process dies in any way, the command dies, too: the kernel kills it (PR_SET_PDEATHSIG), and a
   guardian, which sees a pipe close, kills the rest of its group.
4. On a terminal it becomes the foreground group, as in a shell, until it stops or ends.
"""

import contextlib
import ctypes
import json
import os
import signal
import stat
import sys
from collections.abc import Mapping
from typing import NoReturn

from fencehold.cli.exits import Exit

_PR_SET_PDEATHSIG = 1
_DONE = b"."


class Child:
    """One command, waiting to be started."""

    def __init__(self, command: list[str], mask: set[signal.Signals]) -> None:
        """Fork it. `mask` is the signal mask it is to start with."""
        self.unusable = False
        self._terminal = _terminal()
        self._go_read, self._go = os.pipe()
        self._failed, failed_write = os.pipe()
        parent = os.getpid()
        # Loaded before the fork: the child must do as little as possible after it.
        libc = ctypes.CDLL(None, use_errno=True)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(Exit.OK)
            _become(command, self._go_read, failed_write, mask)
        # Both sides do it: neither may continue before it is done.
        os.setpgid(self.pid, self.pid)
        os.close(self._go_read)
        os.close(failed_write)
        self._guarded, self._guardian = _guardian(self.pid)

    def start(self, variables: Mapping[str, str]) -> None:
        """Let it run, with these added to its environment; `unusable` says then if it could not be executed."""
        self.give_terminal()
        # Killed while it waited: then it has ended, as any command may.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._go, json.dumps(dict(variables)).encode() + b"\n")
        os.close(self._go)
        with os.fdopen(self._failed, "rb") as failed:
            self.unusable = bool(failed.read())

    def discard(self) -> None:
        """Cancel it before it has started."""
        self.kill(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.end()

    def kill(self, number: int) -> None:
        """Send a signal to it and its whole process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def is_gone(self) -> bool:
        """Whether nothing is left of its group."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def end(self) -> None:
        """It has ended: end its guardian, too."""
        self.take_terminal()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._guarded, _DONE)
        os.close(self._guarded)
        os.waitpid(self._guardian, 0)

    @property
    def has_terminal(self) -> bool:
        return self._terminal is not None

    def give_terminal(self) -> None:
        """Let it read the keyboard, and be interrupted by it."""
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._terminal, self.pid)

    def take_terminal(self) -> None:
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._terminal, os.getpgrp())


def _terminal() -> int | None:
    """The terminal to lend out: if we have it, and do not share it with others of a pipeline."""
    try:
        if not os.isatty(0) or os.tcgetpgrp(0) != os.getpgrp():
            return None
        kind = os.fstat(1).st_mode
    except OSError:
        return None
    # In `fencehold run … | less` it is less that reads the keyboard.
    return None if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) else 0


def _become(command: list[str], go_read: int, failed: int, mask: set[signal.Signals]) -> NoReturn:
    """In the child: wait for the signal to start, then exec the command."""
    os.setpgid(0, 0)
    with os.fdopen(go_read, "rb") as go:
        line = go.readline()
    if not line:
        os._exit(Exit.OK)
    # Python ignores these, and what is ignored stays so through an exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvpe(command[0], command, os.environ | json.loads(line))
    except FileNotFoundError:
        code = Exit.NOT_FOUND
    except OSError:
        code = Exit.CANNOT_EXECUTE
    os.write(failed, b"!")
    os._exit(code)


def _guardian(group: int) -> tuple[int, int]:
    """Fork the guardian of a group; returns the pipe it watches and its process."""
    watched, kept = os.pipe()
    pid = os.fork()
    if pid:
        os.close(watched)
        return kept, pid
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _keep_only(watched)
    if os.read(watched, 1) != _DONE:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    os._exit(Exit.OK)


def _keep_only(fd: int) -> None:
    """Close all other files: the guardian must not keep a pipe's other end or another process's output open."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.closerange(3, fd)
    os.closerange(fd + 1, max(os.sysconf("SC_OPEN_MAX"), 0) if sys.platform == "linux" else 1024)
