"""A member that wants to be asked for a sign of life less often than it is by default."""

import asyncio
from collections.abc import Iterator

import pytest

from fencehold import aio
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import EtcdBounds, EtcdClient
from fencehold.drivers.etcd.http2 import connection as line
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.messages import WatchCreateRequest, WatchRequest
from rig.etcd import EtcdCluster


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    etcd = EtcdCluster(tmp_path_factory.mktemp("etcd"), size=1, flags=["--grpc-keepalive-min-time=60s"])
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits a moment asks: etcd hangs up at the fourth time."""
    monkeypatch.setattr(line, "_SILENCE_S", 0.05)
    monkeypatch.setattr(line, "_SIGN_S", 20.0)


def test_a_watch_that_is_cut_off_is_told_why(etcd: EtcdCluster) -> None:
    """etcd's own reason, and not only that it hung up."""

    async def main() -> None:
        cluster = EtcdClient(EtcdAddress.parse(etcd.url()), EtcdBounds(call_s=20.0))
        await cluster.put(b"key", b"value")
        stream = cluster.stream()
        assert stream is not None
        await stream.write(WatchRequest(create_request=WatchCreateRequest(key=b"key")))
        assert (await stream.read()).created
        with pytest.raises(CallFailed, match="ENHANCE_YOUR_CALM: too_many_pings"):
            await asyncio.wait_for(stream.read(), 20)
        await cluster.close()

    asyncio.run(main())


def test_a_client_that_waits_finds_the_right_pace_and_misses_nothing(
    etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its quiet watch is cut off, and made anew, and asked half as often each time; then its turn comes."""
    paces: dict[line.KeepAlivePace, list[float]] = {}

    def slow_down(pace: line.KeepAlivePace) -> None:
        really(pace)
        paces.setdefault(pace, []).append(pace.silence_s)

    really = line.KeepAlivePace.slow_down
    monkeypatch.setattr(line.KeepAlivePace, "slow_down", slow_down)

    async def main() -> None:
        async with (
            aio.connect(etcd.url("quiet"), ttl=300) as one,
            aio.connect(etcd.url("quiet"), ttl=300) as other,
        ):
            hold = await one.lock("name").acquire()
            waiting = asyncio.create_task(other.lock("name", timeout=60).acquire())
            async with asyncio.timeout(30):
                while not any(len(each) == 3 for each in paces.values()):  # noqa: ASYNC110 - etcd's doing
                    await asyncio.sleep(0.01)
            assert isinstance(hold, aio.Hold)
            assert hold.safe_for() > 0
            assert not waiting.done()
            await hold.release()
            next_one = await asyncio.wait_for(waiting, 20)
            assert isinstance(next_one, aio.Hold)
            assert next_one.fence > hold.fence
            await next_one.release()

    asyncio.run(main())
    assert all(each == [0.1, 0.2, 0.4, 0.8][: len(each)] for each in paces.values())
