"""A survey of the servers of an ensemble: which answer, which one leads.

Each is asked by the one command that any ZooKeeper answers by default (`srvr`), over a connection of its own. Only
the servers that the URL names are asked: others could be found only by a session.
"""

import asyncio
import os
from typing import NamedTuple

from fencehold.drivers.zookeeper.address import ZookeeperAddress

_WORD = b"srvr"
_BYTES_MAX = 16 << 10
_NOT_SERVING = "not currently serving"


class ZookeeperServerStatus(NamedTuple):
    """One server."""

    host: str
    is_up: bool
    mode: str = ""
    """`leader`, `follower`, `observer` or `standalone`; empty if it does not say."""
    trouble: str = ""


async def survey(ensemble: ZookeeperAddress, within_s: float) -> list[ZookeeperServerStatus]:
    """Each server that the URL names, in its order."""
    return list(await asyncio.gather(*(_ask(ensemble, host, within_s) for host in ensemble.hosts)))


async def _ask(ensemble: ZookeeperAddress, place: str, within_s: float) -> ZookeeperServerStatus:
    try:
        async with asyncio.timeout(within_s):
            said = await _said(ensemble, place)
    except TimeoutError:
        return ZookeeperServerStatus(place, False, trouble="no answer")
    except OSError as error:
        # asyncio's own words name the address, and not what is wrong.
        return ZookeeperServerStatus(place, False, trouble=os.strerror(error.errno) if error.errno else str(error))
    if _NOT_SERVING in said:
        return ZookeeperServerStatus(
            place, False, trouble="it runs, and does not serve: too few of the others are there"
        )
    mode = next((line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("Mode:")), "")
    return ZookeeperServerStatus(place, bool(said), mode, "" if said else "it closed the connection")


async def _said(ensemble: ZookeeperAddress, place: str) -> str:
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    name = host if ensemble.tls is not None else None
    reader, writer = await asyncio.open_connection(host, int(port), ssl=ensemble.tls, server_hostname=name)
    try:
        writer.write(_WORD)
        return (await reader.read(_BYTES_MAX)).decode(errors="replace")
    finally:
        writer.close()
