"""The small client: against a server that says what the test wants, in the pieces it wants."""

import socket
import threading
from collections.abc import Iterator

import pytest

from fencehold.cli.wire import CannotConnect, Wire, connect, facts
from fencehold.drivers.address import Endpoint
from fencehold.errors import NotOwner, OutcomeUnknown, Overloaded, Unavailable, UsageError

_HELLO = b"%2\r\n$4\r\nrole\r\n$6\r\nleader\r\n$7\r\nversion\r\n$1\r\n1\r\n"
_WAITING = _HELLO.replace(b"$6\r\nleader", b"$7\r\nwaiting")
_STANDBY = _HELLO.replace(b"$6\r\nleader", b"$7\r\nstandby")
_EVENT = b">2\r\n$5\r\nevent\r\n:7\r\n"


class Scripted(threading.Thread):
    """A server that answers each command it gets with the next of these, then closes; `then` to who comes next."""

    def __init__(self, *answers: bytes, then: tuple[bytes, ...] = ()) -> None:
        super().__init__(daemon=True)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._answers = (answers, then) if then else (answers,)
        self.heard: list[bytes] = []
        self.endpoint = Endpoint("127.0.0.1", self._listening.getsockname()[1])
        self.start()

    def run(self) -> None:
        with self._listening:
            for answers in self._answers:
                self._serve(answers)

    def _serve(self, answers: tuple[bytes, ...]) -> None:
        with self._listening.accept()[0] as connection:
            for answer in answers:
                self.heard.append(connection.recv(1 << 16))
                connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)


class Mutual(Scripted):
    """A standby that takes another for the leader."""

    names: Endpoint | None = None

    def _serve(self, answers: tuple[bytes, ...]) -> None:
        with self._listening.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(_STANDBY)
            connection.recv(1 << 16)
            text = str(self.names).encode()
            connection.sendall(_info(text))
            connection.recv(1 << 16)


def _info(leader: bytes) -> bytes:
    """What INFO says of who leads."""
    text = b"role:standby\r\nleader_address:%b\r\n" % leader
    return b"$%d\r\n%b\r\n" % (len(text), text)


@pytest.fixture
def wires() -> Iterator[list[Wire]]:
    made: list[Wire] = []
    yield made
    for wire in made:
        wire.close()


def _wire(wires: list[Wire], *answers: bytes) -> Wire:
    wires.append(Wire(Scripted(_HELLO, *answers).endpoint))
    return wires[-1]


def test_pushes_in_one_piece_with_a_reply_are_not_left_lying(wires: list[Wire]) -> None:
    """Whether they come before the reply or after it."""
    wire = _wire(wires, _EVENT + b"+OK\r\n" + _EVENT)
    assert wire.call("LOCK.WATCH", "") == "OK"
    assert wire.push(5) == ["event", 7]
    assert wire.push(5) == ["event", 7]


def test_no_push_in_time_is_none(wires: list[Wire]) -> None:
    """And not an error."""
    wire = _wire(wires, b"+OK\r\n", b"")
    wire.call("LOCK.WATCH", "")
    assert wire.push(0.01) is None


def test_an_error_of_the_server_is_ours(wires: list[Wire]) -> None:
    """By its code."""
    wire = _wire(wires, b"-NOTOWNER not yours\r\n")
    with pytest.raises(NotOwner, match="not yours"):
        wire.call("LOCK.RELEASE", "a", 1)


def test_a_lost_answer_is_unknown_if_something_may_have_happened(wires: list[Wire]) -> None:
    """A break that was not answered may have broken; a look cannot have."""
    with pytest.raises(OutcomeUnknown):
        _wire(wires, b"").call("LOCK.BREAK", "a")
    with pytest.raises(Unavailable):
        _wire(wires, b"").call("LOCK.INFO", "a")


def test_a_closed_connection_ends_the_wait_for_a_push(wires: list[Wire]) -> None:
    """It is Unavailable, not silence."""
    with pytest.raises(Unavailable):
        _wire(wires).push(5)


def test_of_several_nodes_the_one_that_leads_is_taken(wires: list[Wire]) -> None:
    """One that does not lead is better than none."""
    waiting, leading = Scripted(_WAITING), Scripted(_HELLO)
    wires.append(connect(f"fencehold://{waiting.endpoint},{leading.endpoint}"))
    assert wires[0].endpoint == leading.endpoint
    wires.append(connect(f"fencehold://{Scripted(_WAITING).endpoint}", patience_s=0))
    assert wires[1].hello["role"] == "waiting"


def test_a_standby_is_asked_who_leads(wires: list[Wire]) -> None:
    """The node it names is taken, though the URL does not name it; unless only those named are wanted."""
    leading = Scripted(_HELLO)
    url = f"fencehold://{Scripted(_STANDBY, _info(str(leading.endpoint).encode())).endpoint}"
    wires.append(connect(url, patience_s=0))
    assert wires[0].endpoint == leading.endpoint
    url = f"fencehold://{Scripted(_STANDBY).endpoint}"
    wires.append(connect(url, patience_s=0, named_only=True))
    assert wires[1].hello["role"] == "standby"


def test_two_standbys_that_name_each_other_are_asked_once(wires: list[Wire]) -> None:
    """There is no circle to run in."""
    first, second = Mutual(), Mutual()
    first.names, second.names = second.endpoint, first.endpoint
    wires.append(connect(f"fencehold://{first.endpoint}", patience_s=0))
    assert wires[0].endpoint == first.endpoint


def test_while_none_leads_it_looks_again(wires: list[Wire]) -> None:
    """A change of leaders takes a moment, and is no reason to fail."""
    server = Scripted(_WAITING, b"-UNAVAILABLE no node leads\r\n", then=(_HELLO,))
    wires.append(connect(f"fencehold://{server.endpoint}"))
    assert wires[0].leads


def test_no_node_at_all_says_where_and_what_to_do() -> None:
    """With every address that was tried."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotConnect, match=where) as failed:
            connect(f"fencehold://{where}")
    assert "fencehold serve" in failed.value.hint


@pytest.mark.parametrize(
    "greeting",
    [
        b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
        b"-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH\r\n",
        b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        b"-ERR unknown command 'HELLO', with args beginning with: '3'\r\n",
    ],
    ids=["it greets", "it wants a password", "it wants another password", "it is too old to greet"],
)
def test_a_redis_is_told_for_what_it_is(greeting: bytes) -> None:
    """At once, and with the scheme to use: it would answer other commands with what we cannot read."""
    where = Scripted(greeting).endpoint
    with pytest.raises(UsageError, match=f"^{where} is a Redis, not a Fencehold server: use redis://{where}$"):
        connect(f"fencehold://{where}")


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it does not speak this protocol: is it a Fencehold server"),
        (b"+OK\r\n", "it does not speak this protocol: is it a Fencehold server"),
        (b"", "it closed the connection before it answered: does it want TLS"),
    ],
    ids=["a web server", "no greeting", "it hangs up"],
)
def test_what_is_no_server_of_ours_is_told_as_the_sdk_does(greeting: bytes, why: str) -> None:
    """With the address, once."""
    where = Scripted(greeting).endpoint
    with pytest.raises(CannotConnect, match=f"^cannot reach a server at {where}: {why}"):
        connect(f"fencehold://{where}")


def test_a_host_that_does_not_exist_is_told() -> None:
    """Also one that none can be called."""
    with pytest.raises(CannotConnect, match="no host can have that name"):
        connect(f"fencehold://{'a' * 64}.invalid")


def test_a_backend_is_nobody_who_could_be_asked() -> None:
    """What takes such a URL is named."""
    with pytest.raises(UsageError, match=r"asks a Fencehold server, and redis:// names none.*`fencehold run"):
        connect("redis://127.0.0.1")


def test_facts_are_read_from_info(wires: list[Wire]) -> None:
    """Numbers as numbers."""
    text = b"# Fencehold\r\nrole:leader\r\nposition:12\r\n"
    assert facts(_wire(wires, b"$%d\r\n%b\r\n" % (len(text), text))) == {"role": "leader", "position": 12}


def test_a_server_that_is_busy_is_asked_again() -> None:
    """Nothing happened, so whatever was called is called again, within the time of the call."""
    server = Scripted(_HELLO, b"-BUSY 1 too much to do\r\n", b"-BUSY 1 too much to do\r\n", b"+OK\r\n")
    wire = Wire(server.endpoint)
    try:
        assert wire.call("LOCK.RELEASE", "a", 1) == "OK"
    finally:
        wire.close()
    assert len(server.heard) == 4


def test_a_server_that_is_busy_for_too_long_is_told_of_as_such() -> None:
    """It is not asked sooner than it said."""
    server = Scripted(_HELLO, b"-BUSY 60000 no room\r\n")
    wire = Wire(server.endpoint)
    try:
        with pytest.raises(Overloaded, match="the service is busy: no room"):
            wire.call("LOCK.RELEASE", "a", 1, timeout=4)
    finally:
        wire.close()
    assert len(server.heard) == 2
