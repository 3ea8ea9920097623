"""Connections to all shards of a service: for commands that show the state of all shards.

Mostly a service has one shard, and this is one connection.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from fencehold.cli.wire import LEADER_S, Wire, connect, facts, map_of

_SUMMED = (
    "sessions",
    "names_held",
    "names_awaited",
    "waiters",
    "appends",
    "position",
    "fence",
)
_OF_ONE = ("shard", "shards_led")


class ShardWires:
    """A connection to the leader of each shard."""

    def __init__(self, url: str, *, patience_s: float = LEADER_S, tier: str = "") -> None:
        """Connect to all of them.

        Raises: as `connect`.
        """
        first = connect(url, patience_s=patience_s, tier=tier)
        self.map = map_of(first)
        self.all = [first]
        if self.map is None:
            return
        first.close()
        self.all = []
        try:
            for shard in range(self.map.shards):
                self.all.append(connect(url, patience_s=patience_s, tier=tier, shard=shard))
        except BaseException:
            self.close()
            raise

    def of(self, name: str) -> Wire:
        """The connection to the shard of a name."""
        return self.all[0] if self.map is None else self.all[self.map.shard_of_name(name)]

    def facts(self) -> dict[str, str | int]:
        """The facts of INFO; of several shards, their counts summed."""
        told = [facts(wire) for wire in self.all]
        if self.map is None:
            return told[0]
        first = {key: value for key, value in told[0].items() if key not in _OF_ONE}
        return {**first, **_together(told)}

    def close(self) -> None:
        for wire in self.all:
            wire.close()


@contextlib.contextmanager
def wired_all(url: str, *, patience_s: float = LEADER_S, tier: str = "") -> Iterator[ShardWires]:
    """Connections to all shards of the service at a URL, closed at the end."""
    wires = ShardWires(url, patience_s=patience_s, tier=tier)
    try:
        yield wires
    finally:
        wires.close()


def _together(told: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of all shards; what is a shard's own, like its position, is shown by `fencehold shards`."""
    return {key: sum(int(each[key] or 0) for each in told) for key in _SUMMED if key in told[0]}
