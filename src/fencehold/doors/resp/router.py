"""The router: commands of a connection that has chosen no shard, handed to the shard of their names.

1. Only where there are several shards, and only until a connection chooses one. Commands of our own client never
   pass here: it chooses when it greets.
2. In each shard that it uses, such a connection has a *branch*: a session of its own there, implicit like that of
   any plain client, which ends with the connection. Replies come in the order of the commands all the same.
3. What it holds is released and extended where it was granted: while a slot migrates, that is not the home of its
   names by the map. A release that is repeated after that is answered there, too.
4. A name that is led elsewhere is answered `MOVED slot address`, and nothing has happened.
5. Lists go from shard to shard: the cursor says in which one to continue. Shards that are led elsewhere are listed
   as this node has followed them, a moment ago.
6. Any other command without a name is about one shard, and refused until one is chosen. To open a session chooses
   the first.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from fencehold.core.outcomes import Notice
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import number
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.named_commands import ONE, SEVERAL, names_in
from fencehold.doors.resp.shard_commands import choose_shard
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.errors import NotLeader, Overloaded
from fencehold.node.node import Node
from fencehold.node.shards import Shards
from fencehold.placement.slots import slots_of

_RETRY_AFTER_S = 0.25
_OPENING = (b"SESSION.OPEN", b"SESSION.RESUME")
_SESSIONS = b"SESSION.LIST"
_LISTS = (b"LOCK.LIST", _SESSIONS)
_CURSOR, _STALE = b"CURSOR", b"STALE"
_OF_HOLDS = (b"LOCK.RELEASE", b"LOCK.MRELEASE", b"LOCK.EXTEND", b"LOCK.MEXTEND")
_SHARD_BITS = 44
"""A cursor of sessions is a number: above these bits it is that of the shard, below them that of a session."""
_OF_ONE_SHARD = (
    b"LOCK.CANCEL",
    b"LOCK.SETTLE",
    b"LOCK.WATCH",
    b"LOCK.UNWATCH",
    b"NODE.FOLLOW",
    b"NODE.BACKUP",
)


class SeveralShards(Wrong):
    """Names of one command that no machine has together. The code is Redis Cluster's."""

    code: ClassVar[str] = "CROSSSLOT"


class Branch(Connection):
    """A connection's representative in one shard: it has a session and a lane there, and no bytes of its own."""

    def __init__(self, main: Connection, shard: int, place: Node, node: Node) -> None:
        super().__init__(main.door)
        self.main = main
        self.shard, self.place, self.node = shard, place, node
        self.known = main.known
        self.principal, self.known_by, self.origin = main.principal, main.known_by, main.origin
        self.take_place()

    def catch_up(self) -> None:
        """Copy what the connection has sent about itself meanwhile."""
        self.version, self.name, self.library = self.main.version, self.main.name, self.main.library
        self.ending = self.main.ending

    def push(self, data: bytes) -> None:
        self.main.push(data)

    def end(self, code: str = "", message: str = "") -> None:
        self.main.end(code, message)

    def on_notice(self, notice: Notice, at_ms: int) -> None:
        self.catch_up()
        super().on_notice(notice, at_ms)

    @property
    def peer(self) -> str:
        return self.main.peer


def routed(handlers: dict[bytes, Handler]) -> dict[bytes, Handler]:
    """The same commands, for a connection that has chosen no shard."""
    own: dict[bytes, Callable[[Handler], Handler]] = {
        **dict.fromkeys((*ONE, *SEVERAL), lambda handler: partial(_by_name, handler)),
        **dict.fromkeys(_LISTS, lambda handler: partial(_list, handler)),
        **dict.fromkeys(_OPENING, lambda handler: partial(_choose_first, handler)),
        **dict.fromkeys(_OF_ONE_SHARD, lambda _: _refuse),
    }
    return {word: own[word](handler) if word in own else handler for word, handler in handlers.items()}


def _by_name(handler: Handler, connection: Connection, words: list[bytes], slot: Slot) -> None:
    shards = _shards(connection)
    asked = names_in(words)
    slots = slots_of(asked)
    found = {shards.map.shard_of(each) for each in slots}
    if shards.map.version > 1 and words[0].upper() in _OF_HOLDS:
        found = _where_held(connection, words, asked, found) or found
    if len(found) > 1:
        raise SeveralShards(
            "the names are of several shards, and cannot be handled in one step: give them a common {tag}, as in "
            "{order:7}.stock and {order:7}.payment"
        )
    branch = _branch_of(connection, shards, found.pop())
    if not branch.node.leads and b"STALE" not in map(bytes.upper, words):
        _send_on(branch.node, slot, slots[0])
    elif branch.lane.is_full:
        refuse(
            slot, Overloaded("this connection has too many commands in flight", retry_after_s=_RETRY_AFTER_S), 0
        )
    else:
        handler(branch, words, slot)


def _where_held(connection: Connection, words: list[bytes], asked: list[str], homes: set[int]) -> set[int]:
    """The shard where the connection holds one of the names with the given fence; none if nowhere.

    If it has no session in their home either, the names may have moved since they were released: then it is one
    that may have granted that fence to it, and knows what became of it.
    """
    place = 2 if words[0].upper() in ONE else 2 + len(asked)
    if len(words) <= place:
        return set()
    fence = number(words[place], "the fence")
    granted: set[int] = set()
    for shard, branch in connection.branches.items():
        find, member = branch.node.replica.machine.state.find, branch.member
        if member is not None and any(
            (hold := find(name, fence)) is not None and hold.session == member.session for name in asked
        ):
            return {shard}
        if member is not None and _may_have_granted(branch, member.session, fence):
            granted = granted or {shard}
    is_known = any(shard in connection.branches and connection.branches[shard].member for shard in homes)
    return set() if is_known else granted


def _may_have_granted(branch: Branch, session: int, fence: int) -> bool:
    """Whether a fence is one that the shard of a branch has granted since its session was opened."""
    state = branch.node.replica.machine.state
    kept = state.sessions.get(session)
    return kept is not None and kept.opened_fence < fence <= state.fence


class _ListSlot(Slot):
    """The place of a list's reply: its cursor is made one over all shards."""

    __slots__ = ("is_number", "main", "shard", "shards")

    def __init__(self, connection: Connection, main: Slot, *, shard: int, shards: int, is_number: bool) -> None:
        super().__init__(connection)
        self.main = main
        self.shard = shard
        self.shards = shards
        self.is_number = is_number

    def fill(self, data: bytes) -> None:
        self.main.fill(data)

    def reply(self, value: object) -> None:
        if not isinstance(value, list):
            self.main.reply(value)
            return
        cursor, items = value
        shard = self.shard if cursor else self.shard + 1
        if not cursor and shard == self.shards:
            self.main.reply(value)
        elif self.is_number:
            self.main.reply([shard << _SHARD_BITS | cursor, items])
        else:
            self.main.reply([f"{shard}/{cursor}", items])


def _list(handler: Handler, connection: Connection, words: list[bytes], slot: Slot) -> None:
    shards = _shards(connection)
    is_number = words[0].upper() == _SESSIONS
    place = next((index for index, word in enumerate(words[:-1]) if index and word.upper() == _CURSOR), None)
    shard, inner = (0, b"") if place is None else _read_cursor(words[place + 1], is_number)
    if shard >= len(shards.hosts):
        raise Wrong(f"there is no shard {shard}: a cursor must be one that was returned")
    asked = list(words)
    if place is not None:
        asked[place + 1] = inner or (b"0" if is_number else b"")
    branch = _branch_of(connection, shards, shard)
    if not branch.node.leads and _STALE not in map(bytes.upper, asked[1:]):
        asked.append(_STALE)
    handler(branch, asked, _ListSlot(connection, slot, shard=shard, shards=len(shards.hosts), is_number=is_number))


def _read_cursor(word: bytes, is_number: bool) -> tuple[int, bytes]:
    if is_number:
        told = number(word, "the cursor")
        return told >> _SHARD_BITS, b"%d" % (told & (1 << _SHARD_BITS) - 1)
    if not word:
        return 0, b""
    shard, separator, inner = word.partition(b"/")
    if not separator or not shard.isdigit():
        raise Wrong("a cursor must be one that was returned, or empty")
    return int(shard), inner


def _send_on(node: Node, slot: Slot, number: int) -> None:
    refusal = node.refusal()
    if isinstance(refusal, NotLeader) and refusal.leader:
        slot.error("MOVED", f"{number} {refusal.leader}")
    else:
        refuse(slot, refusal, 0)


def _branch_of(connection: Connection, shards: Shards, shard: int) -> Branch:
    place = shards.hosts[shard].node
    node = connection.door.machine_of(place, connection.node.tier) or place
    branch = connection.branches.get(shard)
    if branch is None or (branch.node is not node and branch.member is None):
        branch = Branch(connection, shard, place, node)
        connection.branches = {**connection.branches, shard: branch}
    branch.catch_up()
    return branch


def _choose_first(handler: Handler, connection: Connection, words: list[bytes], slot: Slot) -> None:
    choose_shard(connection, 0)
    handler(connection, words, slot)


def _refuse(connection: Connection, words: list[bytes], slot: Slot) -> None:
    last = len(_shards(connection).hosts) - 1
    verb = words[0].decode(errors="replace").upper()
    raise Wrong(f"{verb} is about one shard: choose it first, by HELLO 3 SHARD number (0 to {last})")


def _shards(connection: Connection) -> Shards:
    shards = connection.door.shards
    if shards is None:
        raise RuntimeError("a connection is routed only where there are several shards")
    return shards
