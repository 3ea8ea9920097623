"""A survey of the nodes: which are up, the leader, how far each is.

1. Asked are the nodes of the URL, the leader that any of them names, and the standbys that a leader names; all
   known nodes concurrently, so that an unreachable one delays no other.
2. A node is identified by what it reports, not by where it was asked: a name and an address. One that answers at
   another address than it advertises, and not at that one, has its address wrong.
3. If two claim to lead, the one with the newer epoch does; the other has not noticed yet.
"""

import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from fencehold.cli.wire import GREET_TIMEOUT_S, Wire, address_of, login_of, tls_of, told
from fencehold.drivers.address import Endpoint, endpoint
from fencehold.errors import FenceholdError, PermissionDenied, UsageError

NODES_MAX = 128
_AT_ONCE_MAX = 16


class Seen(NamedTuple):
    """One node, as it reports itself or, if it does not answer, as others report it."""

    node: str
    address: str
    role: str
    """`leader`, `standby`, `waiting`, or `unreachable`."""
    epoch: int = 0
    position: int = 0
    lag: int | None = None
    """Entries that it is behind the leader; None where that is not known."""
    engine: str = ""
    version: str = ""
    note: str = ""
    is_at_home: bool = True
    """Whether it answers at the address that it advertises."""


class Survey(NamedTuple):
    """All that was seen."""

    nodes: list[Seen]
    """The leader first, then the others by name."""

    @property
    def leader(self) -> Seen | None:
        return next((node for node in self.nodes if node.role == "leader"), None)

    @property
    def answers(self) -> bool:
        """Whether any node does."""
        return any(node.role != "unreachable" for node in self.nodes)


class Answer(NamedTuple):
    """The answer of one address, or why there is none."""

    said: dict[str, Any]
    failure: str = ""
    denied: PermissionDenied | None = None
    """It answered that the caller may not ask this."""


def survey(url: str) -> Survey:
    """Ask all nodes that can be found.

    Raises:
        UsageError: the URL names no server.
        PermissionDenied: nodes answer, but tell the caller nothing.
    """
    address = address_of(url)
    login, tls = login_of(address), tls_of(address)
    answers: dict[Endpoint, Answer] = {}
    to_ask = list(dict.fromkeys(address.endpoints))
    with ThreadPoolExecutor(_AT_ONCE_MAX) as pool:
        while to_ask and len(answers) < NODES_MAX:
            answers |= zip(to_ask, pool.map(lambda place: _ask(place, login, tls), to_ask), strict=True)
            to_ask = [place for place in _named(answers) if place not in answers]
    denied = next((answer.denied for answer in answers.values() if answer.denied is not None), None)
    if denied is not None and not any(answer.said for answer in answers.values()):
        raise denied
    return drawn_up(answers)


def _ask(place: Endpoint, login: tuple[str, ...], tls: ssl.SSLContext | None) -> Answer:
    try:
        wire = Wire(place, *login, tls=tls)
    except (OSError, UnicodeError, FenceholdError) as failure:
        return Answer({}, told(failure), failure if isinstance(failure, PermissionDenied) else None)
    try:
        return Answer(
            {**wire.call("NODE.LIST", timeout=GREET_TIMEOUT_S), "version": str(wire.hello.get("version", ""))}
        )
    except FenceholdError as failure:
        return Answer({}, str(failure), failure if isinstance(failure, PermissionDenied) else None)
    finally:
        wire.close()


def _named(answers: dict[Endpoint, Answer]) -> list[Endpoint]:
    """The nodes that the answers mention."""
    named = []
    for said, *_ in answers.values():
        named += [said.get("address", ""), said.get("leader_address", "")]
        named += [each["address"] for each in said.get("standbys", ())]
    return [place for place in dict.fromkeys(map(_place, named)) if place is not None]


def _place(address: str) -> Endpoint | None:
    try:
        return endpoint(address) if address else None
    except UsageError:
        return None


def drawn_up(answers: dict[Endpoint, Answer]) -> Survey:
    """Make a survey of what was answered."""
    lead = max((said for said, *_ in answers.values() if said.get("role") == "leader"), key=_epoch, default={})
    nodes: dict[tuple[str, str], Seen] = {}
    for place, answer in answers.items():
        if answer.said:
            seen = _seen(place, answer.said, lead, answers)
            nodes.setdefault((seen.node, seen.address), seen)
    known = {_place(seen.address) for seen in nodes.values()}
    away = [_away(place, answers, lead) for place in answers if answers[place].failure and place not in known]
    return Survey(sorted([*nodes.values(), *away], key=_order))


def _order(seen: Seen) -> tuple[bool, bool, str, str]:
    return seen.role != "leader", not seen.node, seen.node, seen.address


def _epoch(said: dict[str, Any]) -> int:
    return int(said["epoch"])


def _seen(place: Endpoint, said: dict[str, Any], lead: dict[str, Any], answers: dict[Endpoint, Answer]) -> Seen:
    # A single server has no name, and is at the address that was asked.
    address = said["address"] or str(place)
    at_home = answers.get(_place(address) or place, Answer({}))
    role, notes = said["role"], [said["note"]] if said["note"] else []
    if "shards" in said:
        # Its role is that in the first shard, not in the others.
        notes.insert(0, f"leads {said['shards_led']} of {said['shards']} shards")
    if role == "leader" and said is not lead:
        role, notes = "waiting", ["has led under an older epoch, and not noticed yet that another does"]
    if role == "standby" and lead and address not in [each["address"] for each in lead["standbys"]]:
        notes.append("the leader does not hear from it")
    is_elsewhere = bool(at_home.failure) or at_home.said.get("node", said["node"]) != said["node"]
    if is_elsewhere:
        who = at_home.failure or "another node does"
        notes.append(f"it answers at {place}, but not at the address it advertises: {who}")
    return Seen(
        node=said["node"],
        address=address,
        role=role,
        epoch=_epoch(said) if role == "leader" else 0,
        position=said["position"],
        lag=max(0, lead["position"] - said["position"]) if lead and role != "waiting" else None,
        engine=said["engine"],
        version=said["version"],
        note="; ".join(notes),
        is_at_home=not is_elsewhere,
    )


def _away(place: Endpoint, answers: dict[Endpoint, Answer], lead: dict[str, Any]) -> Seen:
    """A node that does not answer; perhaps others know it."""
    known: dict[str, Any] = next(
        (each for each in lead.get("standbys", ()) if _place(each["address"]) == place), {}
    )
    led = [said["leader"] for said, *_ in answers.values() if said and _place(said["leader_address"]) == place]
    note = answers[place].failure + (f"; the leader heard it {known['heard_ms_ago']} ms ago" if known else "")
    return Seen(
        node=known.get("node", led[0] if led else ""),
        address=str(place),
        role="unreachable",
        position=known.get("position", 0),
        lag=known.get("lag"),
        note=note,
        is_at_home=False,
    )
