"""The machine that all users of a file are on: its clock, and which boot this is.

1. The clock is that of the kernel since boot. All processes of a machine share it, it cannot be set, and it keeps
   running while the machine sleeps: a time of day that jumps changes nothing.
2. It begins anew with each boot. So what was written under another boot is void: none of the processes of that
   time is left.
3. Files that several machines reach at once cannot be used: neither their locks nor this clock work there.
"""

import time
from pathlib import Path

from fencehold.errors import Unsupported, UsageError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    [
        *("9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "ocfs2", "orangefs"),
        *("smb3", "smbfs"),
    ]
)


def now() -> int:
    """Nanoseconds since the machine was booted."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def life() -> str:
    """The id of this boot of the machine.

    Raises:
        Unsupported: this system does not say.
    """
    try:
        now()
        return _BOOT_ID.read_text().strip()
    except (AttributeError, OSError) as error:
        raise Unsupported(
            "sqlite:// needs the clock that Linux counts from its start, and its boot id; on other systems run "
            "a server: fencehold serve"
        ) from error


def check_is_local(path: Path) -> None:
    """Check that a file is on a disk of this machine.

    Raises:
        UsageError: it is on a network file system.
    """
    kind = _kind(path)
    if kind in _NETWORK:
        raise UsageError(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold: use a file on a "
            "local disk, or a server that machines share: fencehold serve"
        )


def _kind(path: Path) -> str:
    """The kind of the file system a file is, or would be, on; empty if the system does not say."""
    try:
        lines = _MOUNTS.read_text().splitlines()
        folder = path.parent.resolve()
    except OSError:
        return ""
    above = {str(each) for each in (folder, *folder.parents)}
    found = [(len(point), kind) for point, kind in map(_mount, lines) if point in above]
    # Of several mounted at one place, the last one is seen.
    return max(reversed(found), key=lambda each: each[0])[1] if found else ""


def _mount(line: str) -> tuple[str, str]:
    left, _, right = line.partition(" - ")
    point = left.split(" ")[4].encode().decode("unicode_escape")
    return point, right.split(" ")[0]
