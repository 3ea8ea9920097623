"""A connection: bytes in, commands out; replies in the order of the commands, pushes between them.

1. Every command has one *slot*. Slots are filled in any order and sent in theirs, so a client may pipeline and a
   command may block.
2. Everything has a bound: the bytes of a frame, the seconds half a frame may take, the commands in flight, the
   bytes that wait to be sent. A client beyond a bound gets an error, if possible, and is disconnected; no other
   client is affected. One that sends faster than its turns come (`backlog`), or than its lane at the leader takes,
   or does not read its replies, is not read from meanwhile.
3. If the client's end closes, the session is suspended: the client has its grace to reconnect. If this end closes,
   or the network loses the connection, the session only loses time.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

import hiredis

from fencehold.core.commands import Command
from fencehold.core.outcomes import Notice
from fencehold.doors.resp import replies
from fencehold.doors.resp.arguments import shown
from fencehold.doors.resp.backlog import QUANTUM, Turns
from fencehold.doors.resp.guard import ORDINARY
from fencehold.doors.resp.heads import NotFlat
from fencehold.doors.resp.inbox import Inbox, NoCommand, are_bulk, not_flat
from fencehold.doors.resp.outbox import Outbox
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.node.lanes import Lane
from fencehold.node.leader import Answer, Question, Reply
from fencehold.runtime.shared import Shared
from fencehold.security.admission import ANONYMOUS, Known, Origin

if TYPE_CHECKING:
    from fencehold.doors.resp.door import Door
    from fencehold.doors.resp.guard import Guard
    from fencehold.doors.resp.member import Member
    from fencehold.doors.resp.router import Branch
    from fencehold.doors.resp.watch_commands import Watching
    from fencehold.node.node import Node
    from fencehold.node.online_backup import OnlineBackup

Handler = Callable[["Connection", list[bytes], "Slot"], None]

_NO_BRANCHES: "dict[int, Branch]" = {}
"""For nearly all connections: never added to."""

_ABORTS = (ConnectionResetError, BrokenPipeError)

_LINGER_S = 0.1
"""How long a client has to notice the end of the connection before it is closed."""

_NO_COMMANDS = (NoCommand, NotFlat, hiredis.HiredisError, MemoryError, TypeError)

_MUCH_BYTES: Final = 64 << 10

_DENIALS = ("NOAUTH", "DENIED")
"""What is written to the audit log, if there is one."""

_CLIENT_HELLO = b"\x16\x03"
"""How a TLS handshake begins, and no command."""

_FIRST = 2
"""Commands handled before the backlog is consulted."""

_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
"""A client whose machine is gone closes nothing. It must be detected all the same: an implicit session lives as
long as its connection does."""


class Slot:
    """The place of one reply among those of its connection."""

    __slots__ = ("connection", "data")

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.data: bytes | None = None

    def fill(self, data: bytes) -> None:
        """Set the reply; it is sent when all before it are."""
        self.data = data
        self.connection.on_filled(self)

    def reply(self, value: object) -> None:
        self.fill(replies.reply(value, self.connection.version))

    def error(self, code: str, message: str) -> None:
        self.fill(replies.error(code, message))


class Connection:
    """One client's connection: an `asyncio.Protocol` in all but its base, so that it can be compiled."""

    known: Known = ANONYMOUS
    """All that is known of the caller."""
    origin: Origin | None = None
    """The origin of its login; None: that of the connection."""
    admitted_by: "Guard | None" = None
    """The guard that found it to be a user without a quota of commands."""

    def __init__(self, door: "Door") -> None:  # noqa: PLR0915
        self.door = door
        self.node: Node = door.node
        """Whose machine it belongs to: of the shard and the tier it chose, before its first session."""
        self.place: Node = door.node
        """The machine of the journal in its shard, whatever the tier."""
        self.shard: int | None = 0 if door.shards is None else None
        """None: it has chosen none of several."""
        self.branches: dict[int, Branch] = _NO_BRANCHES
        """Its branch in each shard where it has something, if it has chosen none."""
        self.version = 2
        self.number = 0
        """Its number among the listener's connections, from 1."""
        self.name = self.library = ""
        """Its name, and its library as it says (CLIENT SETINFO)."""
        self.principal, self.known_by = ANONYMOUS[:2]
        """The caller; empty: no login is required, or it has not logged in yet."""
        self.handlers = door.handlers_of(self)
        """The commands it may give."""
        self.closed = self.ending = False
        """It is being closed, by either end: nothing more is accepted or sent."""
        self.member: Member | None = None
        """The session it speaks for, once it has one."""
        self.is_plain = True
        """It has not opened or resumed a session itself."""
        self.awaiting_session: list[tuple[Slot, Callable[[], None]]] = []
        self.watching: Watching | None = None
        self.goodbye: Callable[[], None] | None = None
        """Set if it is a standby's: tells it that this node stops leading."""
        self.backup: OnlineBackup | None = None
        """The backup that is read through it, if any."""
        self.partial_since: float | None = None
        """Since when there is half a command; and how many came before it."""
        self._partial_after = 0
        self.lane = Lane(self._go_on_later)
        self.turns = Turns()
        self._shared_turns: Shared[Turns] | None = None
        """Kept: while one of them is here, connections of its principal find the same turns."""
        self._is_admitting = False
        """A login is being checked: what else it sent waits for that."""
        self.was_throttled = False
        """It had to wait for its turn, or for room, since the last look."""
        self._inbox = Inbox(door.bounds.frame_bytes_max)
        self._backlog = door.backlog
        self._in_flight_max = door.bounds.in_flight_max
        self._has_more = False
        """Some of the input is not handled."""
        self._is_queued = False
        """It is in the backlog."""
        self._is_reading = True
        self._slots: deque[Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._held_bytes = 0
        """Of replies whose turn has not come."""
        self._closing_by_us = False
        self._closing_since: float | None = None
        self._full = False
        self._stopped = False

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are transports in all but their base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(transport, self.door.turn)
        transport.set_write_buffer_limits(high=self.door.bounds.unsent_bytes_high)
        _notice_when_gone(transport.get_extra_info("socket"))
        self.door.on_opened(self)

    def data_received(self, data: bytes) -> None:
        backlog, leader = self._backlog, self.node.leading
        if backlog.last is not self:
            backlog.last, backlog.others_came = self, True
        elif leader is not None:
            # No other connection was read since: it may well be alone, and its commands are handled at once then.
            # The lane is that of this leader, whatever becomes of it meanwhile.
            lane = self.lane
            lane.is_gathering = True
            try:
                self._receive(data)
            finally:
                lane.is_gathering = False
                leader.commit_here()
            return
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        if self.ending:
            return
        inbox = self._inbox
        if self.turns.senders:
            # Another connection of its principal, or itself, waits for its turn: so does this one. Else a
            # principal with hundreds of connections would have hundreds of first commands handled before any
            # other's turn.
            inbox.keep(data)
            self._note(True)
            self._go_on_later()
            return
        try:
            words = inbox.first(data)
            if words is not None:
                self._handle(words)
            if inbox.was_all and not (
                self.lane.is_full or self._has_more or self._is_admitting or self.partial_since is not None
            ):
                # Nearly always that was all.
                if len(self._slots) > self._in_flight_max:
                    self._look_at_bounds()
                return
            has_more = self._handle_more()
        except _NO_COMMANDS as error:
            if data.startswith(_CLIENT_HELLO):
                self.door.refuse(self.peer, "it speaks TLS, and this listener does not")
            self._end_wrong(error)
            return
        # A large input is mostly not all. Without a pause the transport would read on while there is more, before
        # it polls any other socket.
        if has_more or len(data) >= _MUCH_BYTES or self._has_more:
            self._note(has_more or len(data) >= _MUCH_BYTES)
            self._go_on_later()
        if len(self._slots) > self._in_flight_max:
            self._look_at_bounds()

    def eof_received(self) -> None:
        """The client's end is closed; the transport closes by itself."""

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = self.ending = True
        self._slots.clear()
        self.door.on_closed(self)
        by_client = not self._closing_by_us and (error is None or isinstance(error, _ABORTS))
        for member in self.members():
            member.on_disconnected(by_client)

    def pause_writing(self) -> None:
        """The client reads too slowly: no more of its commands are handled until it catches up."""
        self._full = True
        self._read_if_due()

    def resume_writing(self) -> None:
        self._full = False
        self._read_if_due()
        self._go_on_later()
        if self.watching is not None:
            self.watching.wake()

    def _read_if_due(self) -> None:
        """Read from the client only what can be handled at once."""
        is_due = not (self._full or self._stopped or self._has_more)
        if self._transport is not None and not self.ending and is_due is not self._is_reading:
            self._is_reading = is_due
            if is_due:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # Commands in.

    def go_on(self, until_ms: float) -> bool:
        """Handle some more of the input; returns whether it wants another turn."""
        self._is_queued = False
        if self.ending or self._stopped:
            return False
        try:
            has_more = self._handle_some(QUANTUM, until_ms)
        except _NO_COMMANDS as error:
            self._end_wrong(error)
            return False
        self._note(has_more)
        self._look_at_bounds()
        self._is_queued = self._may_go_on()
        return self._is_queued

    def _go_on_later(self) -> None:
        """Have a turn, if there is anything to do and room for it."""
        if self._may_go_on() and not self._is_queued:
            self._is_queued = True
            self._backlog.join(self)

    def _may_go_on(self) -> bool:
        return self._has_more and not (self._full or self.lane.is_full or self.ending or self._is_admitting)

    def _note(self, has_more: bool) -> None:
        self.was_throttled = self.was_throttled or has_more
        self._has_more = has_more
        self._read_if_due()

    def _handle_more(self) -> bool:
        """Handle what came after a first command: a second, and more only if it is its turn.

        Returns whether some may be left.
        """
        has_more = self._is_held_up()
        if not has_more and (words := self._inbox.next()) is not None:
            self._handle(words)
            has_more = self._is_held_up() or self._handle_some(*self._backlog.allowance(self))
        self._look_at_bounds()
        return has_more

    def _is_held_up(self) -> bool:
        return self.lane.is_full or self._full or self.ending or self._is_admitting

    def _handle_some(self, commands: int, until_ms: float) -> bool:
        """Handle this many commands, or until a time; returns whether some may be left."""
        following, handle, lane, now_ms = self._inbox.next, self._handle, self.lane, self._backlog.now_ms
        for _ in range(commands):
            words = following()
            if words is None:
                return False
            handle(words)
            if lane.is_full or self._full or self.ending or self._is_admitting or now_ms() >= until_ms:
                return True
        return True

    def _end_wrong(self, error: Exception) -> None:
        # Raised by the reader: a TypeError is a map with an unhashable key.
        wrong = error if isinstance(error, NoCommand) else not_flat()
        self.end(wrong.code, str(wrong))

    def _look_at_bounds(self) -> None:
        bounds, partial_bytes = self.door.bounds, self._inbox.partial_bytes
        if partial_bytes > bounds.frame_bytes_max:
            too_large = self._inbox.too_large()
            self.end(too_large.code, str(too_large))
        elif not partial_bytes:
            self.partial_since = None
        elif self.partial_since is None or self._partial_after != self._inbox.commands:
            self.partial_since, self._partial_after = self.door.now(), self._inbox.commands
        if len(self._slots) > bounds.in_flight_max and not self._full:
            self.end("LIMIT", f"at most {bounds.in_flight_max} commands may await their replies")

    def _handle(self, words: list[bytes]) -> None:
        slot = Slot(self)
        self._slots.append(slot)
        handlers = self.handlers
        handler = handlers.get(words[0]) or handlers.get(words[0].upper())
        if handler is None:
            self.door.unknown_commands += 1
            slot.error("ERR", f"unknown command {shown(words[0])}: this is a Fencehold server")
            return
        try:
            guard = self.door.guard
            # Nearly always it was checked before, by the same policy.
            if guard is not None and not (self.admitted_by is guard and words[0] in ORDINARY):
                guard.admit(self, words[0].upper())
            handler(self, words, slot)
        except Wrong as wrong:
            slot.error(wrong.code, str(wrong))
            if wrong.code in _DENIALS:
                self.door.on_denied(self, words[0].decode(errors="replace").upper(), str(wrong))
        except (TypeError, AttributeError) as error:
            # A word that is not a bulk string: an integer, a nested array.
            if are_bulk(words):
                raise RuntimeError(f"{words[0][:40]!r} failed") from error
            if self._slots and self._slots[-1] is slot:
                self._slots.pop()
            raise not_flat() from error

    # Authentication.

    def begin_admission(self) -> None:
        """Handle nothing more until the login is checked."""
        self._is_admitting = True

    def end_admission(self) -> None:
        """Continue."""
        self._is_admitting = False
        self._go_on_later()

    def admit(self, known: Known) -> None:
        """The caller is known now."""
        self.known = known
        self.principal, self.known_by = known[:2]
        self.admitted_by = None
        self.handlers = self.door.handlers_of(self)
        self.take_place()

    def members(self) -> "list[Member]":
        """The sessions it speaks for: one, or where it has chosen no shard, one in each that it has used."""
        branches = (branch.member for branch in self.branches.values())
        return [member for member in (self.member, *branches) if member is not None]

    def belongs_to(self, place: "Node") -> bool:
        """Whether it has chosen the shard whose machine this is, or has a session there."""
        if self.shard is not None:
            return self.place is place
        return any(branch.place is place and branch.member is not None for branch in self.branches.values())

    def take_place(self) -> None:
        """Join what connections of this principal share, at the machine that this one belongs to."""
        self.lane = Lane(self._go_on_later, self.node.shares.of(self.principal))
        shared = self.door.turns.of(self.principal)
        self._shared_turns, self.turns = shared, shared.thing

    # Commands and questions to the node, in its lane.

    def submit(self, command: Command, answer: Answer) -> None:
        """Have a command journaled and applied; `answer` is called when that is durable, or has failed."""
        leader = self.node.leading
        if leader is None:
            answer(self.node.refusal(), 0)
        else:
            leader.submit(command, answer, self.lane)

    def ask(self, question: Question, reply: Reply) -> None:
        """Put a question to the current state, after all that was requested before."""
        self.node.ask(question, reply, self.lane)

    def ask_recent(self, question: Question, reply: Reply) -> None:
        """Put a question to a state that was current a moment ago: not ordered after earlier requests."""
        self.node.ask_recent(question, reply, self.lane)

    # Replies and pushes out.

    def on_filled(self, slot: Slot) -> None:
        """Send the replies whose turn it is, now that this slot has its own."""
        slots, outbox = self._slots, self._outbox
        if self.ending or outbox is None:
            slots.clear()
            return
        if slots[0] is not slot:
            self._held_bytes += len(slot.data or b"")
            self._look_at_unsent()
            return
        slots.popleft()
        outbox.send(slot.data)  # type: ignore[arg-type]
        while slots and (data := slots[0].data) is not None:
            slots.popleft()
            self._held_bytes -= len(data)
            outbox.send(data)
        if self._full:
            self._look_at_unsent()

    def push(self, data: bytes) -> None:
        """Send a push, if the client can take it."""
        if self.version == 3 and not self.ending and self._outbox is not None:
            self._outbox.send(data)
            if self._full:
                self._look_at_unsent()

    def _look_at_unsent(self) -> None:
        """Disconnect a client that asks for more than it reads. It would not read an error either."""
        if self.unsent_bytes > self.door.bounds.unsent_bytes_max:
            self.let_go()

    def let_go(self) -> None:
        """Close at once, from this end: for its session it is as if the network had lost the connection."""
        self._closing_by_us = True
        self.abort()

    @property
    def unsent_bytes(self) -> int:
        """Of replies and pushes that the client has not taken yet, whether their turn has come or not."""
        return self._held_bytes + (self._outbox.unsent_bytes() if self._outbox is not None else 0)

    @property
    def awaits_replies(self) -> int:
        """How many commands have no reply yet, or one whose turn has not come."""
        return len(self._slots)

    @property
    def commands(self) -> int:
        """How many it has sent so far."""
        return self._inbox.commands

    @property
    def is_full(self) -> bool:
        """Whether more waits to be sent than should."""
        return self._full

    def on_notice(self, notice: Notice, at_ms: int) -> None:
        if self.member is not None:
            self.member.on_notice(notice, at_ms)

    @property
    def peer(self) -> str:
        """The address of the client's end."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""

    @property
    def address(self) -> str:
        """The address alone, without the port."""
        return self.peer.rpartition(":")[0]

    @property
    def ssl_object(self) -> ssl.SSLObject | None:
        """What TLS knows of it; None if it does not speak TLS."""
        return self._transport.get_extra_info("ssl_object") if self._transport is not None else None

    def stop_reading(self) -> None:
        """Take no more commands."""
        self._stopped = True
        self._read_if_due()

    def leave(self) -> None:
        """Close at the client's request: for its session it is as if the client had closed."""
        if self._transport is not None and self._outbox is not None and not self.ending:
            self.ending = True
            self._outbox.flush()
            self._transport.close()

    def end(self, code: str = "", message: str = "") -> None:
        """Close from this end, with an error if one is given. Pending requests stay unanswered.

        The error is withheld while replies are due: the client would take it for one of them, and believe that a
        request failed that may well have been carried out.
        """
        if self.ending or self._transport is None or self._outbox is None:
            return
        self.ending = self._closing_by_us = True
        if code and not self._slots:
            self._outbox.send(replies.error(code, message))
        self._outbox.flush()
        if self._transport.is_closing():
            return
        # Closed with bytes unread, the connection would be reset, and the client lose replies it had not read yet.
        # So EOF is sent, and what the client still sends is read and ignored for a moment.
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
        except OSError:
            # The client is gone already.
            self._transport.abort()
            return
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(_LINGER_S, self._transport.close)

    def abort(self) -> None:
        """Close at once; what is pending is lost."""
        self.ending = True
        if self._transport is not None and not self.closed:
            self._transport.abort()

    def end_backup(self) -> None:
        """Abandon the backup in progress, if there is one: the node's own snapshots wait for it."""
        if self.backup is not None:
            self.backup.close()
            self.backup = None

    def end_if_hanging(self, now: float, seconds_max: float) -> None:
        """End it if half a command came and then nothing, or if it is closed and its client does not close its
        end."""
        if self.ending or (self._transport is not None and self._transport.is_closing()):
            self._closing_since = self._closing_since or now
            if now - self._closing_since > seconds_max:
                self.abort()
        elif self.partial_since is not None and now - self.partial_since > seconds_max:
            self.end("LIMIT", "an incomplete command, then silence")


def _notice_when_gone(sock: socket.socket | None) -> None:
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        # Not every system has all of them.
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
