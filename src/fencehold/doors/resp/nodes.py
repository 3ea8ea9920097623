"""Nodes on the wire: a standby that follows the leader, and the state of the nodes.

They are about the node and its journal, whatever the connection's tier.
"""

from functools import partial

from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import exactly, number, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.journal.health import Health
from fencehold.node.standbys import Member, Standby

_NAME_BYTES_MAX = 128
_ADDRESS_BYTES_MAX = 256
_HURRY = replies.push("hurry")


class TooMany(Wrong):
    """More standbys than one leader keeps track of."""

    code = "LIMIT"


class NoNode(Wrong):
    """The client is not a node of this service."""

    code = "DENIED"


def follow(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """NODE.FOLLOW name address position: a standby reports itself and its position. Answered with its rank."""
    exactly(words, 3)
    if connection.door.asks and not connection.door.is_node(connection):
        raise NoNode("only nodes follow, and they show a certificate of the same name as this node's own")
    name = _bounded(words[1], "the name", _NAME_BYTES_MAX)
    address = _bounded(words[2], "the address", _ADDRESS_BYTES_MAX)
    position = number(words[3], "the position")
    node = connection.place
    if not node.leads:
        refuse(slot, node.refusal(), 0)
        return
    if connection.goodbye is None:
        connection.goodbye = partial(connection.push, replies.push("goodbye"))
    hurry = partial(connection.push, _HURRY)
    standby = Standby(Member(name, address), position, connection.door.now(), hurry)
    rank = node.standbys.report(connection.goodbye, standby)
    if rank is None:
        raise TooMany("too many standbys follow this node")
    slot.reply(rank)


def list_nodes(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """NODE.LIST: what this node knows of itself and, if it leads, of its followers."""
    exactly(words, 0)
    node = connection.place
    told: dict[str, object] = {
        "node": node.member.name,
        "address": node.member.address,
        "role": node.role,
        "engine": node.journal.declared.engine,
        "epoch": node.epoch,
        "position": node.position,
        "leader": node.leader.name,
        "leader_address": node.leader.address,
        "note": node.notes[0] if node.notes else "",
        "standbys": [_standby(connection, standby) for standby in node.standbys.all()],
    }
    shards = connection.door.shards
    if shards is not None:
        # The rest is of one shard: of the first, unless another was chosen.
        told |= {"shards": len(shards.hosts), "shards_led": shards.led}
    slot.reply(told)


def health(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """NODE.HEALTH: the health of the journal's engine, and how long appends take."""
    exactly(words, 0)
    connection.door.checkup.ask(partial(_on_checked, connection, slot))


def _on_checked(connection: Connection, slot: Slot, found: Health) -> None:
    node = connection.place
    volume = found.volume
    took_s = sorted(node.append_times_s)
    slot.reply(
        {
            "engine": node.journal.declared.engine,
            "data": volume.path if volume else None,
            "file_system": volume.file_system if volume else None,
            "disk_free_bytes": volume.free_bytes if volume else None,
            "disk_total_bytes": volume.total_bytes if volume else None,
            "appends": len(took_s),
            "append_p50_us": round(took_s[len(took_s) // 2] * 1e6) if took_s else None,
            "append_max_us": round(took_s[-1] * 1e6) if took_s else None,
            "members": [
                {"address": one.address, "up": int(one.is_up), "role": one.role, "note": one.note}
                for one in found.members
            ],
            "members_up": sum(one.is_up for one in found.members),
            "members_total": len(found.members),
            "quorum": found.quorum,
            "note": found.note,
            "room": node.room.level.name.lower(),
            "room_what": node.room.room.what,
            "room_used_bytes": node.room.room.used_bytes,
            "room_allowed_bytes": node.room.room.allowed_bytes,
            "room_note": node.room.room.note,
            "held_back_s": None if node.room.held_s is None else round(node.room.held_s),
        }
    )


def _standby(connection: Connection, standby: Standby) -> dict[str, object]:
    return {
        "node": standby.member.name,
        "address": standby.member.address,
        "position": standby.position,
        "lag": max(0, connection.place.position - standby.position),
        "heard_ms_ago": round((connection.door.now() - standby.heard_at) * 1000),
    }


def _bounded(word: bytes, what: str, bytes_max: int) -> str:
    if not 0 < len(word) <= bytes_max:
        raise Wrong(f"{what} of a node has 1 to {bytes_max} bytes")
    return text(word, what)


HANDLERS: dict[bytes, Handler] = {b"NODE.FOLLOW": follow, b"NODE.LIST": list_nodes, b"NODE.HEALTH": health}
