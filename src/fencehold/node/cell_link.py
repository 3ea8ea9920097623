"""The link to other cells: a connection to each one's RESP listener, kept open, and the one question asked on it.

1. `CELL.CONFIRM asker map_version homes` is answered by the leader of a cell's first shard alone, after a
   barrier. A standby replies who leads; then that one is asked.
2. A connection that failed, or on which no reply came in time, is dropped: the next round makes another, to the
   next address.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from hiredis import HiredisError, Reader, ReplyError

from fencehold.core.state import HomeRecord, Stage
from fencehold.drivers.address import endpoint
from fencehold.drivers.resp.wire import command, error, split
from fencehold.drivers.tls import ClientTls
from fencehold.errors import Unavailable
from fencehold.node.cell_keeper import Confirmation
from fencehold.placement.cells import Cell, CellMap

_HELLO = command("HELLO", 3, "SHARD", 0)
_READ_BYTES = 1 << 16
_decode = msgspec.json.Decoder(CellMap).decode


class CellLinks:
    """Connections to the other cells."""

    def __init__(self, tls: ClientTls | None = None) -> None:
        self._tls = tls
        """How cells are reached that speak TLS: with this node's own certificate."""
        self._open: dict[str, _Link] = {}
        self._turn: dict[str, int] = {}
        self._hint: dict[str, str] = {}

    async def confirm(self, cell: Cell, asker: str, homes: Mapping[str, int], map_version: int) -> Confirmation:
        """As `node.cell_keeper.CellLine` says."""
        listed = msgspec.json.encode(sorted(homes.items()))
        try:
            link = self._open.get(cell.name) or await self._made(cell)
            reply = await link.ask(command("CELL.CONFIRM", asker, map_version, listed))
        except BaseException:
            self._drop(cell.name)
            raise
        if isinstance(reply, ReplyError):
            code, detail = split(str(reply))
            if code == "NOTLEADER":
                self._hint[cell.name] = detail.rpartition(" ")[2]
            self._drop(cell.name)
            raise error(code, detail)
        newer = tuple(_record(each) for each in reply[b"newer"])
        told = reply[b"map"]
        return Confirmation(newer, _decode(told) if told else None)

    def close(self) -> None:
        for cell in tuple(self._open):
            self._drop(cell)

    def _drop(self, cell: str) -> None:
        link = self._open.pop(cell, None)
        if link is not None:
            link.close()

    async def _made(self, cell: Cell) -> "_Link":
        turn = self._turn.get(cell.name, 0)
        self._turn[cell.name] = turn + 1
        address = self._hint.pop(cell.name, "") or cell.addresses[turn % len(cell.addresses)]
        host, port = endpoint(address)
        tls = self._tls() if self._tls is not None else None
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname=host if tls is not None else None
        )
        link = self._open[cell.name] = _Link(reader, writer)
        greeting = await link.ask(_HELLO)
        if isinstance(greeting, ReplyError):
            raise error(*split(str(greeting)))
        return link


class _Link:
    """One connection, on which one question is asked at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser = Reader()

    async def ask(self, words: bytes) -> Any:
        self._writer.write(words)
        try:
            while (reply := self._parser.gets()) is False:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    raise Unavailable("the connection was closed")
                self._parser.feed(data)
        except HiredisError as broken:
            raise Unavailable(f"it speaks another protocol: {broken}") from broken
        return reply

    def close(self) -> None:
        self._writer.transport.abort()


def _record(told: list[Any]) -> HomeRecord:
    prefix, version, to = told
    return HomeRecord(prefix.decode(), int(version), Stage.CLOSED, to.decode(), 0)
