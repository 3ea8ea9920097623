"""The listener itself: where it listens, whom it admits, and how it closes.

1. Where other machines can connect it speaks TLS and requires a login, unless told to trust the network
   (`security/exposure.py`).
2. Connections are bounded in number; one beyond that gets an error and is disconnected. So are handshakes.
3. Closing lets pending requests be answered, then disconnects all clients. Explicit sessions live on, to be
   resumed when the server is back; implicit ones end with their connections.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any, cast

from fencehold.core.policy import User
from fencehold.doors.resp import (
    authentication,
    backups,
    cell_commands,
    hello,
    lock_commands,
    nodes,
    observe_commands,
    policy_commands,
    query_commands,
    replies,
    router,
    session_commands,
    shard_commands,
    tiers,
    watch_commands,
)
from fencehold.doors.resp.backlog import Backlog, Turns
from fencehold.doors.resp.bounds import Bounds
from fencehold.doors.resp.broadcast import Broadcast
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.guard import Guard
from fencehold.doors.resp.outbox import Turn
from fencehold.doors.resp.traffic import Traffic
from fencehold.locks.log import Teller
from fencehold.node.engine_health import Checkup
from fencehold.node.node import Node
from fencehold.node.shards import Shards
from fencehold.node.volatile import Volatile
from fencehold.observe.feed import Feed
from fencehold.placement.cells import Reach
from fencehold.runtime.clock import Clock, MonotonicClock
from fencehold.runtime.ids import Secrets, new_secret
from fencehold.runtime.shared import SharedThings
from fencehold.security.admission import OWN_LISTENER, Admission, How, by_certificate
from fencehold.security.audit import AuditLog, Denials, Told, Who
from fencehold.security.certificates import NoPrincipal
from fencehold.security.exposure import check_host
from fencehold.security.listener import HandshakeBounds, TlsListener
from fencehold.security.rights import check_registered
from fencehold.security.secrets import Secrets as UserSecrets
from fencehold.security.tls import Certificates, Clients
from fencehold.types import Tier

_PLAIN = "redis client"
_SPEAKS_TLS = b"-ERR this listener of a Fencehold server speaks TLS: use fenceholds://, or redis-cli --tls\r\n"

ADMIN = (b"LOCK.BREAK", b"NODE.BACKUP", b"POLICY.APPLY", b"CELL.APPLY", b"CELL.CLOSE", b"CELL.SEAL", b"CELL.OPEN")
"""What only administrators should do: each request for it is in the audit log."""

_DENIALS = Teller("fencehold.server.denied")
_REVOKED = "the client certificate was revoked"
_BY_TOKEN = (How.TOKEN, How.LISTENER)
_REFUSED_MAX = 10
"""How many refused clients are reported between two sweeps."""

SWEEP_S = 1.0
"""How often connections are checked, at least."""


class Door:
    """One listening socket and the connections that came through it."""

    def __init__(  # noqa: PLR0915
        self,
        node: Node,
        *,
        volatile: Volatile | None = None,
        shards: Shards | None = None,
        bounds: Bounds | None = None,
        new_secret: Secrets = new_secret,
        clock: Clock | None = None,
        certificates: Certificates | None = None,
        admission: Admission | None = None,
        asks: bool = False,
    ) -> None:
        self.node = node
        """The machine of a connection that does not ask for the other tier."""
        self.volatile = volatile
        self.shards = shards
        """What it hosts, if the service has several; `node` and `volatile` are those of the first."""
        if shards is not None:
            shards.on_map = self._on_map
        self.spans = Reach.NONE
        """How the members of the engine are spread, as given."""
        self.advertised = ""
        """Where clients that should connect here are sent."""
        self.bounds = bounds or Bounds()
        self.new_secret = new_secret
        self.checkup = Checkup(node.journal)
        self.turn = Turn()
        node.speech.begin, node.speech.end = self.turn.hold, self.turn.end
        self.clock = clock or MonotonicClock()
        self.backlog = Backlog(self.clock)
        self.traffic = Traffic()
        self.connections: dict[Connection, None] = {}
        """In the order of arrival."""
        self.broadcasts: dict[Node, Broadcast] = {}
        """Of the machines that are watched."""
        self._numbers = count(1)
        self.handlers = registered(
            {
                **hello.HANDLERS,
                **authentication.HANDLERS,
                **session_commands.HANDLERS,
                **lock_commands.HANDLERS,
                **query_commands.HANDLERS,
                **watch_commands.HANDLERS,
                **policy_commands.HANDLERS,
                **nodes.HANDLERS,
                **observe_commands.HANDLERS,
                **backups.HANDLERS,
                **tiers.HANDLERS,
                **shard_commands.HANDLERS,
                **cell_commands.HANDLERS,
            }
        )
        self.handlers_routed = router.routed(self.handlers)
        """The same, for connections that have chosen no shard of several."""
        self.handlers_before = authentication.before_admission(self.handlers)
        """The same, for unauthenticated connections."""
        self.admission = admission or Admission()
        self._has_users_of_policy = self.admission.check_user is None
        self.asks = asks
        """Whether authentication is required."""
        self.host = ""
        """Where it listens."""
        self.on_denied: Callable[[Connection, str, str], None] = self._note_denied
        """Called with who was denied what, and further detail if there is any."""
        self.observer: Feed | None = None
        """What counts and keeps history, beside the node, if anything does."""
        self.denials = self.unknown_commands = 0
        """How many requests were denied, and how many commands were unknown, since it was opened."""
        self.audit: AuditLog | None = None
        self._denials: Denials | None = None
        self.certificates = certificates
        """What it speaks TLS with; None: it does not."""
        self.on_refused: Callable[[str, str], None] = _ignore
        """Called with the address of a client that was refused, and why; rate-limited."""
        self._refused = 0
        self.guard: Guard | None = None
        """None while there is no policy: then nothing is checked."""
        self.secrets = UserSecrets()
        self._tasks: set[asyncio.Task[None]] = set()
        self.turns = SharedThings(Turns)
        """The turns that all connections of a principal share; without a principal, each has its own."""
        self._look_at_policy()
        node.on_policy.append(self._look_at_policy)
        self._server: asyncio.Server | None = None
        self._listener: TlsListener | None = None
        self._watching: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._draining = False
        self._closed = asyncio.Event()
        node.on_deposed = self.dismiss

    @property
    def admits_nobody(self) -> bool:
        """Whether authentication is required, and no client can pass it."""
        has_certificates = self.certificates is not None and self.certificates.tls.clients is not Clients.NONE
        return self.asks and not has_certificates and not self.admission.has_logins

    async def open(self, host: str, port: int, *, insecure: bool = False) -> int:
        """Listen; returns the port, which the system chooses if 0 was given.

        Raises:
            UsageError: the address is not loopback, and `insecure` was not given.
            OSError: it cannot listen on the address.
        """
        self.host = host
        check_host(host, insecure=insecure, tls=self.certificates is not None, asks=self.asks)
        if self.certificates is not None:
            port = await self._open_secure(self.certificates, host, port)
        else:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._connection, host, port, backlog=1_024)
            port = int(self._server.sockets[0].getsockname()[1])
        self._sweeping = asyncio.create_task(self._sweep())
        return port

    def _connection(self) -> asyncio.Protocol:
        # It is one in all but its base class.
        return cast(asyncio.Protocol, Connection(self))

    async def _open_secure(self, certificates: Certificates, host: str, port: int) -> int:
        bounds = HandshakeBounds(self.bounds.handshakes_max, self.bounds.handshake_seconds_max)
        self._listener = TlsListener(
            self._connection,
            certificates,
            bounds,
            plain_reply=_SPEAKS_TLS,
            on_trouble=self.refuse,
        )
        port = await self._listener.open(host, port)
        certificates.on_revoked = self._end_revoked_certificates
        self._watching = asyncio.create_task(certificates.watch(), name="fencehold certificates")
        return port

    def refuse(self, peer: str, why: str) -> None:
        """Report a refused client; a flood of them must not become a flood of messages."""
        self._refused += 1
        if self._refused <= _REFUSED_MAX:
            self.on_refused(peer, why)

    def drain(self) -> None:
        """Admit no client and accept no more commands; those accepted will be answered."""
        self._draining = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            _close(self._server)
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self.connections):
            connection.stop_reading()
            for member in connection.members():
                if member.implicit:
                    member.close()

    def dismiss(self, node: Node | None = None) -> None:
        """Another node leads: let all clients go there, whatever the tier. They resend what was not answered.

        With a `node`, only those that belong to its shard.
        """
        for connection in tuple(self.connections):
            if node is None or connection.belongs_to(node):
                connection.end()

    def machine_of(self, place: Node, tier: Tier) -> Node | None:
        """The machine that serves a tier where the journal's machine is `place`; None if there is none."""
        if tier is Tier.CORRECTNESS:
            return place
        if self.shards is not None and place.home is not None:
            return self.shards.hosts[place.home.shard].volatile.node
        return None if self.volatile is None else self.volatile.node

    async def close(self) -> None:
        """Disconnect all clients; one that does not read its last replies does not get them."""
        await self.checkup.end()
        for task in tuple(self._tasks):
            task.cancel()
        self.secrets.close()
        self._closed.clear()
        for connection in tuple(self.connections):
            connection.end()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_closed(), self.bounds.closing_seconds_max)
        for connection in tuple(self.connections):
            connection.abort()
        await self._all_closed()

    async def _all_closed(self) -> None:
        if self.connections:
            await self._closed.wait()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside the commands; it ends when the listener closes, at the latest."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _look_at_policy(self) -> None:
        book = self.node.rulebook
        self.guard = None if book is None else Guard(self, book)
        if self._has_users_of_policy:
            self.admission.check_user = None if book is None else self._check_user
            self.admission.recall = self._recall
        self.admission.find_token = book.find_token if book is not None else lambda _digest: None
        if any(connection.known.token for connection in self.connections):
            # In the next turn: the clients affected are told first what became of their sessions.
            asyncio.get_running_loop().call_soon(self._end_revoked)

    def _end_revoked_certificates(self) -> None:
        """End the connections whose certificates are on a revocation list now."""
        revoked = self.certificates.revoked if self.certificates is not None else frozenset()
        for connection in tuple(self.connections):
            if connection.known.certificate in revoked and not connection.ending:
                self.refuse(connection.peer, _REVOKED)
                self.on_denied(connection, _REVOKED, "")
                connection.end("DENIED", _REVOKED)

    def _end_revoked(self) -> None:
        """End the connections of tokens that are no longer valid; a listener's admits its clients."""
        tokens = [
            each
            for each in self.connections
            if each.known_by in _BY_TOKEN and each.known is not OWN_LISTENER and not each.ending
        ]
        if not tokens:
            return
        book, now_s = self.node.rulebook, time.time()
        in_file = self.admission.tokens.digests() if self.admission.tokens is not None else frozenset()
        for connection in tokens:
            known = connection.known
            if known.token:
                whose = known.listener or known.principal
                is_there = book is not None and book.rights_of(whose).is_there(known.token)
            else:
                is_there = known.digest in in_file
            if not is_there or now_s >= known.expires_s:
                self.on_denied(connection, "a token that was revoked, or has expired", "")
                connection.end("NOAUTH", "the token of this connection was revoked, or has expired")

    def _recall(self, user: str, secret: str) -> bool:
        return self.secrets.recall(user, secret, self._user(user))

    async def _check_user(self, user: str, secret: str) -> bool:
        return await self.secrets.check(user, secret, self._user(user))

    def _user(self, name: str) -> User | None:
        book = self.node.rulebook
        return None if book is None else book.policy.users.get(name)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def handlers_of(self, connection: Connection) -> dict[bytes, Handler]:
        """The commands that a connection may give, logged in or not."""
        if self.asks and not connection.principal:
            return self.handlers_before
        return self.handlers_routed if self.shards is not None and connection.shard is None else self.handlers

    def is_node(self, connection: Connection) -> bool:
        """Whether it is another node: it showed a certificate of the same principal as this node's own."""
        own = self.certificates.principal if self.certificates is not None else ""
        return bool(own) and connection.known_by is How.CERTIFICATE and connection.principal == own

    def on_opened(self, connection: Connection) -> None:
        self.connections[connection] = None
        connection.number = next(self._numbers)
        if self.certificates is not None:
            self._know(connection)
        if self._draining:
            connection.end("UNAVAILABLE", "stopping")
        elif len(self.connections) > self.bounds.connections_max:
            connection.end("LIMIT", f"at most {self.bounds.connections_max} connections")

    def on_attached(self, connection: Connection, session: int) -> None:
        """A connection speaks for a session from here on."""
        if self.audit is not None:
            self.audit.know(session, self._who(connection, name_in(connection.node.meta_of(session))))

    def _who(self, connection: Connection, client: str = "") -> Who:
        origin, peer = connection.origin, connection.peer
        where, via = (peer, "") if origin is None else (origin.address, peer)
        return Who(
            connection.principal,
            connection.known_by.value,
            where,
            connection.name or client,
            connection.library,
            via,
        )

    def audit_with(self, log: AuditLog) -> None:
        """Log denials and acts of administrators, and who is behind each session."""
        self.audit, self._denials = log, Denials(log)
        for word in ADMIN:
            # Logged before it is done: the request must be on record whatever its outcome.
            self.handlers[word] = partial(self._act, self.handlers[word])
        self.handlers_routed = router.routed(self.handlers)

    def _note_denied(self, connection: Connection, what: str, detail: str) -> None:
        self.denials += 1
        who, origin = self._who(connection), connection.origin
        facts = {"principal": who.principal, "peer": who.peer, "what": what}
        facts |= {"via": who.via} if who.via else {}
        _DENIALS.tell(logging.WARNING, "denied", facts={**facts, "why": detail} if detail else facts)
        if self._denials is not None:
            address = connection.address if origin is None else origin.address
            self._denials.tell(Told("denied", who, what, detail=detail), address)

    def _act(self, handler: Handler, connection: Connection, words: list[bytes], slot: Slot) -> None:
        if self.audit is not None:
            verb = words[0].decode(errors="replace").upper()
            said = tuple(ascii(word.decode(errors="replace"))[1:-1][:256] for word in words[1:2])
            is_break = verb == "LOCK.BREAK"
            names, detail = (said, "") if is_break else ((), " ".join(said))
            self.audit.tell(Told("act", self._who(connection), verb, names, detail))
        handler(connection, words, slot)

    def _know(self, connection: Connection) -> None:
        """Authenticate by its certificate, if it showed one; with an invalid one it is refused."""
        try:
            known = by_certificate(connection.ssl_object)
            if self.certificates is not None and known.certificate in self.certificates.revoked:
                # A full handshake refuses it; but one that resumes a session of TLS 1.2 does not check again.
                raise NoPrincipal(_REVOKED)
            connection.admit(known)
        except NoPrincipal as error:
            self.refuse(connection.peer, str(error))
            self.on_denied(connection, str(error), "")
            connection.end("DENIED", str(error))

    def _on_map(self) -> None:
        """Notify all watchers that slots move: what they watch may be reported elsewhere from now on."""
        if self.shards is not None:
            told = replies.push("map", self.shards.map.version)
            for connection in tuple(self.connections):
                if connection.watching is not None:
                    connection.push(told)

    def on_closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if connection.watching is not None:
            connection.watching.end()
        connection.end_backup()
        if connection.goodbye is not None:
            connection.place.standbys.leave(connection.goodbye)
        if not self.connections:
            self._closed.set()

    def called(self, connection: Connection) -> str:
        """The name of a client: as it named its connection or itself, or a plain one."""
        said = "" if connection.member is None else connection.node.meta_of(connection.member.session)
        return connection.name or name_in(said) or _PLAIN

    def meta_of(self, connection: Connection) -> str:
        """What is shown of a plain client that holds a name."""
        return json.dumps({"client": connection.name or _PLAIN, "peer": connection.peer})

    async def _sweep(self) -> None:
        """Periodically: end what hangs, keep alive what is there."""
        keep_alive_s = self.bounds.implicit_renewal_s
        next_keep_alive = self.now() + keep_alive_s
        while True:
            await asyncio.sleep(min(SWEEP_S, self.bounds.frame_seconds_max / 2, keep_alive_s))
            self._end_what_hangs()
            self._end_what_never_reads()
            self._end_round()
            self._end_revoked()
            self.traffic.look(self.connections, self.now())
            if self.now() >= next_keep_alive:
                next_keep_alive = self.now() + keep_alive_s
                self._keep_implicit_alive()

    def _end_round(self) -> None:
        self._refused = 0
        if self._denials is not None:
            self._denials.end_round()

    def _end_what_hangs(self) -> None:
        now = self.now()
        for connection in tuple(self.connections):
            connection.end_if_hanging(now, self.bounds.frame_seconds_max)
            if connection.backup is not None and connection.backup.is_overdue(now):
                connection.end_backup()

    def _end_what_never_reads(self) -> None:
        """Disconnect clients that read too little, those with most unread first, until the rest is bearable."""
        full = [connection for connection in self.connections if connection.is_full and not connection.ending]
        unsent_bytes = sum(connection.unsent_bytes for connection in full)
        for connection in sorted(full, key=lambda each: -each.unsent_bytes):
            if unsent_bytes <= self.bounds.unsent_bytes_total_max:
                return
            unsent_bytes -= connection.unsent_bytes
            connection.let_go()

    def _keep_implicit_alive(self) -> None:
        for connection in self.connections:
            for member in connection.members():
                if member.implicit:
                    member.keep_alive()


def registered(handlers: dict[bytes, Handler]) -> dict[bytes, Handler]:
    """The commands of a listener, each of which has its need in the table; one without is refused here."""
    check_registered(command.decode() for command in handlers)
    return handlers


def name_in(meta: str) -> str:
    """What a client called itself when it opened its session; empty if it did not."""
    try:
        said = json.loads(meta)
    except ValueError:
        return ""
    name = said.get("client") if isinstance(said, dict) else None
    return name if isinstance(name, str) else ""


def _close(server: asyncio.Server) -> None:
    """Listen no more."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop):
        server.close()
        return
    # What asyncio's own loop accepts in one turn it attaches to the server in the next; a server that is closed by
    # then loses the socket without closing it. So nothing more is accepted, and the server is closed a turn later.
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    loop.call_soon(server.close)


def _ignore(*_: object) -> None:
    """No callback is set."""
