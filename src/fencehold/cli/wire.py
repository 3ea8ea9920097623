"""A small synchronous client, for commands that inspect, or that manage one session themselves.

1. It opens no session: inspecting needs none. Commands that hold something while they run use the SDK.
2. A call ends within its timeout. If the answer to a call that changes something was lost, that is
   `OutcomeUnknown`, never a no.
3. Of several nodes it uses the leader, also if the URL names only a standby that knows it. While there is none, as
   during a failover, it retries for a while.
4. After BUSY it retries within the time of the call: nothing happened.
"""

import contextlib
import random
import select
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, TypeVar

import hiredis

from fencehold import __version__
from fencehold.cli.output import ago, clean, note
from fencehold.client import login
from fencehold.client.endpoints import SILENT
from fencehold.client.protocol.connection import HUNG_UP, NO_PROTOCOL, Backoff
from fencehold.drivers.address import Endpoint, ServiceAddress, endpoint, service_address
from fencehold.drivers.connect_errors import NOT_TLS, of_attempt
from fencehold.drivers.resp.wire import command, error, is_redis, refused, split
from fencehold.drivers.tls import client_context, files_of_environment
from fencehold.errors import FenceholdError, OutcomeUnknown, Overloaded, Unavailable, UsageError
from fencehold.placement.map import ShardMap, SlotRange

CONNECT_TIMEOUT_S = 2.0
GREET_TIMEOUT_S = 3.0
"""A paused node accepts connections and does not answer: try the next one."""
CALL_TIMEOUT_S = 10.0
LEADER_S = 5.0
"""How long to look for a leader while nodes answer and none leads. The same as in the SDK."""
_AGAIN_S = 0.1
_TEXT = ("utf-8", "replace")

Result = TypeVar("Result")

_READS = frozenset(
    {
        "HELLO",
        "PING",
        "INFO",
        "NODE.BACKUP",
        "NODE.HEALTH",
        "NODE.LIST",
        "LOCK.HISTORY",
        "LOCK.INFO",
        "LOCK.LIST",
        "SHARD.MAP",
        "CELL.MAP",
        "SHARD.MOVES",
        "SESSION.LIST",
        "LOCK.WATCH",
        "SESSION.RESUME",
    }
)


class CannotConnect(Unavailable):
    """No server there. Certainly nothing happened."""

    hint = "start one with: fencehold serve    or say where it is: --url fencehold://host:port, or $FENCEHOLD_URL"

    def __init__(self, message: str, hint: str = "") -> None:
        """`hint`: what to do about it, if it is not that none is there."""
        super().__init__(message)
        self.hint = hint or self.hint


class Wire:
    """One connection, greeted, in RESP3."""

    def __init__(
        self,
        endpoint: Endpoint,
        *more: str,
        connect_s: float = CONNECT_TIMEOUT_S,
        greet_s: float = GREET_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect and greet, with more words in the greeting if there are any.

        Raises:
            OSError, UnicodeError: it cannot be reached.
            FenceholdError: the server refuses us, or is not a Fencehold server.
        """
        self.endpoint = endpoint
        self.url = f"{'fencehold' if tls is None else 'fenceholds'}://{endpoint}"
        """Where it is connected to, without credentials."""
        self.certificate: bytes | None = None
        """The certificate of the server, in DER form; None if it does not speak TLS."""
        self._reader = hiredis.Reader(encoding=_TEXT[0], errors=_TEXT[1])
        self._pushes: deque[list[Any]] = deque()
        self._socket = socket.create_connection(endpoint, timeout=connect_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = secured = tls.wrap_socket(self._socket, server_hostname=endpoint.host)
                self.certificate = secured.getpeercert(True)
            words: tuple[str | int, ...] = ("HELLO", 3, *more, "SETNAME", f"fencehold-cli/{__version__}")
            self.hello = self._greeted(words, greet_s)
        except BaseException:
            self._socket.close()
            raise

    def call(self, *words: str | int, timeout: float = CALL_TIMEOUT_S) -> Any:
        """Send a command and wait for its reply; retried as long as the server is busy.

        Raises:
            Overloaded: it was busy all the time.
            OutcomeUnknown: no answer came to something that changes the state.
            Unavailable: no answer came to something that does not.
            FenceholdError: the error of the server.
        """
        return patiently(lambda: self.call_once(*words, timeout=timeout), time.monotonic() + timeout)

    def call_once(self, *words: str | int, timeout: float = CALL_TIMEOUT_S) -> Any:
        """As `call`, but without retries after BUSY."""
        try:
            reply = self._asked(words, timeout)
        except (OSError, hiredis.ProtocolError) as lost:
            raise self._lost(str(words[0]), lost) from lost
        if isinstance(reply, hiredis.ReplyError):
            raise error(*split(str(reply)))
        return reply

    def fetch(self, *words: str | int) -> bytes | None:
        """Send a command whose reply is bytes, not text; null is None. Raises as `call`."""
        self._reader.set_encoding(None)
        try:
            reply: bytes | None = self.call(*words)
        finally:
            self._reader.set_encoding(*_TEXT)
        return reply

    @property
    def leads(self) -> bool:
        """Whether it led when it greeted us."""
        return bool(self.hello.get("role") == "leader")

    def leader(self) -> list[Endpoint]:
        """The leader's address, if this node knows it."""
        with contextlib.suppress(FenceholdError):
            # NODE.LIST is for administrators; INFO is for all clients.
            address = str(_facts_in(self.call("INFO", timeout=GREET_TIMEOUT_S)).get("leader_address", ""))
            return [endpoint(address)] if address else []
        return []

    def push(self, timeout: float | None) -> list[Any] | None:
        """The next push, waited for; None if none came in time. A `timeout` of None waits without limit.

        Raises:
            Unavailable: the connection was closed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        # First what arrived together with the last reply: the socket does not become readable for it again.
        while not self._unpack():
            wait = None if until is None else max(0.0, until - time.monotonic())
            if not self._has_read_ahead() and not select.select([self._socket], [], [], wait)[0]:
                return None
            try:
                self._feed()
            except (OSError, hiredis.ProtocolError) as lost:
                raise self._lost("PING", lost) from lost
        return self._pushes.popleft()

    def close(self) -> None:
        self._socket.close()

    def _has_read_ahead(self) -> bool:
        """Whether TLS has read more than it gave us: the socket would not become readable for that again."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _greeted(self, words: tuple[str | int, ...], timeout: float) -> dict[str, Any]:
        """The greeting of the other side, if it is a Fencehold server."""
        try:
            reply = self._asked(words, timeout)
        except hiredis.ProtocolError as error:
            raise Unavailable(NO_PROTOCOL) from error
        except TimeoutError as error:
            raise Unavailable(SILENT) from error
        except ConnectionResetError as error:
            raise Unavailable(HUNG_UP) from error
        except ssl.SSLError as error:
            # With TLS 1.3 a server reports only now that it refuses our certificate.
            raise Unavailable(of_attempt(error)) from error
        if isinstance(reply, hiredis.ReplyError):
            raise refused(str(self.endpoint), *split(str(reply)))
        if not isinstance(reply, dict):
            raise Unavailable(NO_PROTOCOL)
        if reply.get("server", "fencehold") != "fencehold":
            raise is_redis(str(self.endpoint))
        return reply

    def _asked(self, words: tuple[str | int, ...], timeout: float) -> Any:
        until = time.monotonic() + timeout
        self._socket.settimeout(timeout)
        self._socket.sendall(command(*words))
        return self._reply(until)

    def _reply(self, until: float) -> Any:
        while True:
            while (reply := self._reader.gets()) is not False:
                if not self._sort(reply):
                    return reply
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            self._feed()

    def _unpack(self) -> bool:
        """Parse what was received; returns whether there is a push."""
        while (reply := self._reader.gets()) is not False:
            self._sort(reply)
        return bool(self._pushes)

    def _feed(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self._reader.feed(data)

    def _sort(self, reply: Any) -> bool:
        """Keep a push for later; returns whether it was one."""
        if isinstance(reply, hiredis.PushNotification):
            self._pushes.append(list(reply))
            return True
        return False

    def _lost(self, word: str, lost: Exception) -> FenceholdError:
        kind: type[FenceholdError] = Unavailable if word in _READS else OutcomeUnknown
        return kind(f"no answer to {word} from {self.endpoint}: {lost}")


def patiently(ask: Callable[[], Result], until: float, rest_s_max: float = inf) -> Result:
    """Send, and retry while the server is busy and there is time. A user at a terminal is informed once.

    Raises:
        Overloaded: it was busy until then, or would be.
    """
    backoff, times = Backoff(random.random), 0
    while True:
        try:
            return ask()
        except Overloaded as busy:
            times += 1
            rest_s = min(backoff.rest_of(busy, times), rest_s_max)
            left_s = until - time.monotonic()
            if rest_s > left_s:
                raise
            if times == 1:
                _tell_busy(busy, left_s)
        time.sleep(rest_s)


def _tell_busy(busy: Overloaded, left_s: float) -> None:
    if sys.stderr.isatty():
        note(f"fencehold: {clean(busy)}; trying again" + (f" for {ago(left_s * 1000)}" if left_s < inf else ""))


@contextlib.contextmanager
def wired(
    url: str,
    *,
    patience_s: float = LEADER_S,
    named_only: bool = False,
    tier: str = "",
    name: str | None = None,
    shard: int | None = None,
) -> Iterator[Wire]:
    """A connection to the server of a URL, closed at the end; to a `shard`, or to that of a `name`."""
    wire = connect(url, patience_s=patience_s, named_only=named_only, tier=tier, name=name, shard=shard)
    try:
        yield wire
    finally:
        wire.close()


def connect(
    url: str,
    *,
    patience_s: float = LEADER_S,
    named_only: bool = False,
    tier: str = "",
    name: str | None = None,
    shard: int | None = None,
) -> Wire:
    """Connect to the leader, which the nodes of the URL may know; failing that, to a node that answers.

    With `named_only`, only to those that the URL names. A given `tier` is requested. Of a service with several
    shards, a `shard` is chosen: the one that is given, or that of a `name`.

    Raises:
        CannotConnect: none answers.
        UsageError: what answers is a Redis, or the files of TLS cannot be used.
    """
    address = address_of(url)
    until = time.monotonic() + patience_s
    while True:
        wire = _found(address, named_only, tier, shard)
        if name is not None and shard is None and (placed := map_of(wire)) is not None:
            shard = placed.shard_of_name(name)
            wire.close()
            continue
        if wire.leads or time.monotonic() >= until:
            return wire
        wire.close()
        time.sleep(_AGAIN_S)


def address_of(url: str) -> ServiceAddress:
    """The nodes that a URL names.

    Raises:
        UsageError: it names none; a backend that is used directly has no server to ask.
    """
    try:
        return service_address(url)
    except UsageError:
        # Not at the top: few commands end here.
        from fencehold.backends.registry import scheme_of  # noqa: PLC0415

        if not (scheme := scheme_of(url)):
            raise
        raise UsageError(
            f"this command asks a Fencehold server, and {scheme}:// names none: "
            f"it is for the SDK and for `fencehold run --url {scheme}://…`"
        ) from None


def login_of(address: ServiceAddress) -> tuple[str, ...]:
    """The login words of a greeting.

    Raises:
        UsageError: the file of the secret cannot be read.
    """
    return login.words_of(login.login_of(address.user, address.secret))


def tls_of(address: ServiceAddress) -> ssl.SSLContext | None:
    """The TLS of connections to its nodes, if it asks for TLS.

    Raises:
        UsageError: a file cannot be read, or is invalid.
    """
    return None if address.tls is None else client_context(address.tls.over(files_of_environment()))


def map_of(wire: Wire) -> ShardMap | None:
    """Which shard has which names; None if there is one."""
    if int(wire.hello.get("shards", 1)) <= 1:
        return None
    told = wire.call("SHARD.MAP")
    return ShardMap(told["version"], told["shards"], tuple(SlotRange(*each) for each in told["ranges"]))


def _found(address: ServiceAddress, named_only: bool, tier: str, shard: int | None) -> Wire:
    """The leader, or the first node that answers."""
    chosen = () if shard is None else ("SHARD", str(shard))
    words, tls = (*login_of(address), *chosen, *(("TIER", tier) if tier else ())), tls_of(address)
    to_try, tried = deque(address.endpoints), set[Endpoint]()
    waiting: list[Wire] = []
    failures: dict[Endpoint, Exception] = {}
    while to_try:
        endpoint = to_try.popleft()
        if endpoint in tried:
            continue
        tried.add(endpoint)
        try:
            wire = Wire(endpoint, *words, tls=tls)
        except (OSError, UnicodeError, FenceholdError) as failure:
            failures[endpoint] = failure
            continue
        if wire.leads:
            _close(waiting)
            return wire
        waiting.append(wire)
        to_try.extendleft(() if named_only else wire.leader())
    if not waiting:
        raise _none_reached(failures)
    _close(waiting[1:])
    return waiting[0]


def told(failure: Exception) -> str:
    """Why a node was not reached, as the SDK words it."""
    return of_attempt(failure) if isinstance(failure, OSError | UnicodeError) else str(failure)


def _none_reached(failures: dict[Endpoint, Exception]) -> FenceholdError:
    """The message for all of them: a node that rejects us, or is a Redis, comes before unreachable ones."""
    for failure in failures.values():
        if isinstance(failure, FenceholdError) and not isinstance(failure, Unavailable):
            return failure
    return CannotConnect(
        "cannot reach a server at " + "; ".join(f"{node}: {told(why)}" for node, why in failures.items()),
        next(filter(None, map(_tls_hint, failures.values())), ""),
    )


_WRONG_HOST = (62, 64)
"""The codes by which OpenSSL reports a certificate for another host, or another address."""


def _tls_hint(failure: Exception) -> str:
    """What to do about a server that is up, but with which no handshake succeeded; empty: it is not that."""
    failed = failure.__cause__ if isinstance(failure, Unavailable) else failure
    if not isinstance(failed, ssl.SSLError):
        return ""
    if not isinstance(failed, ssl.SSLCertVerificationError):
        if failed.reason in NOT_TLS:
            return "use fencehold:// in --url or $FENCEHOLD_URL"
        return "the server's log says why; name your certificate: $FENCEHOLD_CERT and $FENCEHOLD_KEY"
    if failed.verify_code in _WRONG_HOST:
        return "connect to a host name of its certificate, or get one signed for this host"
    return "name the CA that signed its certificate: $FENCEHOLD_CA, or ?ca=FILE in the URL"


def _close(wires: list[Wire]) -> None:
    for wire in wires:
        wire.close()


def facts(wire: Wire) -> dict[str, str | int]:
    """The facts of INFO, as a dictionary."""
    return _facts_in(wire.call("INFO"))


def _facts_in(told: object) -> dict[str, str | int]:
    lines = (line.partition(":") for line in str(told).splitlines() if ":" in line)
    return {key: int(value) if value.lstrip("-").isdigit() else value for key, _, value in lines}
