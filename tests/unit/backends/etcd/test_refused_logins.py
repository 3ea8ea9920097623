"""Locking on an etcd that is guarded: TLS with certificates on both sides, users with passwords and roles."""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from fencehold import EFFICIENCY, HoldLost, PermissionDenied, aio
from rig.etcd import EtcdCluster
from tests.behaviour.asking import proceeding, until
from tests.unit.drivers.etcd.guarded import LOGIN, PASSWORD, set_password, with_tls, with_users

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with with_tls(tmp_path_factory.mktemp("tls")) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def peopled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with with_users(tmp_path_factory.mktemp("users")) as etcd:
        yield etcd


def renewed_after(hold: aio.Hold, end: float) -> bool:
    return hold._grant.trust.end > end


async def use(url: str) -> None:
    """All that a client does: hold, wait, be renewed, look, break, lose."""
    async with aio.connect(url, ttl=2, connect_timeout=10) as one, aio.connect(url, connect_timeout=10) as other:
        hold = await one.lock("name", timeout=10).acquire()
        assert isinstance(hold, aio.Hold)
        waiting = asyncio.create_task(other.lock("name", timeout=20).acquire())
        for _ in range(2):
            await until(partial(renewed_after, hold, hold._grant.trust.end))
        hold.check()
        assert len((await other.explain("name")).queue) == 1
        await other.break_hold("name")
        await asyncio.wait_for(hold.lost.wait(), 20)
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
        with pytest.raises(PermissionDenied, match=says):
            await aio.connect(peopled.url(prefix, user=login), connect_timeout=10)

    asyncio.run(main())


def test_a_password_that_is_changed_is_no_outage(peopled: EtcdCluster) -> None:
    """While a client is connected, too: nobody proceeds, no breaker opens; and when it is back, so are locks."""
    url = peopled.url("locks/changed", user=LOGIN)

    async def main() -> None:
        async with proceeding(url) as client:
            lock = client.lock("name", tier=EFFICIENCY, timeout=0)
            async with lock as claim:
                assert claim.is_protected
            set_password(peopled, "another")
            for _ in range(5):
                with pytest.raises(PermissionDenied, match="no such user"):
                    await lock.acquire()
            set_password(peopled, PASSWORD)
            async with lock as claim:
                assert claim.is_protected

    asyncio.run(main())
