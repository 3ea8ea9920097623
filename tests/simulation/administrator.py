"""An administrator: changes who may do what, while everybody goes on and everything fails.

It takes rights away and gives them back, disables clients and enables them, all by lot. A change is made for the
revision that it has read last; if the answer was lost it reads again. When all faults are over it gives everybody
everything back, and is done.
"""

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.simulation.clients import tags
from tests.simulation.operators import CallLine, Operator
from tests.simulation.process import Process

EVERY_S = 4.0

_SEEN = ["observe", "events"]
_ALL = ["acquire", *_SEEN]


def roles(groups: int) -> dict[str, Any]:
    """What clients may be allowed, where names have the tags of so many groups."""
    return {
        "root": {"rules": [{"prefix": "", "allow": [*_ALL, "break", "admin"]}]},
        "all": {"rules": [{"prefix": "", "allow": [*_ALL, "break"]}]},
        "some": {
            "rules": [
                {"prefix": "", "allow": _ALL},
                *({"name": f"{tag}hot-0", "allow": _SEEN} for tag in tags(groups)),
                *({"prefix": f"{tag}cold-1", "allow": []} for tag in tags(groups)),
            ]
        },
        "few": {
            "rules": [
                *({"name": f"{tag}hot-1", "allow": ["acquire"]} for tag in tags(groups)),
                {"prefix": "probe-", "allow": ["acquire"]},
            ]
        },
        "none": {"rules": [{"prefix": "", "allow": _SEEN}]},
    }


class Administrator(Operator):
    """Of one run."""

    again_s = 0.5

    def __init__(
        self,
        process: Process,
        nodes: list[str],
        clients: list[str],
        random: Random,
        note: Callable[[str], None],
        *,
        others: Iterable[str] = (),
        operators: Iterable[str] = (),
        shards: int = 1,
        groups: int = 0,
    ) -> None:
        """`others`: may what clients may, and for ever; `operators`: may everything."""
        super().__init__(process, nodes, shards, random, note)
        self._clients, self._roles = clients, roles(groups)
        self._users = {
            **{host: {"roles": ["root"]} for host in (process.host, *nodes, *operators)},
            **{host: {"roles": ["all"]} for host in (*clients, *others)},
        }

    async def _use(self, line: CallLine) -> bool:
        """From the first policy to the last, which gives everything back."""
        while True:
            known = await line.call("WHOAMI")
            revision, is_last = int(known[b"revision"]), self._stopping
            change = self._first() if not revision or is_last else self._next()
            told = await line.call("POLICY.APPLY", revision, json.dumps(change))
            self._note(f"changed the policy: {change if revision else 'the first'}, {told}")
            if is_last:
                return True
            await self._pause(self._random.expovariate(1 / EVERY_S))

    def _first(self) -> dict[str, Any]:
        return {"users": self._users, "roles": self._roles}

    def _next(self) -> dict[str, Any]:
        random = self._random
        changes: dict[str, Any] = {}
        for client in random.sample(self._clients, random.choice((1, 1, 2))):
            role = random.choice(("all", "all", "some", "few", "none"))
            changes[client] = {"roles": [role], "disabled": random.random() < 0.1}
        return {"users": changes}
