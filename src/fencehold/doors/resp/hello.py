"""Greeting: what any Redis client sends before its first real command, and what describes the server to it."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fencehold import __version__, build
from fencehold.core.policy import Verb
from fencehold.doors.resp import replies
from fencehold.doors.resp.arguments import at_least, exactly, number, shown, text
from fencehold.doors.resp.authentication import log_in
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.guard import WHO, rights_of
from fencehold.doors.resp.named_commands import described, names_in
from fencehold.doors.resp.shard_commands import choose_shard
from fencehold.doors.resp.tiers import choose
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.security.admission import OWN_LISTENER

if TYPE_CHECKING:
    from fencehold.doors.resp.door import Door

_NAME_BYTES_MAX = 128


def hello(connection: Connection, words: list[bytes], slot: Slot) -> None:
    if len(words) <= 1:
        _greet(connection, slot)
        return
    version = number(words[1], "the protocol version")
    if version not in replies.NULL:
        slot.error("NOPROTO", "the protocol version is 2 or 3")
        return
    if version != connection.version and connection.awaits_replies > 1:
        raise Wrong("the protocol version cannot change while replies are due")
    said = _read_rest(words[2:])
    if said.login is None:
        _take(connection, version, said, slot)
        return
    log_in(connection, slot, *said.login, partial(_take_late, connection, version, said, slot))


class _Said(NamedTuple):
    """The fields of a greeting beside the version."""

    name: str | None = None
    shard: bytes | None = None
    tier: bytes | None = None
    login: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"_Said(name={self.name!r})"


def _read_rest(words: list[bytes]) -> _Said:
    said, rest = _Said(), iter(words)
    for word in rest:
        match word.upper():
            case b"SETNAME":
                said = said._replace(name=_name(next(rest, b"")))
            case b"SHARD":
                said = said._replace(shard=next(rest, b""))
            case b"TIER":
                said = said._replace(tier=next(rest, b""))
            case b"AUTH":
                user, secret = text(next(rest, b""), "the user"), text(next(rest, b""), "the secret")
                said = said._replace(login=(user, secret))
            case _:
                raise Wrong(f"HELLO does not know {shown(word)}")
    return said


def _take(connection: Connection, version: int, said: _Said, slot: Slot) -> None:
    if said.shard is not None:
        choose_shard(connection, number(said.shard, "the shard"))
    if said.tier is not None:
        choose(connection, said.tier)
    if said.name is not None:
        connection.name = said.name
    connection.version = version
    _greet(connection, slot)


def _take_late(connection: Connection, version: int, said: _Said, slot: Slot) -> None:
    """After a login, when no other caller handles what is wrong with the rest."""
    try:
        _take(connection, version, said, slot)
    except Wrong as wrong:
        slot.error(wrong.code, str(wrong))


def _greet(connection: Connection, slot: Slot) -> None:
    if connection.door.asks and not connection.principal and connection.known is not OWN_LISTENER:
        # The leader and the version are not for unauthenticated clients.
        slot.error("NOAUTH", WHO)
        return
    greeting: dict[str, object] = {
        "server": "fencehold",
        "version": __version__,
        "proto": connection.version,
        "id": connection.number,
        "mode": "standalone",
        "role": connection.node.role,
        "tier": connection.node.tier.name,
        "modules": [],
    }
    if connection.door.shards is not None:
        greeting |= {"mode": "cluster", "shard": connection.shard, "shards": len(connection.door.shards.hosts)}
    if (cells := connection.place.replica.machine.state.cells) is not None:
        greeting |= {"cell": cells.cell, "cells": cells.map.version}
    slot.reply(greeting)


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
    """CLIENT SETNAME, SETINFO and the like: noted where it matters."""
    at_least(words, 1)
    match words[1].upper():
        case b"SETNAME" if len(words) == 3:
            connection.name = _name(words[2])
            slot.fill(replies.OK)
        case b"GETNAME":
            slot.reply(connection.name or None)
        case b"ID":
            slot.reply(connection.number)
        case b"SETINFO" if len(words) == 4:
            connection.library = _library(connection.library, *words[2:])
            slot.fill(replies.OK)
        case b"NO-EVICT" | b"NO-TOUCH" | b"SETINFO":
            slot.fill(replies.OK)
        case _:
            raise Wrong(f"CLIENT does not know {shown(words[1])} here")


def _library(known: str, what: bytes, value: bytes) -> str:
    """A name and a version, as far as both were given."""
    said = text(value, "the library")
    if len(value) > _NAME_BYTES_MAX or not said.isprintable():
        raise Wrong(f"the name of a library has at most {_NAME_BYTES_MAX} bytes, all printable")
    name, _, version = known.partition(" ")
    match what.upper():
        case b"LIB-NAME":
            name = said.replace(" ", "-")
        case b"LIB-VER":
            version = said
        case _:
            pass
    return f"{name} {version}".strip()


def select(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 1)
    if number(words[1], "the database"):
        raise Wrong("there is one namespace here: database 0")
    slot.fill(replies.OK)


def command(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """redis-cli asks for the documentation of all commands: an empty one will do.

    Clients of a Redis Cluster ask where the names are in each command, to know which node to send it to.
    """
    match words[1].upper() if len(words) > 1 else b"":
        case b"COUNT":
            slot.reply(len(connection.door.handlers))
        case b"DOCS":
            slot.reply({})
        case b"GETKEYS":
            slot.reply(names_in(words[2:]))
        case b"" | b"INFO":
            slot.reply(described(words[2:]))
        case _:
            slot.reply([])


def config(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """redis-benchmark asks how the server saves; nothing can be set."""
    at_least(words, 1)
    if words[1].upper() != b"GET":
        raise Wrong("the configuration is set when the server starts")
    slot.reply({})


def info(connection: Connection, words: list[bytes], slot: Slot) -> None:
    node, place = connection.node, connection.place
    state = node.replica.machine.state
    facts = {
        "fencehold_version": __version__,
        "build": build.kind(),
        "tier": node.tier.name,
        "engine": node.journal.declared.engine,
        "durable": int(node.journal.declared.durable),
        "tls": int(connection.door.certificates is not None),
        "auth": _auth(connection.door),
        "listens_on": connection.door.host,
        "principal": connection.principal,
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
    if connection.door.shards is not None:
        shards = connection.door.shards
        facts |= {
            "cluster_enabled": 1,
            "shards": len(shards.hosts),
            "shard": connection.shard,
            "shards_led": shards.led,
            "shard_map_version": shards.map.version,
        }
    if (cells := state.cells) is not None:
        facts |= {"cell": cells.cell, "cell_map_version": cells.map.version, "homes_lapsed": len(cells.lapsed)}
    lines = ["# Fencehold", *(f"{key}:{'' if value is None else value}" for key, value in facts.items()), ""]
    slot.reply("\r\n".join(lines))


def _auth(door: "Door") -> str:
    """Who has to authenticate: all clients, those that the policy requires it of, or none."""
    return "required" if door.asks else "none" if door.guard is None else "policy"


def _may_know(connection: Connection) -> bool:
    """Whether it may know of other clients, whatever they hold."""
    rights = rights_of(connection)
    return rights is None or Verb.OBSERVE in rights.everywhere


def _busiest(door: "Door") -> str:
    """The busiest client: its name, its address and how many commands a second; empty if none sends much."""
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
