"""Log lines of roles: one when a node begins to lead, follows another, or cannot serve; none while that stays so.

1. An unchanged state is not logged again, no matter how often the node retries: an outage of the journal for an
   hour is one line, and so is its return.
2. While a node cannot serve, each new reason is logged once, and at most a few of them.
"""

from typing import NamedTuple

from fencehold.node.node import Node

_REASONS_MAX = 8


class Change(NamedTuple):
    """A change worth a log line."""

    event: str
    """`leading`, `standing_by` or `waiting`."""
    words: str
    """For people."""
    facts: dict[str, object]

    @property
    def is_trouble(self) -> bool:
        return self.event == "waiting"


class Roles:
    """What was logged about one node so far."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._told: tuple[object, ...] = ()
        self._reasons: set[str] = set()

    def change(self) -> Change | None:
        """What to log now, if anything."""
        found = self._found()
        if found is None:
            return None
        if found.is_trouble:
            return found if self._is_new_reason(str(found.facts["reason"])) else None
        self._reasons.clear()
        told = (found.event, found.facts.get("epoch"), found.facts.get("leader_address"))
        if told == self._told:
            return None
        self._told = told
        return found

    def _found(self) -> Change | None:
        node = self._node
        match node.role:
            case "leader":
                facts: dict[str, object] = {"epoch": node.epoch, "position": node.position}
                return Change("leading", f"leads, epoch {node.epoch}", facts)
            case "standby":
                name, address = node.leader
                if not address or address == node.member.address:
                    # About to lead itself.
                    return None
                facts = {"leader": name, "leader_address": address, "position": node.position}
                return Change("standing_by", f"stands by; {name} leads at {address}", facts)
            case _:
                reason = node.notes[0] if node.notes else ""
                return Change("waiting", f"cannot serve: {reason}", {"reason": reason}) if reason else None

    def _is_new_reason(self, reason: str) -> bool:
        self._told = ()
        if reason in self._reasons or len(self._reasons) >= _REASONS_MAX:
            return False
        self._reasons.add(reason)
        return True
