"""Checks of `doctor`: what each says of what it finds."""

from pathlib import Path

import pytest

from fencehold import __version__
from fencehold.cli import checks
from fencehold.cli.checks import file_system

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
    assert file_system(Path(path), _MOUNTS) == kind


@pytest.mark.parametrize(("kind", "level"), [("tmpfs", "warn"), ("nfs4", "warn"), ("ext4", "ok")])
def test_a_file_system_that_forgets_or_is_far_away_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, kind: str, level: str
) -> None:
    """With what to do."""
    monkeypatch.setattr(checks, "file_system", lambda *_: kind)
    found = checks._file_system(Path("/"))
    assert found.level == level
    assert bool(found.advice) == (level == "warn")


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
    assert checks._version("0.0.1", "host:1").level == "warn"
    assert checks._version(__version__, "host:1").level == "ok"


def test_a_volatile_engine_is_warned_of() -> None:
    """Nothing survives it."""
    assert checks._engine("memory", False).level == "warn"
    assert checks._engine("file", True).level == "ok"
