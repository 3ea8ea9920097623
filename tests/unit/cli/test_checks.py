"""Checks of `doctor`: what each says of what it finds."""

from pathlib import Path
from typing import Any

import pytest

from fencehold import __version__
from fencehold.cli import checks, engine_checks
from fencehold.runtime.disk import file_system_of

_MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/x /mnt/with\\040space nfs4 rw 0 0
overlay /tmp/over overlay rw 0 0
ext /tmp/over ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib", "ext4"),
        ("/tmp", "tmpfs"),
        ("/tmp/a/b", "tmpfs"),
        ("/tmpx", "ext4"),
        ("/mnt/with space/data", "nfs4"),
        ("/tmp/over/x", "ext4"),
    ],
)
def test_a_path_is_on_the_longest_mount_above_it(path: str, kind: str) -> None:
    """The later one, of two on the same point."""
    assert file_system_of(Path(path), _MOUNTS) == kind


@pytest.mark.parametrize(("kind", "level"), [("tmpfs", "warn"), ("nfs4", "warn"), ("ext4", "ok"), ("", "ok")])
def test_a_file_system_that_forgets_or_is_far_away_is_warned_of(kind: str, level: str) -> None:
    """With what to do."""
    found = engine_checks.file_system(kind, "/data")
    assert found.level == level
    assert bool(found.advice) == (level == "warn")


def test_a_disk_with_little_room_is_warned_of() -> None:
    """A full one stops the server."""
    assert engine_checks.room(1 << 20, 1 << 40, "/data").level == "warn"
    assert engine_checks.room(1 << 39, 1 << 40, "/data") == ("room", "ok", "512.0 GiB free of 1024.0 in /data", "")


def test_a_disk_that_cannot_be_written_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The system's reason is told."""

    def refuse(fd: int) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(checks, "_sync", refuse)
    found = checks._syncing(tmp_path)
    assert found.level == "fail"
    assert "Read-only file system" in found.said


@pytest.mark.parametrize(("took_ms", "level"), [(0.5, "ok"), (30.0, "warn"), (0.001, "warn")])
def test_a_disk_too_slow_or_too_fast_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, took_ms: float, level: str
) -> None:
    """What syncs in no time does not sync."""
    monkeypatch.setattr(checks, "_timed_ms", lambda _: took_ms)
    assert checks._syncing(tmp_path).level == level


def test_another_version_of_the_server_is_warned_of() -> None:
    """One of the two should be upgraded."""
    assert checks._version("0.0.1", "pure", "host:1").level == "warn"
    found = checks._version(__version__, "compiled", "host:1")
    assert (found.level, found.said) == ("ok", f"fencehold {__version__}, compiled, at host:1")


def test_a_volatile_engine_is_warned_of() -> None:
    """Nothing survives it."""
    assert checks._engine("memory", False).level == "warn"
    assert checks._engine("file", True).level == "ok"


def _health(*up: bool, quorum: int = 0, note: str = "", **more: object) -> dict[str, object]:
    members = [
        {
            "address": f"m{n}",
            "up": int(is_up),
            "role": "leader" if n == 0 else "follower",
            "note": "" if is_up else "no answer",
        }
        for n, is_up in enumerate(up)
    ]
    return {
        "engine": "etcd",
        "data": None,
        "appends": 0,
        "members": members,
        "members_up": sum(up),
        "members_total": len(up),
        "quorum": quorum,
        "note": note,
        **more,
    }


@pytest.mark.parametrize(
    ("up", "quorum", "level", "said"),
    [
        ((True, True, True), 2, "ok", "3 of 3 up; m0 leads"),
        ((True, True, False), 2, "warn", "2 of 3 up; m0 leads; 2 are needed"),
        ((True, False, False), 2, "fail", "1 of 3 up; m0 leads"),
        ((True,), 1, "warn", "1 of 1 up; m0 leads"),
        ((True, False), 0, "warn", "1 of 2 up; m0 leads"),
        ((True,), 0, "ok", "1 of 1 up; m0 leads"),
    ],
)
def test_servers_of_the_engine_that_are_away_are_named(
    up: tuple[bool, ...], quorum: int, level: str, said: str
) -> None:
    """It fails when too few are there to grant anything, and warns when one more would be too many."""
    (found,) = engine_checks.engine(_health(*up, quorum=quorum))
    assert (found.check, found.level, found.said) == ("members", level, said)
    assert ("no answer" in found.advice) == (False in up)


def test_a_server_tells_of_its_own_disk() -> None:
    """Where its journal is, how much room there is, how long its appends take."""
    told = _health(
        engine="file",
        data="/var/lib/fencehold",
        file_system="ext4",
        disk_free_bytes=1 << 20,
        disk_total_bytes=1 << 40,
        appends=256,
        append_p50_us=250,
        append_max_us=4_000,
    )
    found = {one.check: one for one in engine_checks.engine(told)}
    assert list(found) == ["file system", "room", "append"]
    assert found["room"].level == "warn"
    assert found["append"].said == "p50 0.25 ms, worst of 256: 4.00 ms"


def test_what_cannot_be_told_is_said() -> None:
    """A server that could not find out says why."""
    (found,) = engine_checks.engine(_health(note="the disk did not say"))
    assert (found.check, found.level, found.said) == ("engine", "warn", "the disk did not say")


@pytest.mark.parametrize(
    ("told", "level", "said"),
    [
        ({}, "ok", "etcd's database: 10 of 48 MiB in use"),
        ({"room": "scarce"}, "warn", "etcd's database: 10 of 48 MiB in use"),
        (
            {"room": "tight", "held_back_s": 7},
            "fail",
            "etcd's database: 10 of 48 MiB in use; new work is held back for 7 s",
        ),
        ({"room_used_bytes": None, "room_note": "nobody knows"}, "ok", "etcd's database (nobody knows)"),
    ],
)
def test_a_journal_that_is_nearly_full_is_warned_of(told: dict[str, object], level: str, said: str) -> None:
    """Before new work is held back; while it is, that is a failure, with what to do about it."""
    known: dict[str, Any] = {
        "room": "ample",
        "room_what": "etcd's database",
        "room_used_bytes": 10 << 20,
        "room_allowed_bytes": 48 << 20,
        "room_note": "",
        "held_back_s": None,
    }
    (found,) = engine_checks.engine(_health(**{**known, **told}))
    assert (found.check, found.level, found.said) == ("journal room", level, said)
    assert bool(found.advice) == (level != "ok")
