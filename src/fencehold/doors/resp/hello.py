"""Greeting: what any Redis client says before it comes to the point, and what tells it where it is."""

from functools import partial
from typing import TYPE_CHECKING

from fencehold import __version__
from fencehold.core.policy import Verb
from fencehold.doors.resp import replies
from fencehold.doors.resp.arguments import Wrong, at_least, exactly, number, shown, text
from fencehold.doors.resp.authentication import log_in
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.guard import rights_of
from fencehold.doors.resp.tiers import choose

if TYPE_CHECKING:
    from fencehold.doors.resp.door import Door

_NAME_BYTES_MAX = 128


def hello(connection: Connection, words: list[bytes], slot: Slot) -> None:
    if len(words) > 1:
        version = number(words[1], "the protocol version")
        if version not in replies.NULL:
            slot.error("NOPROTO", "the protocol version is 2 or 3")
            return
        if version != connection.version and connection.awaits_replies > 1:
            raise Wrong("the protocol version cannot change while replies are due")
        login = _read_rest(connection, words[2:])
        if login is not None:
            log_in(connection, slot, *login, partial(_welcome, connection, slot, version))
            return
        connection.version = version
    _welcome(connection, slot, connection.version)


def _welcome(connection: Connection, slot: Slot, version: int) -> None:
    connection.version = version
    slot.reply(
        {
            "server": "fencehold",
            "version": __version__,
            "proto": connection.version,
            "id": connection.number,
            "mode": "standalone",
            "role": connection.node.role,
            "tier": connection.node.tier.name,
            "modules": [],
        }
    )


def _read_rest(connection: Connection, words: list[bytes]) -> tuple[str, str] | None:
    """Take note of what else it says; returns the user and the secret, if it gives them."""
    rest, login = iter(words), None
    for word in rest:
        match word.upper():
            case b"SETNAME":
                connection.name = _name(next(rest, b""))
            case b"TIER":
                choose(connection, next(rest, b""))
            case b"AUTH":
                login = (text(next(rest, b""), "the user"), text(next(rest, b""), "the secret"))
            case _:
                raise Wrong(f"HELLO does not know {shown(word)}")
    return login


def _name(word: bytes) -> str:
    if len(word) > _NAME_BYTES_MAX:
        raise Wrong(f"the name of a client has at most {_NAME_BYTES_MAX} bytes")
    return text(word, "the name")


def ping(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 0, 1)
    slot.fill(replies.reply(words[1], connection.version) if len(words) > 1 else b"+PONG\r\n")


def echo(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 1)
    slot.reply(words[1])


def quit_(connection: Connection, words: list[bytes], slot: Slot) -> None:
    slot.fill(replies.OK)
    connection.leave()


def client(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CLIENT SETNAME, SETINFO and the like: taken note of where it matters."""
    at_least(words, 1)
    match words[1].upper():
        case b"SETNAME" if len(words) == 3:
            connection.name = _name(words[2])
            slot.fill(replies.OK)
        case b"GETNAME":
            slot.reply(connection.name or None)
        case b"ID":
            slot.reply(connection.number)
        case b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH":
            slot.fill(replies.OK)
        case _:
            raise Wrong(f"CLIENT does not know {shown(words[1])} here")


def select(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 1)
    if number(words[1], "the database"):
        raise Wrong("there is one space of names here: database 0")
    slot.fill(replies.OK)


def command(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """redis-cli asks for the documentation of all commands: an empty one will do."""
    if len(words) > 1 and words[1].upper() == b"COUNT":
        slot.reply(len(connection.door.handlers))
    else:
        slot.reply({} if len(words) > 1 and words[1].upper() == b"DOCS" else [])


def config(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """redis-benchmark asks how the server saves; nothing can be set."""
    at_least(words, 1)
    if words[1].upper() != b"GET":
        raise Wrong("the configuration is set when the server starts")
    slot.reply({})


def info(connection: Connection, words: list[bytes], slot: Slot) -> None:
    node, place = connection.node, connection.door.node
    state = node.replica.machine.state
    facts = {
        "fencehold_version": __version__,
        "tier": node.tier.name,
        "engine": node.journal.declared.engine,
        "durable": int(node.journal.declared.durable),
        "node": place.member.name,
        "address": place.member.address,
        "leader": place.leader.name,
        "leader_address": place.leader.address,
        "standbys": len(place.standbys.all()),
        "role": node.role,
        "epoch": node.epoch,
        "position": node.position,
        "appends": node.appends,
        "logical_time_ms": state.now_at,
        "fence": state.fence,
        "sessions": len(state.sessions),
        "names_held": len(state.held) + len(state.crowds),
        "names_awaited": len(state.queues),
        "waiters": len(state.waiters),
        "connected_clients": len(connection.door.connections),
        "throttled_clients": connection.door.traffic.throttled,
        "busiest_client": _busiest(connection.door) if _may_know(connection) else "",
        "policy_revision": state.policy.revision,
        "room": node.room.level.name.lower(),
        "room_used_bytes": node.room.room.used_bytes,
        "room_allowed_bytes": node.room.room.allowed_bytes,
        "held_back_s": None if node.room.held_s is None else round(node.room.held_s),
    }
    lines = ["# Fencehold", *(f"{key}:{'' if value is None else value}" for key, value in facts.items()), ""]
    slot.reply("\r\n".join(lines))


def _may_know(connection: Connection) -> bool:
    """Whether it may be told of other clients, whatever they hold."""
    rights = rights_of(connection)
    return rights is None or Verb.OBSERVE in rights.everywhere


def _busiest(door: "Door") -> str:
    """Who sends most: its name, its address and how many commands a second; empty if nobody sends much."""
    flood = door.traffic.busiest
    if flood is None:
        return ""
    name = " ".join(door.called(flood.source).split())
    return f"{name} {flood.source.peer or '-'} {flood.commands_per_s}"


HANDLERS: dict[bytes, Handler] = {
    b"HELLO": hello,
    b"PING": ping,
    b"ECHO": echo,
    b"QUIT": quit_,
    b"CLIENT": client,
    b"SELECT": select,
    b"COMMAND": command,
    b"CONFIG": config,
    b"INFO": info,
}
