"""A server that says OK to whatever comes: what the kernel and the event loop cost by themselves.

`python -m bench.bare_server PORT`, until it is ended.
"""

import asyncio
import sys
from typing import cast

import uvloop


class Answer(asyncio.Protocol):
    """One connection: one write for each read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"+PONG\r\n")


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answer, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
