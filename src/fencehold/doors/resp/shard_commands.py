"""Shards on the wire: which there are, who leads them, and which one a connection belongs to.

1. A connection chooses its shard when it greets, before it has anything, as it chooses its tier. From then on its
   commands are not routed; the machine itself refuses names that are not its own.
2. `SHARD.MAP` is for our clients; `CLUSTER …` is the same in the format of Redis Cluster. Every node answers
   both, whether it leads anything or not.
3. `SHARD.PLACE` is for administrators: what the next map changes. The first shard accepts it if the map before is
   carried out. `SHARD.MOVES` shows the progress; `SHARD.FORCE` breaks the holds that keep slots from leaving.
"""

from functools import lru_cache, partial
from hashlib import sha1

from msgspec.structs import replace

from fencehold.core.commands import ChangeMap, ForceSlots
from fencehold.core.outcomes import MapTaken, Outcome, SlotsForced
from fencehold.core.slot_moves import names_left
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import at_least, exactly, number, shown, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.replies import Encoded, reply
from fencehold.doors.resp.tiers import check_free
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.drivers.address import endpoint
from fencehold.errors import FenceholdError, UsageError
from fencehold.node.shards import Shards
from fencehold.node.standbys import Member
from fencehold.placement.map import ShardMap, SlotRange, even_map
from fencehold.placement.plans import slots_in
from fencehold.placement.slots import SLOTS, slot_of

_ONE = even_map(1)
_SOME = 10
"""How many of the names that keep slots from leaving are shown."""


class Moving(Wrong):
    """Slots are still migrating by the previous map."""

    code = "CONFLICT"


def choose_shard(connection: Connection, shard: int) -> None:
    """Let a connection belong to one shard.

    Raises:
        Wrong: there is no such shard, or it has something in another already.
    """
    shards = connection.door.shards
    count = 1 if shards is None else len(shards.hosts)
    if not 0 <= shard < count:
        have = "one shard: 0" if count == 1 else f"{count} shards: 0 to {count - 1}"
        raise Wrong(f"there is no shard {shard}: this service has {have}")
    if shards is None or connection.shard == shard:
        return
    check_free(connection, "shard")
    tier = connection.node.tier
    connection.shard, connection.place = shard, shards.hosts[shard].node
    connection.node = connection.door.machine_of(connection.place, tier) or connection.place
    connection.handlers = connection.door.handlers_of(connection)
    connection.take_place()


def shard_map(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """SHARD.MAP: version, number of shards, `first last shard` of each range, and the leader of each shard."""
    exactly(words, 0)
    placed = _map(connection)
    leaders = [_leader(connection, shard) for shard in range(placed.shards)]
    slot.reply(
        {
            "version": placed.version,
            "shards": placed.shards,
            "ranges": _ranges_told(placed),
            "leaders": [leader.address for leader in leaders],
            "nodes": [leader.name for leader in leaders],
        }
    )


@lru_cache(maxsize=8)
def _ranges_told(placed: ShardMap) -> Encoded:
    """The ranges of a map, as bytes: there may be thousands, and all watchers ask when slots move."""
    # Integers alone: these are the same bytes in every version of the protocol.
    return Encoded(reply([[each.first, each.last, each.shard] for each in placed.ranges], 3))


def cluster(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CLUSTER SLOTS, SHARDS, NODES, KEYSLOT, INFO, MYID: as Redis Cluster answers them."""
    at_least(words, 1)
    match words[1].upper():
        case b"SLOTS":
            slot.reply([[each.first, each.last, _told(leader)] for each, leader in _led_ranges(connection)])
        case b"SHARDS":
            slot.reply(_shards_told(connection))
        case b"NODES":
            slot.reply(_nodes_told(connection))
        case b"KEYSLOT":
            exactly(words, 2)
            slot.reply(slot_of(text(words[2], "a name")))
        case b"MYID":
            slot.reply(_id(_own(connection)))
        case b"INFO":
            slot.reply(_info(connection))
        case word:
            raise Wrong(f"CLUSTER does not know {shown(word)} here: slots are moved by `fencehold shards`")


def _map(connection: Connection) -> ShardMap:
    shards = connection.door.shards
    return _ONE if shards is None else shards.map


def _leader(connection: Connection, shard: int) -> Member:
    """The leader of a shard. A single server leads all of them, at the address it was reached at."""
    shards, place = connection.door.shards, connection.place
    if shards is None:
        leader = place.member if place.leads else place.leader
        return leader if leader.address else _own(connection)
    leader = shards.leader_of(shard)
    return leader if leader.address else _own(connection)


def _own(connection: Connection) -> Member:
    member = connection.place.member
    return member if member.address else Member(member.name, connection.door.advertised)


def _led_ranges(connection: Connection) -> list[tuple[SlotRange, Member]]:
    return [(each, _leader(connection, each.shard)) for each in _map(connection).ranges]


def _id(member: Member) -> str:
    """Forty digits, as the ids of Redis nodes have; the same for the same node at the same address."""
    return sha1(f"{member.name} {member.address}".encode(), usedforsecurity=False).hexdigest()


def _told(member: Member) -> list[object]:
    host, port = endpoint(member.address)
    return [host, port, _id(member)]


def _shards_told(connection: Connection) -> list[object]:
    placed = _map(connection)
    told: list[object] = []
    for shard in range(placed.shards):
        leader = _leader(connection, shard)
        host, port = endpoint(leader.address)
        node = {"id": _id(leader), "port": port, "ip": host, "endpoint": host, "role": "master"}
        bounds = [bound for each in placed.ranges_of(shard) for bound in (each.first, each.last)]
        told.append({"slots": bounds, "nodes": [node | {"replication-offset": 0, "health": "online"}]})
    return told


def _nodes_told(connection: Connection) -> str:
    own = _own(connection)
    led: dict[Member, list[str]] = {own: []}
    for each, leader in _led_ranges(connection):
        span = f"{each.first}-{each.last}" if each.last > each.first else str(each.first)
        led.setdefault(leader, []).append(span)
    lines = []
    for member, spans in led.items():
        flags = "myself,master" if member == own else "master"
        head = f"{_id(member)} {member.address}@0 {flags} - 0 0 {_map(connection).version} connected"
        lines.append(" ".join((head, *spans)))
    return "\n".join(lines) + "\n"


def _info(connection: Connection) -> str:
    placed = _map(connection)
    facts = {
        "cluster_enabled": 1,
        "cluster_state": "ok",
        "cluster_slots_assigned": SLOTS,
        "cluster_slots_ok": SLOTS,
        "cluster_known_nodes": len({leader for _, leader in _led_ranges(connection)}),
        "cluster_size": placed.shards,
        "cluster_current_epoch": placed.version,
    }
    return "".join(f"{key}:{value}\r\n" for key, value in facts.items())


def place(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """SHARD.PLACE version shard slots [shard slots …]: assign slots to these shards, by this version of the
    map."""
    at_least(words, 3)
    shards = _several(connection)
    version, changes = number(words[1], "the version"), words[2:]
    if len(changes) % 2:
        raise Wrong("SHARD.PLACE version shard slots [shard slots …]")
    placed = shards.map
    if version not in (placed.version, placed.version + 1):
        raise Moving(f"version {placed.version} of the map is known here, and {version} does not follow it")
    try:
        for shard, slots in zip(changes[::2], changes[1::2], strict=True):
            placed = placed.moved(slots_in(text(slots, "slots")), number(shard, "a shard"))
    except UsageError as error:
        raise Wrong(str(error)) from None
    placed = replace(placed, version=version)
    if placed != shards.map and not shards.mover.is_settled:
        # This view may be old, but what was settled stays so until there is another map: see `slot_mover`.
        raise Moving("slots are still on their way: wait for that, or see `fencehold shards moves`")
    shards.mover.expect()
    shards.hosts[0].node.submit(ChangeMap(placed, connection.principal), partial(_taken, slot))


def _taken(slot: Slot, outcome: Outcome | FenceholdError, at_ms: int) -> None:
    if isinstance(outcome, MapTaken):
        slot.reply({"version": outcome.version})
    else:
        refuse(slot, outcome, at_ms)


def moves(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """SHARD.MOVES: of each shard, the version of its map, the slots that leave and arrive, and what blocks
    them."""
    exactly(words, 0)
    shards = _several(connection)
    told = []
    for shard, host in enumerate(shards.hosts):
        standing, state = shards.mover.standings[shard], host.node.replica.machine.state
        left = names_left(state)
        names = [name for slot_names in left.values() for name in slot_names]
        told.append(
            {
                "shard": shard,
                "version": standing.placed.version,
                "leaving": len(left),
                "arriving": len(standing.arriving),
                "names": len(names),
                "some": names[:_SOME],
            }
        )
    slot.reply({"version": shards.map.version, "settled": int(shards.mover.is_settled), "shards": told})


def force(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """SHARD.FORCE shard: break what is held of slots that leave a shard, and redirect its waiters."""
    exactly(words, 1)
    shards = _several(connection)
    shard = number(words[1], "the shard")
    if not 0 <= shard < len(shards.hosts):
        raise Wrong(f"shards are 0 to {len(shards.hosts) - 1}, not {shard}")
    command = ForceSlots(connection.door.meta_of(connection), connection.principal)
    shards.hosts[shard].node.submit(command, partial(_forced, slot))


def _forced(slot: Slot, outcome: Outcome | FenceholdError, at_ms: int) -> None:
    if isinstance(outcome, SlotsForced):
        slot.reply({"broken": outcome.holds, "sent_on": outcome.waiters})
    else:
        refuse(slot, outcome, at_ms)


def _several(connection: Connection) -> Shards:
    shards = connection.door.shards
    if shards is None:
        raise Wrong("this service has one shard, and no slot can move")
    return shards


HANDLERS: dict[bytes, Handler] = {
    b"SHARD.MAP": shard_map,
    b"SHARD.PLACE": place,
    b"SHARD.MOVES": moves,
    b"SHARD.FORCE": force,
    b"CLUSTER": cluster,
}
