"""Lists over all shards: one after the other, each from where it is led.

1. A page is filled from as many shards as it takes. The cursor says in which one to continue, and where in it, in
   the format of a node that lists all shards: `3/cursor` of names; of sessions, a number with that of the shard
   above `SHARD_BITS`.
2. A shard without a leader is listed as a node has followed it, and the page says so.
3. A service with one shard is asked directly.
"""

from typing import Any, NamedTuple

from fencehold.errors import Unavailable, UsageError
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.questions import Questions
from fencehold.types import Tier

SHARD_BITS = 44
_WIDE_BITS = 42
"""With up to 1 024 shards, such numbers are whole numbers in every browser."""


class Page(NamedTuple):
    """A page of a list."""

    cursor: Any
    """Where the next one begins; empty, or 0: there is none."""
    items: list[Any]
    shards: list[int]
    """Of several shards: the shard of each item."""
    stale_shards: list[int]
    """Shards without a leader, listed as a node has followed them."""


class Lists:
    """Lists, for one login and tier."""

    def __init__(self, questions: Questions, credentials: Credentials, tier: Tier) -> None:
        self._questions, self._credentials, self._tier = questions, credentials, tier

    async def names(self, cursor: str, count: int, prefix: str = "") -> Page:
        """A page of LOCK.LIST.

        Raises:
            UsageError: the cursor is not one that was returned.
            FenceholdError: as `Questions.ask`.
        """
        words = ("PREFIX", prefix) if prefix else ()
        shards = await self._questions.shards(self._credentials)
        if shards == 1:
            more = ("CURSOR", cursor) if cursor else ()
            asked = ("LOCK.LIST", "COUNT", count, *words, *more)
            told, items = await self._questions.ask(self._credentials, self._tier, *asked)
            return Page(told.decode(), items, [], [])
        number, slash, inner = cursor.partition("/")
        if cursor and not (slash and number.isascii() and number.isdecimal()):
            raise UsageError("a page token must be one that was returned, or empty")
        page, shard, after = await self._filled(shards, int(number or 0), inner, count, "LOCK.LIST", *words)
        return page._replace(cursor="" if shard == shards else f"{shard}/{after.decode() if after else ''}")

    async def sessions(self, cursor: int, count: int) -> Page:
        """A page of SESSION.LIST.

        Raises: as `names`.
        """
        shards = await self._questions.shards(self._credentials)
        if shards == 1:
            more = ("CURSOR", cursor) if cursor else ()
            asked = ("SESSION.LIST", "COUNT", count, *more)
            after, items = await self._questions.ask(self._credentials, self._tier, *asked)
            return Page(after, items, [], [])
        shard, inner = cursor >> SHARD_BITS, cursor & (1 << SHARD_BITS) - 1
        page, shard, after = await self._filled(shards, shard, inner, count, "SESSION.LIST")
        return page._replace(cursor=0 if shard == shards else shard << SHARD_BITS | (after or 0))

    async def _filled(
        self, shards: int, shard: int, inner: Any, count: int, *words: str | int
    ) -> tuple[Page, int, Any]:
        """Items from one shard on, until there are enough; and in which shard to continue, and where in it."""
        if shard >= shards:
            raise UsageError(f"there is no shard {shard}: a page token must be one that was returned")
        page = Page(None, [], [], [])
        while shard < shards:
            more = ("COUNT", count - len(page.items), "CURSOR", inner or (0 if words[0] == "SESSION.LIST" else ""))
            (after, items), is_stale = await self._asked(shard, *words, *more)
            page.items.extend(items)
            page.shards.extend(shard for _ in items)
            page.stale_shards.extend([shard] if is_stale else [])
            if after:
                return page, shard, after
            shard, inner = shard + 1, None
            if len(page.items) >= count:
                break
        return page, shard, None

    async def _asked(self, shard: int, *words: str | int) -> tuple[Any, bool]:
        try:
            return await self._questions.ask(self._credentials, self._tier, *words, shard=shard), False
        except Unavailable:
            return await self._questions.ask_stale(self._credentials, self._tier, shard, *words), True


def wide(session: int, shard: int) -> int:
    """The number of a session that no session of another shard has. In the first shard it is the number itself."""
    return shard << _WIDE_BITS | session
