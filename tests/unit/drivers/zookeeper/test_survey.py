"""A survey of an ensemble: what each server says of itself, and what its silence means."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.survey import ZookeeperServerStatus, survey

_LEADER = "Zookeeper version: 3.8.0\nLatency min/avg/max: 0/0.5/3\nMode: leader\nNode count: 5\n"
_REFUSED = "srvr is not executed because it is not in the whitelist.\n"


async def _seen(stack: AsyncExitStack, answers: list[str | None], within_s: float) -> list[ZookeeperServerStatus]:
    """Survey servers that give these answers; None says nothing at all."""
    hosts = []
    for answer in answers:

        async def speak(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: str | None = answer
        ) -> None:
            word = await reader.read(4)
            if answer is not None:
                assert word == b"srvr"
                writer.write(answer.encode())
                writer.close()
            else:
                await reader.read()
                writer.close()

        server = await stack.enter_async_context(await asyncio.start_server(speak, "127.0.0.1", 0))
        hosts.append(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    return await survey(ZookeeperAddress(tuple(hosts), "/root"), within_s)


@pytest.mark.parametrize(
    ("answer", "is_up", "mode"),
    [
        (_LEADER, True, "leader"),
        (_LEADER.replace("leader", "follower"), True, "follower"),
        (_REFUSED, True, ""),
        ("This ZooKeeper instance is not currently serving requests\n", False, ""),
        ("", False, ""),
    ],
)
def test_a_server_says_whether_it_serves_and_as_what(answer: str, is_up: bool, mode: str) -> None:
    """One that may not say is there all the same."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            (seen,) = await _seen(stack, [answer], 10.0)
            assert (seen.is_up, seen.mode) == (is_up, mode)
            assert bool(seen.trouble) != is_up

    asyncio.run(work())


def test_one_that_is_silent_or_gone_holds_up_no_other() -> None:
    """All are asked at once, and the time is for each of them."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            quiet, well = await _seen(stack, [None, _LEADER], 0.8)
            assert (quiet.is_up, quiet.trouble) == (False, "no answer")
            assert well.is_up
        (gone,) = await survey(ZookeeperAddress(("127.0.0.1:1",), "/root"), 5.0)
        assert not gone.is_up
        assert "refused" in gone.trouble.lower()

    asyncio.run(work())
