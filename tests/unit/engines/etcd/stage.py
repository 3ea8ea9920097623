"""What these tests need beside the members that all tests share: raw access to keys, and quick handles."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import EtcdClient
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.member import Connect
from fencehold.engines.etcd import EtcdBounds, EtcdJournal
from fencehold.engines.etcd.layout import JournalKeys
from fencehold.types import Epoch


@asynccontextmanager
async def leading(
    address: EtcdAddress, *, bounds: EtcdBounds | None = None, connect: Connect = Channel
) -> AsyncIterator[tuple[EtcdJournal, Epoch]]:
    """A handle that leads."""
    journal = EtcdJournal(address, bounds=bounds, connect=connect)
    await journal.open()
    try:
        yield journal, await journal.lead()
    finally:
        await journal.close()


@asynccontextmanager
async def raw(address: EtcdAddress) -> AsyncIterator[tuple[EtcdClient, JournalKeys]]:
    """The keys of a journal, to look at and to spoil."""
    cluster = EtcdClient(address, EtcdBounds())
    try:
        yield cluster, JournalKeys(address.prefix)
    finally:
        await cluster.close()


async def keys_under(address: EtcdAddress, name: str) -> list[str]:
    """All keys below the prefix that begin with a name, without the prefix."""
    start = (address.prefix + name).encode()
    async with raw(address) as (cluster, _):
        found = await cluster.read(messages.RangeRequest(key=start, range_end=start + b"\xff", keys_only=True))
    return [pair.key.decode().removeprefix(address.prefix) for pair in found.kvs]
