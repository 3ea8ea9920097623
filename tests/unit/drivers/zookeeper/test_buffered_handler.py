"""A plug and a bell: nothing is lost that is sent, read or rung."""

import socket
import threading
from collections.abc import Iterator

import pytest

from fencehold.drivers.zookeeper.buffered_handler import BufferedSocket, Wakeup, ready


@pytest.fixture
def pair() -> Iterator[tuple[BufferedSocket, socket.socket]]:
    """A plug, and what it is connected to."""
    here, there = socket.socketpair()
    here.setblocking(False)
    plug = BufferedSocket(here)
    yield plug, there
    plug.close()
    there.close()


@pytest.fixture
def bell() -> Iterator[Wakeup]:
    made = Wakeup()
    yield made
    made.close()


def test_what_is_sent_goes_out_at_once_when_nobody_rings(
    pair: tuple[BufferedSocket, socket.socket], bell: Wakeup
) -> None:
    """While somebody does, more is gathered first."""
    plug, there = pair
    bell.send(b"\0")
    plug.send(b"one ")
    assert ready([plug, bell], 0) == [bell]
    there.setblocking(False)
    with pytest.raises(BlockingIOError):
        there.recv(100)
    assert bell.recv(1) == b"\0"
    plug.send(b"two")
    assert ready([plug, bell], 0) == []
    assert there.recv(100) == b"one two"


def test_what_has_come_is_handed_out_in_pieces(pair: tuple[BufferedSocket, socket.socket], bell: Wakeup) -> None:
    """And what is left of it can be read without waiting."""
    plug, there = pair
    there.sendall(b"abcdef")
    assert ready([plug, bell], 10) == [plug]
    assert plug.recv(4) == b"abcd"
    assert plug.pending() == 2
    assert ready([plug], 0) == [plug]
    assert plug.recv(4) == b"ef"
    there.close()
    assert ready([plug], 10) == [plug]
    assert plug.recv(4) == b""


def test_more_than_fits_goes_out_bit_by_bit(pair: tuple[BufferedSocket, socket.socket]) -> None:
    """While it waits for an answer."""
    plug, there = pair
    message = bytes(range(256)) * 20_000
    plug.send(message)
    assert not plug.flush()
    received = bytearray()

    def read() -> None:
        while len(received) < len(message):
            received.extend(there.recv(65_536))
        there.sendall(b"thanks")

    thread = threading.Thread(target=read)
    thread.start()
    assert ready([plug], 20) == [plug]
    thread.join()
    assert received == message
    assert plug.recv(100) == b"thanks"


def test_a_bell_wakes_who_sleeps(bell: Wakeup) -> None:
    """Each ring is heard once."""
    thread = threading.Thread(target=lambda: [bell.send(b"\0") for _ in range(3)])
    timer = threading.Timer(0.02, thread.start)
    timer.start()
    assert ready([bell], 20) == [bell]
    timer.join()
    thread.join()
    assert [bell.recv(1) for _ in range(3)] == [b"\0"] * 3
    with pytest.raises(BlockingIOError):
        bell.recv(1)
    assert ready([bell], 0) == []


def test_a_bell_can_be_rung_from_many_threads_without_a_ring_being_lost(bell: Wakeup) -> None:
    """However they fall together with somebody's falling asleep."""

    def ring() -> None:
        for _ in range(500):
            bell.send(b"\0")

    threads = [threading.Thread(target=ring) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2_000):
        assert ready([bell], 20) == [bell]
        bell.recv(1)
    for thread in threads:
        thread.join()
