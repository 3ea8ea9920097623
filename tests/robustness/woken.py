"""A leader that was stopped and wakes up after it was replaced: all it may say is that others must be asked (G10).

Connections are made to it before. While it is stopped, commands are sent into them, which the kernel keeps for it;
meanwhile the new leader ends a session of theirs and grants what it held to another. When the old one wakes up it
finds the commands, and later follows what happened: it must answer none of them, and push nothing.
"""

from typing import Any

from rig.nodes import FenceholdNode
from tests.robustness.wire import Wire, is_no_answer

TTL_MS = 60_000
SHORT_TTL_MS = 1_500
"""Of the session that ends while the leader is stopped."""
HEARD_S = 5.0


class OldFriends:
    """Connections to one node, with sessions, holds and a queued request."""

    def __init__(self, node: FenceholdNode, label: str) -> None:
        self._name = f"woken:{label}"
        self._holder, self._waiter, self._asker = (Wire(node.host, node.port) for _ in range(3))
        self._holder.call("SESSION.OPEN", "TTL", SHORT_TTL_MS)
        self._waiter.call("SESSION.OPEN", "TTL", TTL_MS, "GRACE", TTL_MS)
        self._asker.call("SESSION.OPEN", "TTL", TTL_MS, "GRACE", TTL_MS)
        self.fence: int = self._holder.call("LOCK.ACQUIRE", self._name)["fence"]
        self._waiter.call("LOCK.ACQUIRE", self._name, "REQUEST", 1, "ASYNC")

    def speak(self) -> None:
        """Ask for everything a leader could answer."""
        for wire in (self._holder, self._asker):
            wire.send("SESSION.KEEPALIVE")
            wire.send("LOCK.ACQUIRE", f"{self._name}:new", "WAIT", 0)
            wire.send("LOCK.INFO", self._name)
            wire.send("LOCK.LIST")
            wire.send("SESSION.LIST")
        self._holder.send("LOCK.RELEASE", self._name, self.fence)
        self._waiter.send("SESSION.KEEPALIVE")

    def heard(self, seconds: float = HEARD_S) -> list[Any]:
        """What the node said that it must not have; closes the connections."""
        wires = (self._holder, self._waiter, self._asker)
        messages = [message for wire in wires for message in wire.rest(seconds)]
        for wire in wires:
            wire.close()
        return [message for message in messages if not is_no_answer(message)]
