"""`fencehold run`: hold locks while a command runs, as flock(1) does; on every machine, and with a fence.

1. One loop, over signals: those sent to us, the child's end, and one of our own that signals a change of the hold.
   They are blocked in every thread, so that none is lost between two waits.
2. Signals sent to us are passed on to the command; the exit code is the command's.
3. When the hold is lost the command is ended: SIGTERM, then SIGKILL.
4. While we are stopped (ctrl-z), we cannot renew: before the command continues, the hold must still be valid.
"""

import logging
import os
import signal
import sys
import time
from typing import Annotated

import typer

from fencehold.cli import completion
from fencehold.cli.child import Child
from fencehold.cli.exits import Exit
from fencehold.cli.failures import complain
from fencehold.cli.held_locks import HoldThread, Wanted
from fencehold.cli.options import (
    URL,
    ClientName,
    Limit,
    Shared,
    Tier,
    Timeout,
    Try,
    Url,
    duration,
    lasting,
    tier_of,
    wait_of,
)
from fencehold.cli.output import clean, note
from fencehold.errors import LockTimeout, UsageError
from fencehold.locks.views import Explanation

_WAKE = signal.SIGRTMIN
_PASSED_ON = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTSTP,
    signal.SIGCONT,
}
# SIGTTOU: while the child has the terminal, taking it back must not stop us.
_BLOCKED = _PASSED_ON | {_WAKE, signal.SIGCHLD, signal.SIGTTOU}
_ENDING = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
_LOOK_S = 0.05
OVERLOAD_LOG = logging.getLogger("fencehold.overload")


def run(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAMES -- COMMAND",
            help="What to lock, and what to run.",
            autocompletion=completion.names,
        ),
    ],
    ttl: Annotated[
        float,
        typer.Option(
            parser=lasting,
            metavar="DURATION",
            help="How soon a hold is lost without renewal.",
            show_default="30s",
        ),
    ] = 30.0,
    timeout: Timeout = None,
    attempt: Try = False,
    shared: Shared = False,
    limit: Limit = 0,
    kill_after: Annotated[
        float,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="After a loss: from SIGTERM to SIGKILL.",
            show_default="5s",
        ),
    ] = 5.0,
    busy_exit: Annotated[
        int,
        typer.Option(min=0, max=255, metavar="CODE", help="The exit code if the lock is not acquired."),
    ] = Exit.NO,
    called: ClientName = "fencehold run",
    tier: Tier = "",
    url: Url = URL,
) -> None:
    """Run a command while holding locks: fencehold run NAME... -- COMMAND...

    Several names are held all or none. The command finds FENCEHOLD_FENCE and FENCEHOLD_NAME in its environment;
    with --tier efficiency there is no fence. A URL may also be one of a backend: redis://, postgresql://, …
    Its exit code is returned; if the hold is lost it is ended, and the exit code is 75.
    """
    names, command = split(words)
    owner = os.path.basename(command[0])
    wanted = Wanted(names, ttl, wait_of(attempt, timeout), owner, shared, limit, tier_of(tier), called)
    _check(wanted)
    # For good: this process has nothing to do after this, and a last wake must not end it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        # Before any thread is: it forks.
        child = Child(command, {signal.Signals(number) for number in mask})
        on_waiting = _tell_waiting if sys.stderr.isatty() else None
        if on_waiting is not None:
            OVERLOAD_LOG.addHandler(_Busy())
        code = Running(child, HoldThread(url, wanted, _wake, on_waiting), kill_after).run({"FENCEHOLD_URL": url})
    except LockTimeout as busy:
        complain(f"busy: {busy.explanation}" if busy.explanation else str(busy))
        code = busy_exit
    if code in (Exit.NOT_FOUND, Exit.CANNOT_EXECUTE) and child.unusable:
        complain(f"{clean(command[0])}: {'not found' if code == Exit.NOT_FOUND else 'cannot be executed'}")
    raise typer.Exit(code)


def _tell_waiting(seen: Explanation) -> None:
    """Tells the user at the terminal why nothing happens."""
    note(f"fencehold: waiting: {clean(seen)}")


class _Busy(logging.Handler):
    """Tells the user once that the service is busy and that the command retries."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"fencehold: {clean(record.getMessage())}")
        OVERLOAD_LOG.removeHandler(self)


def _check(wanted: Wanted) -> None:
    if wanted.limit and (wanted.shared or len(wanted.names) > 1):
        raise UsageError("--limit is for one name, and excludes --shared")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Names, and the command after `--`."""
    if "--" not in words:
        raise UsageError("`--` is missing before the command: fencehold run NAME... -- COMMAND...")
    at = words.index("--")
    if at == 0 or at + 1 == len(words):
        raise UsageError("run needs a name and a command: fencehold run NAME... -- COMMAND...")
    return words[:at], words[at + 1 :]


class Running:
    """The loop: from waiting for the lock to the end of the command."""

    def __init__(self, child: Child, holding: HoldThread, kill_after: float) -> None:
        self._child = child
        self._holding = holding
        self._kill_after = kill_after
        self._kill_at: float | None = None
        """When SIGKILL follows SIGTERM; set once the hold is lost."""

    def run(self, variables: dict[str, str]) -> int:
        """Acquire, run, release; returns the exit code."""
        self._holding.start()
        try:
            interrupted = self._await_grant()
        except BaseException:
            self._child.discard()
            raise
        if interrupted:
            self._child.discard()
            self._holding.end()
            return interrupted
        code = self._supervise(variables)
        lost = self._holding.end()
        if lost and self._kill_at is None:
            complain(f"{lost}: the command had ended, but may have overlapped with another holder")
        return Exit.LOST if lost else code

    def _await_grant(self) -> int:
        """Wait for the grant; a signal ends the wait, and is returned as an exit code."""
        while not self._holding.granted:
            self._holding.result()
            number = _next_signal(None)
            if number in _ENDING:
                return Exit.SIGNAL + number
        return 0

    def _supervise(self, variables: dict[str, str]) -> int:
        """Start the command and supervise it until it has ended; after a loss, until its whole group has."""
        self._child.start(variables | self._holding.variables())
        status = self._look()
        while status is None or (self._kill_at is not None and not self._child.is_gone()):
            number = _next_signal(None if self._kill_at is None else _LOOK_S)
            if number in _PASSED_ON:
                self._child.kill(number)
            status = self._look() if status is None else status
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._child.kill(signal.SIGKILL)
                if status is not None:
                    break
        self._child.end()
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else Exit.SIGNAL - code

    def _look(self) -> int | None:
        """Check the hold and the command; returns the status, once the command has ended."""
        self._end_if_lost()
        return self._reaped()

    def _reaped(self) -> int | None:
        """The status of the child if it has ended; if it only stopped, stop as well."""
        pid, status = os.waitpid(self._child.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if not os.WIFSTOPPED(status):
            return status
        if self._child.has_terminal:
            self._stop_too()
        return None

    def _stop_too(self) -> None:
        """Give the shell its terminal, and continue when the shell does, if the hold is still valid."""
        self._child.take_terminal()
        os.killpg(os.getpgrp(), signal.SIGSTOP)
        # Here it is later: the shell has continued us. Its signal is consumed here: passed on later, it would
        # continue a command that was stopped again meanwhile, and that stop would go unnoticed.
        signal.sigtimedwait({signal.SIGCONT}, 0)
        self._child.give_terminal()
        self._end_if_lost()
        self._child.kill(signal.SIGCONT)

    def _end_if_lost(self) -> None:
        if self._kill_at is None and (reason := self._holding.loss()):
            self._kill_at = time.monotonic() + self._kill_after
            complain(f"{reason}: ending the command")
            self._child.kill(signal.SIGTERM)
            # A stopped process would not react to SIGTERM.
            self._child.kill(signal.SIGCONT)


def _next_signal(timeout: float | None) -> int | None:
    """Wait for one of our signals."""
    if timeout is None:
        return signal.sigwaitinfo(_BLOCKED).si_signo
    found = signal.sigtimedwait(_BLOCKED, timeout)
    return None if found is None else found.si_signo


def _wake() -> None:
    """From any thread: wake up the loop."""
    os.kill(os.getpid(), _WAKE)
