"""Whoever cannot reach a service is told why."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import fencehold
from fencehold import Unavailable, UsageError
from fencehold.drivers import connect_errors as troubles
from rig.processes import free_port


@contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """A server that says the same to everybody and hangs up; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4_096)
                    connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            # Closing alone does not wake up who accepts.
            server.shutdown(socket.SHUT_RDWR)


def why(url: str) -> str:
    """What a client says that cannot reach this."""
    with pytest.raises(Unavailable) as failed, fencehold.connect(url, connect_timeout=1.0):
        pass
    return str(failed.value)


def test_nothing_listens() -> None:
    """The address, how long it was tried, and what to look at."""
    port = free_port()
    told = why(f"fencehold://alice:secret@127.0.0.1:{port}")
    assert told == (
        f"cannot reach fencehold://127.0.0.1:{port} within 1 s: Connection refused. "
        "Is `fencehold serve` running there?"
    )


def test_each_of_several_nodes_is_told() -> None:
    """By its address."""
    one, other = free_port(), free_port()
    told = why(f"fencehold://127.0.0.1:{one},127.0.0.1:{other}")
    assert f"127.0.0.1:{one}: Connection refused; 127.0.0.1:{other}: Connection refused." in told


def test_something_else_answers() -> None:
    """A web server does not speak the protocol."""
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert "it does not speak this protocol: is it a Fencehold server" in why(f"fencehold://127.0.0.1:{port}")


def test_it_hangs_up() -> None:
    """As a server does that waits for TLS."""
    with answering(b"") as port:
        assert "does it want TLS (fenceholds://)?" in why(f"fencehold://127.0.0.1:{port}")


def test_tls_to_a_plain_port() -> None:
    """The scheme to use is named."""
    with answering(b"-ERR protocol error\r\n") as port:
        assert "it does not speak TLS: use fencehold://" in why(f"fenceholds://127.0.0.1:{port}")


def test_a_redis_answers() -> None:
    """It greets as we do, and then knows no sessions: that is final, and not a matter of trying again."""
    greeting = b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
    refusal = b"-ERR unknown command 'SESSION.OPEN', with args beginning with: 'TTL' '30000'\r\n"
    with (
        answering(greeting + refusal) as port,
        pytest.raises(UsageError, match=f"127.0.0.1:{port} is a Redis, not a Fencehold server: use redis://"),
        fencehold.connect(f"fencehold://127.0.0.1:{port}"),
    ):
        pass


@pytest.mark.parametrize(
    "refusal",
    [
        b"-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH\r\n",
        b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
    ],
)
def test_a_redis_answers_that_wants_a_password_or_another_name(refusal: bytes) -> None:
    """It is a Redis all the same."""
    with (
        answering(refusal) as port,
        pytest.raises(UsageError, match=f"127.0.0.1:{port} is a Redis, not a Fencehold server: use redis://"),
        fencehold.connect(f"fencehold://127.0.0.1:{port}"),
    ):
        pass


def test_no_host_can_have_that_name() -> None:
    """It is not even looked up, as a part of it is too long; which is an error of another kind."""
    assert ": no host can have that name (" in why(f"fencehold://{'a' * 64}.invalid:1")


def test_no_such_host() -> None:
    """What the resolver says is passed on."""
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert troubles.of_attempt(unknown) == "no such host (Name or service not known)"


def test_a_certificate_that_is_not_trusted() -> None:
    """The reason is the verifier's own."""
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "certificate has expired"
    assert troubles.of_attempt(error) == "its certificate is not trusted: certificate has expired"


def test_other_errors_are_told_by_the_system_s_own_words() -> None:
    """Whatever they are."""
    assert troubles.of_attempt(OSError(101, "x")) == "Network is unreachable"
    assert troubles.of_attempt(TimeoutError()) == "TimeoutError"
