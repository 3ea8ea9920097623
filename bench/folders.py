"""Folders that contests work in, and how none of them is left behind.

1. On a disk, below `.bench` in the checkout (or `BENCH_FOLDER`): the system's temporary folder may be memory.
2. A folder carries its maker's process id in its name. It is removed in teardown, or else when its maker ends.
3. A maker that was killed could do neither: the next to make a folder removes those whose maker no longer runs.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "fencehold-bench-"
_made: list[Path] = []


def new_folder() -> Path:
    """An empty folder on a disk."""
    return _make(Path(os.environ.get("BENCH_FOLDER", Path.cwd() / ".bench")))


def reachable_folder() -> Path:
    """An empty folder on a disk that other users can reach, too: the one a database server runs as."""
    folder = _make(Path("/var/tmp"))
    folder.chmod(0o711)
    return folder


def remove(folder: Path) -> None:
    """Remove it with all that is in it; does nothing if it is gone already."""
    shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> list[Path]:
    """Remove the folders there whose makers are gone; returns them."""
    left = [folder for folder in parent.glob(f"{_PREFIX}*") if not _is_running(_maker(folder))]
    for folder in left:
        remove(folder)
    return left


def _make(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    _made.append(folder)
    return folder


def _maker(folder: Path) -> int:
    number = folder.name.removeprefix(_PREFIX).partition("-")[0]
    return int(number) if number.isdigit() else 0


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@atexit.register
def _remove_made() -> None:
    """Last of all, for a teardown that was interrupted."""
    for folder in _made:
        remove(folder)
