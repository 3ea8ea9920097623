"""A bare client of the protocol, for what a benchmark does beside measuring."""

import asyncio
from typing import Any

import hiredis


def command(*words: str | int) -> bytes:
    """A command as the protocol has it."""
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


class Wire:
    """One connection. Commands are pipelined; replies come in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser = hiredis.Reader(encoding="utf-8")

    @classmethod
    async def open(cls, port: int) -> "Wire":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, *words: str | int) -> None:
        self._writer.write(command(*words))

    async def reply(self) -> Any:
        """The next reply.

        Raises:
            RuntimeError: it is an error.
            ConnectionError: the server is gone.
        """
        while (found := self._parser.gets()) is False:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._parser.feed(data)
        if isinstance(found, hiredis.ReplyError):
            raise RuntimeError(str(found))
        return found

    async def ask(self, *words: str | int) -> Any:
        self.send(*words)
        return await self.reply()

    async def info(self) -> dict[str, int]:
        """The server's counts."""
        pairs = (line.split(":", 1) for line in str(await self.ask("INFO")).splitlines() if ":" in line)
        return {key: int(value) for key, value in pairs if value.isdigit()}

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
