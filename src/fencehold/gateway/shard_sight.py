"""What each shard of several reports: its leader, its position, and its followers; or that it is away."""

import asyncio
from typing import Any

from fencehold.errors import FenceholdError, PermissionDenied
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.questions import Questions
from fencehold.types import CORRECTNESS

_WITHIN_S = 2.0
"""How long the leader of a shard is searched for."""
_TOLD = ("node", "address", "epoch", "position", "note")


async def shards_seen(questions: Questions, credentials: Credentials) -> list[dict[str, Any]]:
    """NODE.LIST of the leader of each shard; for one that is not reachable, `away` says why.

    Raises:
        PermissionDenied: that is for administrators.
    """
    shards = await questions.shards(credentials)
    return list(await asyncio.gather(*(_seen(questions, credentials, shard) for shard in range(shards))))


async def _seen(questions: Questions, credentials: Credentials, shard: int) -> dict[str, Any]:
    try:
        told = await questions.ask(credentials, CORRECTNESS, "NODE.LIST", shard=shard, within_s=_WITHIN_S)
    except PermissionDenied:
        raise
    except FenceholdError as away:
        return {"shard": shard, "away": str(away), **dict.fromkeys(_TOLD), "standbys": []}
    plain = {key: told[key.encode()] for key in _TOLD}
    standbys = [{key.decode(): _text(value) for key, value in each.items()} for each in told[b"standbys"]]
    return {
        "shard": shard,
        "away": None,
        **{key: _text(value) for key, value in plain.items()},
        "standbys": standbys,
    }


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
