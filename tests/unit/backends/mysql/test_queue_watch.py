"""The places of one client's asks: who is told, and when there is nothing new."""

import asyncio
from typing import Any, cast

from fencehold.backends.mysql.queue_watch import QueueWatch
from fencehold.backends.mysql.statements import WantedLease
from fencehold.drivers.mysql.pool import MysqlAnswer, MysqlPool


class _Lines:
    """A server on which every ask looked after stands as told."""

    def __init__(self) -> None:
        self.ahead = 1
        self.looked: list[str] = []
        self.was_asked = asyncio.Event()

    async def do(self, sql: str, *, is_read: bool = False) -> list[MysqlAnswer]:
        self.looked.append(sql)
        self.was_asked.set()
        tokens = [token for token in (b"1", b"2") if f"x'{token.hex()}'" in sql]
        rows: tuple[tuple[Any, ...], ...] = tuple((token, 0, 0, self.ahead, self.ahead) for token in tokens)
        return [MysqlAnswer(rows, 0)]


def _wanted(token: str) -> WantedLease:
    return WantedLease("a", token, 0, 30.0, "", True)


def test_only_the_first_of_a_name_is_looked_after_and_told() -> None:
    """When nobody is ahead of it; then it has something new, and the others have not."""

    async def main() -> None:
        lines, told = _Lines(), asyncio.Event()
        called: list[tuple[str, str]] = []

        def on_turn(name: str, token: str) -> None:
            called.append((name, token))
            told.set()

        places = QueueWatch(cast(MysqlPool, lines), on_turn)
        places.add(_wanted("1"))
        places.add(_wanted("2"))
        assert places.waits("1")
        await asyncio.wait_for(lines.was_asked.wait(), 20)
        assert not called
        lines.ahead = 0
        await asyncio.wait_for(told.wait(), 20)
        assert called[0] == ("a", "1")
        assert not places.waits("1")
        assert places.waits("2")
        assert not any("x'32'" in sql for sql in lines.looked)
        await places.close()

    asyncio.run(main())


def test_who_waits_no_longer_is_forgotten() -> None:
    """And when nobody waits, nobody looks."""

    async def main() -> None:
        lines = _Lines()
        places = QueueWatch(cast(MysqlPool, lines), lambda name, token: None)
        places.add(_wanted("1"))
        places.remove("a", "1")
        places.remove("a", "1")
        places.call("a", "1")
        assert not places.waits("1")
        assert places._watching is not None
        await asyncio.wait_for(places._watching, 20)
        assert not lines.looked

    asyncio.run(main())
