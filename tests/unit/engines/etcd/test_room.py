"""Room in etcd: whose size and whose quota count, where the quota is found, and what is said when it is full."""

from pathlib import Path

import pytest

from fencehold.drivers.etcd.address import LOCKS, EtcdAddress
from fencehold.drivers.etcd.survey import MemberStorage, quota_in, quota_of
from fencehold.engines.etcd import EtcdJournal
from fencehold.engines.etcd.room import DEFAULT_QUOTA_BYTES, room_of
from fencehold.errors import OutcomeUnknown, UsageError
from fencehold.journal.port import Journal
from fencehold.types import Epoch, Position
from rig.etcd import EtcdCluster
from tests.contract.harness import leading, opened, run

MIB = 1 << 20


def _member(size: int, in_use: int, quota: int | None, *, has_alarm: bool = False) -> MemberStorage:
    quota_bytes = None if quota is None else quota * MIB
    return MemberStorage("m:2379", size * MIB, in_use * MIB, quota_bytes, has_alarm)


def test_the_fullest_member_and_the_smallest_quota_count() -> None:
    """One member that is full makes all of them refuse; part of a quota is left to pages that lie scattered."""
    room = room_of([_member(30, 10, 128), _member(20, 15, 64), _member(20, 10, None)], None)
    assert (room.used_bytes, room.allowed_bytes, room.is_full) == (15 * MIB, 48 * MIB, False)


@pytest.mark.parametrize(
    ("quota", "room_bytes", "allowed"),
    [
        (None, None, DEFAULT_QUOTA_BYTES * 3 // 4),
        (None, 5 * MIB, 5 * MIB),
        (64, 100 * MIB, 48 * MIB),
        (64, 5 * MIB, 5 * MIB),
        (0, None, None),
        (0, 5 * MIB, 5 * MIB),
    ],
)
def test_the_bound_is_the_quota_or_what_the_url_says_if_that_is_less(
    quota: int | None, room_bytes: int | None, allowed: int | None
) -> None:
    """A quota that nobody tells is taken for etcd's default, and that is said; one of 0 is none."""
    room = room_of([_member(2, 1, quota)], room_bytes)
    assert room.allowed_bytes == allowed
    assert ("room_bytes=" in room.note) == (quota is None)


def test_a_file_close_to_its_quota_is_full_though_little_is_in_use() -> None:
    """The quota is held against the file, which never shrinks by itself: it says what to do."""
    room = room_of([_member(63, 1, 64)], None)
    assert room.is_full
    assert "etcdctl defrag" in room.note


@pytest.mark.parametrize(
    ("page", "quota"),
    [
        (b"# HELP x\netcd_server_quota_backend_bytes 6.7108864e+07\nother 1\n", 64 * MIB),
        (b"x 1\netcd_server_quota_backend_bytes -1\n", 0),
        (b"x 1\netcd_server_quota_backend_bytes what\n", None),
        (b"HTTP/1.0 404 Not Found\n", None),
    ],
)
def test_the_quota_is_read_from_the_metrics(page: bytes, quota: int | None) -> None:
    """As etcd writes numbers there; what is not there is not known."""
    assert quota_in(page) == quota


def test_a_bound_in_the_url_is_a_number_of_bytes() -> None:
    """Of a journal; a lock in etcd has no room to watch."""
    assert EtcdAddress.parse("etcd://h/p?room_bytes=1000").room_bytes == 1000
    assert EtcdAddress.parse("etcd://h/p").room_bytes is None
    for text in ("0", "1GB", "-1", ""):
        with pytest.raises(UsageError, match="room_bytes= is a number of bytes above 0"):
            EtcdAddress.parse(f"etcd://h/p?room_bytes={text}")
    with pytest.raises(UsageError, match="unknown option room_bytes="):
        EtcdAddress.parse("etcd://h/p?room_bytes=1000", LOCKS)


def test_nobody_who_listens_is_nobody_who_tells() -> None:
    """A quota that cannot be asked for is not known."""
    assert run(quota_of("127.0.0.1:1", None, 1.0)) is None


async def _append(journal: Journal, epoch: Epoch, positions: range) -> None:
    for position in positions:
        await journal.append(bytes(500_000), epoch=epoch, position=Position(position))


@pytest.mark.slow
def test_a_member_tells_its_quota_and_its_alarm(tmp_path: Path) -> None:
    """Filled by hand, without a node that watches: appends are in doubt, and it says what to do."""

    async def work() -> None:
        cluster = EtcdCluster(tmp_path, 1, flags=["--quota-backend-bytes", str(16 * MIB)])
        cluster.start()
        try:
            async with leading(EtcdJournal.from_url(cluster.url("x"))) as (journal, epoch):
                room = await journal.room(10.0)
                assert (room.allowed_bytes, room.is_full) == (12 * MIB, False)
                with pytest.raises(OutcomeUnknown, match="full"):
                    await _append(journal, epoch, range(1, 100))
                room = await journal.room(10.0)
                assert room.is_full
                assert "alarm disarm" in room.note
        finally:
            cluster.stop()

    run(work())


@pytest.mark.slow
def test_what_an_urgent_trim_gives_back_is_seen(tmp_path: Path) -> None:
    """Without urgency etcd keeps it until the next trim; with it, what is in use falls within a moment."""

    async def work() -> None:
        cluster = EtcdCluster(tmp_path, 1)
        cluster.start()
        try:
            async with opened(EtcdJournal.from_url(cluster.url("x"))) as journal:
                epoch = await journal.lead()
                await _append(journal, epoch, range(1, 21))
                await journal.save(Position(20), [b"state"])
                await journal.trim(urgent=True)
                end = 20
                while (used_bytes := (await journal.room(10.0)).used_bytes) is None or used_bytes > 2 * MIB:
                    # etcd counts pages as free when it next writes something.
                    end += 1
                    await journal.append(b"tick", epoch=epoch, position=Position(end))
        finally:
            cluster.stop()

    run(work())
