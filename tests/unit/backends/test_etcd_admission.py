"""Locking on an etcd that is guarded: TLS with certificates on both sides, users with passwords and roles."""

import asyncio
from collections.abc import Iterator

import pytest
import trustme

from fencehold import HoldLost, Unavailable, aio
from rig.etcd import EtcdCluster
from tests.unit.engines.etcd.test_admission import LOGIN, issued, people

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """A member that speaks TLS only, and only with those who show a certificate."""
    folder = tmp_path_factory.mktemp("tls")
    etcd = EtcdCluster(folder / "data", size=1, tls=issued(trustme.CA(), folder / "certificates"))
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()


@pytest.fixture(scope="module")
def peopled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """A member that has users: one of them may read and write under /locks/, and nothing else."""
    etcd = EtcdCluster(tmp_path_factory.mktemp("users"), size=1, flags=["--bcrypt-cost", "4"])
    try:
        etcd.start()
        asyncio.run(people(etcd))
        yield etcd
    finally:
        etcd.stop()


async def use(url: str) -> None:
    """All that a client does: hold, wait, be renewed, look, break, lose."""
    async with aio.connect(url, ttl=2, connect_timeout=10) as one, aio.connect(url, connect_timeout=10) as other:
        hold = await one.lock("name", timeout=10).acquire()
        assert isinstance(hold, aio.Hold)
        waiting = asyncio.create_task(other.lock("name", timeout=20).acquire())
        await asyncio.sleep(2.5)
        hold.check()
        assert len((await other.explain("name")).queue) == 1
        await other.break_hold("name")
        await asyncio.wait_for(hold.lost.wait(), 5)
        with pytest.raises(HoldLost):
            await hold.release()
        next_one = await waiting
        assert isinstance(next_one, aio.Hold)
        await next_one.release()


def test_locks_are_kept_over_tls(guarded: EtcdCluster) -> None:
    """With the authority and a certificate of our own, everything works as without."""
    asyncio.run(use(guarded.url("over-tls")))


def test_locks_are_kept_as_a_user(peopled: EtcdCluster) -> None:
    """A user with a role for the prefix can do all that a client does."""
    asyncio.run(use(peopled.url("locks/mine", user=LOGIN)))


@pytest.mark.parametrize(
    ("login", "prefix", "says"),
    [
        ("", "locks", "put user:password"),
        ("locks:wrong", "locks", "no such user"),
        (LOGIN, "elsewhere", "readwrite on the prefix"),
    ],
)
def test_who_is_not_let_in_is_told_so(peopled: EtcdCluster, login: str, prefix: str, says: str) -> None:
    """Certainly nothing happened, and the message says what to do."""

    async def main() -> None:
        with pytest.raises(Unavailable, match=says):
            await aio.connect(peopled.url(prefix, user=login), connect_timeout=10)

    asyncio.run(main())
