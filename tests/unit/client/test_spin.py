"""A caller spins for its reply for a moment, unless that did not help lately."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencehold.client.direct import spin
from fencehold.client.direct.spin import NOW, SKIPPED_MAX, SKIPPED_MIN, SPIN_S, Spin, spinning


class Server:
    """A socket whose replies take so many looks each, on a clock that moves with every look."""

    def __init__(self) -> None:
        self.now, self.looks = 0.0, 0
        self.takes_looks = 0
        """Of the next reply."""
        self.look_s = SPIN_S / 10
        self.slept = self.gave_way = 0

    def receive(self, size: int, flags: int = 0) -> bytes:
        assert size == 100
        if not flags:
            self.slept += 1
        elif self.looks < self.takes_looks:
            self.looks += 1
            self.now += self.look_s
            raise BlockingIOError(errno.EAGAIN, "not now")
        self.looks = 0
        return b"reply"

    def give_way(self) -> None:
        self.gave_way += 1

    def spin(self) -> Spin:
        return Spin(self.receive, now=lambda: self.now, give_way=self.give_way)


def slept(server: Server, spin: Spin, calls: int) -> int:
    """How many of so many calls slept."""
    before = server.slept
    for _ in range(calls):
        assert spin.receive(100) == b"reply"
    return server.slept - before


def test_a_reply_that_comes_soon_is_not_slept_for_and_others_may_run_meanwhile() -> None:
    server = Server()
    server.takes_looks = 4
    assert slept(server, server.spin(), 50) == 0
    assert server.gave_way == 200


def test_a_reply_that_takes_longer_is_slept_for_and_so_are_the_next() -> None:
    server = Server()
    spin, server.takes_looks = server.spin(), 1_000
    assert slept(server, spin, 1) == 1
    assert server.now == pytest.approx(SPIN_S, abs=server.look_s)
    server.takes_looks = 1
    assert slept(server, spin, SKIPPED_MIN) == SKIPPED_MIN
    assert slept(server, spin, 100) == 0


def test_the_more_replies_are_late_the_fewer_callers_spin() -> None:
    server = Server()
    spin, server.takes_looks = server.spin(), 1_000
    looked_s = []
    for _ in range(10):
        before = server.now
        # The one that finds it late, and those that do not try.
        slept(server, spin, 1)
        while spin._to_skip:
            slept(server, spin, 1)
        looked_s.append(server.now - before)
    assert looked_s == [pytest.approx(SPIN_S, abs=server.look_s)] * 10
    slept(server, spin, 1)
    assert spin._to_skip == SKIPPED_MAX
    # And as many again, when replies are quick again.
    server.takes_looks = 1
    slept(server, spin, SKIPPED_MAX)
    assert slept(server, spin, 20) == 0
    server.takes_looks = 1_000
    slept(server, spin, 1)
    assert spin._to_skip == SKIPPED_MIN


def test_a_caller_that_waits_for_the_interpreter_between_two_looks_counts_as_late() -> None:
    server = Server()
    spin, server.takes_looks, server.look_s = server.spin(), 1, 0.005
    # The first look finds nothing, and ends after the moment: the reply is slept for, though it is there.
    assert slept(server, spin, 1 + SKIPPED_MIN) == 1 + SKIPPED_MIN
    late = Server()
    spin, late.takes_looks = late.spin(), 1
    late.give_way = lambda: setattr(late, "now", late.now + 0.005)  # type: ignore[method-assign]
    spin._give_way = late.give_way
    assert slept(late, spin, 1) == 0
    assert slept(late, spin, SKIPPED_MIN) == SKIPPED_MIN


def test_an_error_of_the_socket_is_the_callers() -> None:
    def broken(*_: object) -> bytes:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        Spin(broken).receive(100)


def test_what_a_signal_handler_raises_is_no_late_reply() -> None:
    """The bytes may have been taken from the socket before it: to go on would lose them unnoticed."""
    looks = []

    def interrupted(_: int, flags: int) -> bytes:
        looks.append(flags)
        raise BlockingIOError

    with pytest.raises(BlockingIOError):
        Spin(interrupted).receive(100)
    assert looks == [NOW]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, its = socket.socketpair()
    with ours, its:
        yield ours, its


def test_on_a_real_socket(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spin, "processors", lambda: 2)
    ours, its = pair
    receive = spinning(ours.recv)
    its.send(b"at once")
    assert receive(100) == b"at once"
    late = threading.Timer(0.05, its.send, [b"late"])
    late.start()
    assert receive(100) == b"late"
    late.join()
    its.close()
    assert receive(100) == b""


@pytest.mark.parametrize(
    ("may_use", "quota", "spins"),
    [
        ({3}, None, False),
        ({3, 4}, None, True),
        ({3, 4}, "max 100000", True),
        ({3, 4}, "100000 100000", False),
        ({3, 4}, "150000 100000", True),
        ({3, 4}, "garbage", True),
    ],
)
def test_with_one_processor_all_callers_sleep(
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    may_use: set[int],
    quota: str | None,
    spins: bool,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: may_use, raising=False)
    monkeypatch.setattr(spin, "_QUOTA", tmp_path / "cpu.max")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota + "\n")
    assert (spinning(pair[0].recv) != pair[0].recv) is (spins and bool(NOW))
