"""A holder that is stopped between its read and its write, and wakes up when another has held the lock.

Nothing is left to chance: each client waits where it is told to, in the kernel's hands or in its own, and goes on
when the other has done its part. `python -m bench fencing` does the same by lot, for minutes, on every store.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench import fencing_client
from bench.fencing_arms import STORES, Guarding
from bench.fencing_client import Plan
from bench.isolated import ROOT
from rig.redis import Redis
from tests.e2e.served import PATIENCE_S, Served, serving

OLD_TTL_S, NEW_TTL_S = 1.0, 30.0
"""The old holder's session is to run out soon; the new one's never, however busy the machine is."""
NAME = "the-set"
GUARDED = ("sqlite", "file", "redis")


class Client:
    """A client that makes one update, and waits for `go` before its write."""

    def __init__(self, plan: Plan) -> None:
        self._process = subprocess.Popen(
            fencing_client.command(plan), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def step(self) -> str:
        """What it does next, when it has done it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it ended"
        return str(fencing_client.told(line)["what"])

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """SIGSTOP, and wait until the kernel has done it."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


class Stage:
    """A set in a store, and clients that add to it."""

    def __init__(self, served: Served, store: str, where: str, guarding: Guarding, stack: ExitStack) -> None:
        self._plan = Plan(served.url, "", NAME, store, where, guarding, NEW_TTL_S)
        self._stack = stack
        self._arm = STORES[store](where, guarding)
        stack.callback(self._arm.close)
        self._arm.make(NAME)

    def client(self, name: str, ttl_s: float) -> Client:
        client = Client(self._plan._replace(client=name, ttl_s=ttl_s))
        self._stack.callback(client.close)
        return client

    def stopped_after_its_read(self) -> Client:
        """One that has the lock and has read, and will write as soon as it wakes up."""
        client = self.client("old", OLD_TTL_S)
        assert client.step() == "read"
        client.stop()
        client.go()
        return client

    def next_holder(self) -> Client:
        """Another that has the lock, which it gets when the other's session has run out, and has read."""
        client = self.client("new", NEW_TTL_S)
        assert client.step() == "read"
        return client

    def elements(self) -> list[str]:
        return self._arm.elements(NAME)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), "--memory") as served:
        yield served


@contextmanager
def place(store: str, folder: Path) -> Iterator[str]:
    if store == "redis":
        with Redis(folder) as server:
            yield server.url
    else:
        yield str(folder / "sets.db" if store == "sqlite" else folder)


@contextmanager
def staged(served: Served, folder: Path, store: str, guarding: Guarding) -> Iterator[Stage]:
    with place(store, folder) as where, ExitStack() as stack:
        yield Stage(served, store, where, guarding, stack)


def test_without_a_guard_an_acknowledged_update_is_lost(served: Served, tmp_path: Path) -> None:
    """The woken one writes what it read before it was stopped: what was written meanwhile is gone."""
    with staged(served, tmp_path, "sqlite", "none") as stage:
        old, new = stage.stopped_after_its_read(), stage.next_holder()
        new.go()
        assert new.step() == "written"
        assert stage.elements() == ["new:0"]
        old.wake()
        assert old.step() == "written"
        assert stage.elements() == ["old:0"]


@pytest.mark.parametrize("store", GUARDED)
def test_with_a_guard_the_woken_holder_is_refused(served: Served, tmp_path: Path, store: str) -> None:
    """The resource has seen a greater fence, and keeps what was written under it."""
    with staged(served, tmp_path, store, "full") as stage:
        old, new = stage.stopped_after_its_read(), stage.next_holder()
        new.go()
        assert new.step() == "written"
        old.wake()
        assert old.step() == "refused"
        assert stage.elements() == ["new:0"]


def test_a_check_without_an_enter_loses_an_acknowledged_update(served: Served, tmp_path: Path) -> None:
    """The first-write gap: the new holder has read and not yet written, so no greater fence has been seen."""
    with staged(served, tmp_path, "sqlite", "check") as stage:
        old, new = stage.stopped_after_its_read(), stage.next_holder()
        old.wake()
        assert old.step() == "written"
        new.go()
        assert new.step() == "written"
        assert stage.elements() == ["new:0"]


@pytest.mark.parametrize("store", GUARDED)
def test_who_has_entered_shuts_the_old_holder_out_before_its_own_first_write(
    served: Served, tmp_path: Path, store: str
) -> None:
    """The mark was raised before the read: nothing can slip in between what is read and what is written."""
    with staged(served, tmp_path, store, "full") as stage:
        old, new = stage.stopped_after_its_read(), stage.next_holder()
        old.wake()
        assert old.step() == "refused"
        new.go()
        assert new.step() == "written"
        assert stage.elements() == ["new:0"]
