"""A server with a policy of a hundred users and roles, for contestants that log in."""

import json
from typing import Any

from bench.servers import Fencehold
from bench.wire import Wire
from fencehold.core.policy import token_id
from fencehold.security.tokens import digest_of, new_token

USERS = 100


class Ruled(Fencehold):
    """The embedded server with a policy: `neighbour` and `wild` have tokens, and there are a hundred others."""

    def __init__(self, name: str, *, memory: bool = False) -> None:
        super().__init__(name, memory=memory)
        self.tokens = {user: new_token() for user in ("neighbour", "wild", "root")}

    @property
    def logins(self) -> tuple[str, str]:
        """The tokens of the well-behaved user, and of the wild one."""
        return self.tokens["neighbour"], self.tokens["wild"]

    async def setup(self) -> None:
        await super().setup()
        wire = await Wire.open(self.port)
        await wire.ask("POLICY.APPLY", 0, json.dumps(policy(self.tokens)))
        await wire.close()


def policy(tokens: dict[str, str]) -> dict[str, Any]:
    """A hundred roles with rules of their own, and a user for each; those with tokens may do everything else."""
    verbs = ["acquire", "observe", "events"]
    roles: dict[str, Any] = {
        f"team{number}": {
            "rules": [{"prefix": f"team{number}:", "allow": verbs}, {"prefix": "n:", "allow": verbs}]
        }
        for number in range(USERS)
    }
    roles["all"] = {"rules": [{"prefix": "", "allow": [*verbs, "break", "admin"]}]}
    users: dict[str, Any] = {f"user{number}": {"roles": [f"team{number}"]} for number in range(USERS)}
    users |= {user: {"roles": ["team1", "team2", "all"]} for user in tokens}
    kept = {user: {token_id(digest_of(t)): {"digest": digest_of(t)}} for user, t in tokens.items()}
    return {"users": users, "roles": roles, "tokens": kept}
