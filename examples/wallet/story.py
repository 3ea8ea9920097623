"""The story: a lock server, a wallet, workers, and a SIGSTOP for one of them between its read and its write.

1. The server is one of its own, in memory, on a free port; it ends with the story.
2. The worker that is stopped is woken when the others have debited some more: what it read is out of date then.
3. Nothing is left to chance, and no time is waited that could be an event.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from examples.wallet.wallet import opened
from examples.wallet.worker import Plan

START, AMOUNT = 1_000, 10
WORK_S = 0.1
SHORT_TTL_S, TTL_S = 1.0, 15.0
"""Of the one that is stopped, and of the others: however busy the machine is, only one loses its lock."""
NAMES = ("anna", "ben", "chloe", "david", "emma")
MEANWHILE = 3
"""Debits of the others before the one that was stopped is woken."""
_PATIENCE_S = 15.0
ROOT = Path(__file__).parents[2]


class Event(NamedTuple):
    """What a worker did."""

    at: float
    """In seconds."""
    who: str
    what: str
    more: dict[str, Any]


class Told(NamedTuple):
    """The story, when it is over."""

    fenced: bool
    workers: tuple[str, ...]
    events: list[Event]
    balance: int

    @property
    def paid(self) -> int:
        """What the workers paid out, each in good faith."""
        return AMOUNT * sum(event.what == "writes" for event in self.events)

    @property
    def lost(self) -> int:
        """What was paid out and is still in the wallet."""
        return self.paid - (START - self.balance)

    @property
    def refused(self) -> int:
        return sum(event.what == "refused" for event in self.events)


class Worker:
    """One worker's process. What it tells goes to a queue, with its name."""

    def __init__(self, plan: Plan, heard: "queue.Queue[Event]", began: float) -> None:
        self.name = plan.name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.wallet.worker", json.dumps(plan._asdict())],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._heard, self._began = heard, began
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            self._heard.put(Event(told.pop("at") - self._began, self.name, told.pop("what"), told))
        self._heard.put(Event(time.monotonic() - self._began, self.name, "ends", {"code": self.process.wait()}))

    def go(self) -> None:
        """What it waits for happens."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """SIGSTOP. It continues as soon as it wakes."""
        self.process.send_signal(signal.SIGSTOP)
        self.go()

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Nothing outlives the story."""
        self.wake()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a lock server that runs meanwhile."""
    port_file = folder / "port"
    command = [
        sys.executable,
        "-m",
        "fencehold.cli",
        "serve",
        "--memory",
        "--port",
        "0",
        "--port-file",
        str(port_file),
    ]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        give_up_at = time.monotonic() + _PATIENCE_S
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"the server does not start: {(folder / 'server.log').read_text()}")
            time.sleep(0.02)
        yield f"fencehold://127.0.0.1:{port_file.read_text().strip()}"
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def told(folder: Path, *, fenced: bool, workers: int, debits: int, where: str = "") -> Told:
    """Play it; `where` is a Postgres, or else the wallet is a file in the folder."""
    where = where or str(folder / "wallet.db")
    wallet = opened(where, fenced)
    names = NAMES[:workers]
    try:
        wallet.make(START)
        with served(folder) as url, ExitStack() as stack:
            heard: queue.Queue[Event] = queue.Queue()
            began = time.monotonic()
            common = Plan("", url, where, fenced, debits, AMOUNT, WORK_S, TTL_S, waits_in=-1)
            plans = [common._replace(name=name) for name in names]
            plans[0] = plans[0]._replace(ttl_s=SHORT_TTL_S, waits_in=1)
            group = [Worker(plan, heard, began) for plan in plans]
            for worker in group:
                stack.callback(worker.close)
            events = _played(group, heard, began)
        return Told(fenced, names, _from_zero(events), wallet.balance())
    finally:
        wallet.close()


def _from_zero(events: list[Event]) -> list[Event]:
    """In the order of time, counted from the first: starting the processes is no part of the story."""
    ordered = sorted(events, key=lambda event: event.at)
    return [event._replace(at=event.at - ordered[0].at) for event in ordered]


class _Director:
    """Who goes when: the first worker first, the others with it; the first is stopped in its second debit."""

    def __init__(self, group: list[Worker], began: float) -> None:
        self._victim, self._others = group[0], group[1:]
        self._began = began
        self._is_begun = self._is_stopped = False
        self._meanwhile = 0
        self.events: list[Event] = []
        self.running = len(group)

    def hear(self, event: Event) -> None:
        if event.what == "ends":
            if event.more["code"]:
                raise RuntimeError(f"{event.who} ended with {event.more['code']}")
            self.running -= 1
        elif event.what == "ready":
            if event.who == self._victim.name:
                self._victim.go()
        else:
            self.events.append(event)
            self._direct(event)

    def _direct(self, event: Event) -> None:
        if event.who == self._victim.name and event.what == "reads":
            if event.more["waits"]:
                self._victim.stop()
                self._is_stopped = True
                self._note("stopped")
            elif not self._is_begun:
                self._is_begun = True
                for worker in self._others:
                    worker.go()
        elif event.who != self._victim.name and event.what == "writes" and self._is_stopped:
            self._meanwhile += 1
            if self._meanwhile == MEANWHILE:
                self._note("woken")
                self._victim.wake()

    def _note(self, what: str) -> None:
        self.events.append(Event(time.monotonic() - self._began, self._victim.name, what, {}))


def _played(group: list[Worker], heard: "queue.Queue[Event]", began: float) -> list[Event]:
    """All that happens until the last worker ends."""
    director = _Director(group, began)
    while director.running:
        director.hear(heard.get(timeout=_PATIENCE_S))
    return director.events
