"""A server with a policy in a box, and clients that are somebody."""

import json
from typing import Any

from tests.unit.doors.box import Box, Client
from tests.unit.node.doubles import until


def rules(**prefixes: str) -> dict[str, Any]:
    """A role: verbs by prefix; a name that ends with an underscore is exact, "all" is every name."""
    made = []
    for key, verbs in prefixes.items():
        text = key.removesuffix("_")
        where = {"name": text} if key.endswith("_") else {"prefix": "" if key == "all" else text}
        made.append({**where, "allow": verbs.split()})
    return {"rules": made}


async def apply(client: Client, **tables: Any) -> dict[str, Any]:
    """Change the policy that is there."""
    revision = (await client.map("WHOAMI"))["revision"]
    return await client.map("POLICY.APPLY", revision, json.dumps(tables))


async def change(box: Box, client: Client, **tables: Any) -> None:
    """Change the policy, and wait until the other tier follows it."""
    told = await apply(client, **tables)
    await until(lambda: box.server.volatile.node.rulebook is not None)
    await until(lambda: box.server.volatile.node.rulebook.revision == told["revision"])  # type: ignore[union-attr]


async def as_somebody(box: Box, principal: str, version: int = 3, *, session: int | None = None) -> Client:
    """A connection of a principal, as a certificate would have made it."""
    before = set(box.server.door.connections)
    client = await box.client(version)
    await client.call("PING")
    (connection,) = set(box.server.door.connections) - before
    connection.end_admission(principal)
    if session is not None:
        await client.call("SESSION.OPEN", "TTL", session)
    return client
