"""Processes: started in a folder of their own, awaited, killed, paused; none outlives its parent."""

import contextlib
import os
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

START_S = 30.0
STOP_S = 10.0


_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw7").removeprefix("gw")) % 8
_PORTS = range(20_000 + _WORKER * 1_500, 21_500 + _WORKER * 1_500)
"""Below those the kernel gives to connections, and others for each worker of the tests: a server that was killed
must find its port free again."""
_taken: set[int] = set()


def free_port() -> int:
    """A free port of loopback that was not given out here before."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _taken:
                _taken.add(port)
                return port


def await_true(is_true: Callable[[], bool], what: str, seconds: float = START_S) -> None:
    """Wait until something is true.

    Raises:
        TimeoutError: it never was.
    """
    until = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server listens there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


class Process:
    """One server process. What it writes goes to a file in its folder."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._env = {**os.environ, **(env or {})}
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; whether it serves is another question."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*leash(self._user), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._env,
                # Of its own: ctrl-c is for its parent, and ends it in order.
                process_group=0,
            )

    def await_ready(self, is_ready: Callable[[], bool], seconds: float = START_S) -> None:
        """Wait until it serves; says what it wrote if it ends instead."""

        def look() -> bool:
            if not self.is_running:
                raise RuntimeError(f"{self.name} did not start: {self.tail()}")
            return is_ready()

        await_true(look, f"{self.name} serves", seconds)

    def tail(self, size: int = 2_000) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def kill(self) -> None:
        """`kill -9`."""
        self._signal(signal.SIGKILL)
        self._reap()

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def stop(self, seconds: float = STOP_S) -> int:
        """SIGTERM, and SIGKILL if that does not help; returns the exit status."""
        if self._process is None:
            return 0
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = STOP_S) -> int:
        """Let it end by itself, and SIGKILL it if it does not; returns the exit status."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running and self._process is not None:
            self._process.send_signal(number)

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(STOP_S)


def output_of(command: Sequence[str], folder: Path, *, user: str | None, timeout_s: float) -> str:
    """What a program says that is run as that user, in a folder.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    done = subprocess.run(
        [*leash(user), *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stdout.strip()} {done.stderr.strip()}")
    return done.stdout


def leash(user: str | None) -> list[str]:
    """A command before the command: it ends when this process does, and runs as that user.

    Python could do both between fork and exec. But a process that speaks gRPC must not run Python there: gRPC's
    threads are gone in the child, and it may end or hang before it becomes the server.
    """
    command = ["setpriv", "--pdeathsig", "KILL"]
    if user is not None:
        command += ["--reuid", user, "--regid", str(pwd.getpwnam(user).pw_gid), "--init-groups"]
    return [*command, "--"]
