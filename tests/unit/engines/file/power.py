"""A disk that loses power: what was synced stays, of the rest any part may.

It works on a real directory and keeps beside it what a power loss would leave: for each file the bytes that were
synced and the writes that were not; for the directory the names that were synced and the changes that were not.
`lose` makes one of the directories that may then be found, as its seed decides.
"""

import os
import random
from pathlib import Path
from typing import Any

from fencehold.runtime.disk import Disk

SECTOR = 512


class PowerLost(BaseException):
    """The machine is off. No handler for errors may catch this."""


class File:
    """One file, whatever it is called: what is durable, and what was done since."""

    def __init__(self, data: bytes = b"") -> None:
        self.durable = bytearray(data)
        self.pending: list[tuple[int, bytes | None]] = []

    def sync(self) -> None:
        for offset, data in self.pending:
            self._do(self.durable, offset, data)
        self.pending.clear()

    def lose(self, rng: random.Random) -> bytes:
        """What may be found: of each write since the last sync all, nothing, or some sectors."""
        found = bytearray(self.durable)
        for offset, data in self.pending:
            fate = rng.choice(["all", "nothing", "some"])
            if data is None or fate != "some":
                if fate != "nothing":
                    self._do(found, offset, data)
                continue
            for at in range(0, len(data), SECTOR):
                if rng.random() < 0.5:
                    self._do(found, offset + at, data[at : at + SECTOR])
        return bytes(found)

    @staticmethod
    def _do(contents: bytearray, offset: int, data: bytes | None) -> None:
        if data is None:
            del contents[offset:]
        contents.extend(bytes(max(0, offset - len(contents))))
        if data is not None:
            contents[offset : offset + len(data)] = data


class PowerDisk(Disk):
    """Records every change below `root`; loses power at the `calls`-th of them."""

    def __init__(self, root: Path, calls: int) -> None:
        self.root = root
        self.calls_left = calls
        self.names = {file.name: File(file.read_bytes()) for file in root.iterdir()}
        self.durable_names = dict(self.names)
        self.name_changes: list[tuple[str, str | None, File | None]] = []
        self.marks = [(root / "mark").read_bytes() if "mark" in self.names else b""]
        self.fds: dict[int, File] = {}

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left <= 0:
            raise PowerLost

    def open(self, path: str, flags: int) -> int:
        self._count()
        fd = super().open(path, flags)
        name = os.path.basename(path)
        if os.path.dirname(path) == str(self.root):
            if name not in self.names:
                self.names[name] = File()
                self.name_changes.append((name, None, self.names[name]))
            elif flags & os.O_TRUNC:
                self.names[name].pending.append((0, None))
            self.fds[fd] = self.names[name]
        return fd

    def close(self, fd: int) -> None:
        self.fds.pop(fd, None)
        super().close(fd)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._count()
        self.fds[fd].pending.append((offset, bytes(data)))
        return super().pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._count()
        self.fds[fd].pending.append((size, None))
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        # Power may go before or after the sync took effect; the mark is what it was before.
        self._count()
        self.marks.append((self.root / "mark").read_bytes() if "mark" in self.names else b"")
        self.fds[fd].sync()
        self._count()

    datasync = sync

    def sync_dir(self, path: str) -> None:
        self._count()
        self.durable_names = dict(self.names)
        self.name_changes.clear()
        self._count()

    def replace(self, source: str, target: str) -> None:
        self._count()
        super().replace(source, target)
        old, new = os.path.basename(source), os.path.basename(target)
        self.names[new] = self.names.pop(old)
        self.name_changes.append((new, old, self.names[new]))

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)
        name = os.path.basename(path)
        del self.names[name]
        self.name_changes.append((name, None, None))

    def kill(self, calls: int) -> None:
        """End the process only: its files are closed, and all it wrote is still in the system's memory."""
        for fd in list(self.fds):
            self.close(fd)
        self.calls_left = calls

    def lose(self, rng: random.Random, target: Path) -> None:
        """Turn everything off, and leave in `target` what may be found when it is on again."""
        self.kill(calls=0)
        names: dict[str, File] = dict(self.durable_names)
        for name, old, file in self.name_changes:
            if rng.random() < 0.5:
                names.pop(old or name, None)
                names.update({name: file} if file is not None else {})
        target.mkdir()
        found: dict[str, Any] = {name: file.lose(rng) for name, file in names.items()}
        if "mark" in found:
            now = (self.root / "mark").read_bytes()
            found["mark"] = rng.choice([*self.marks[-5:], now, now, bytes(128)])
        for name, data in found.items():
            (target / name).write_bytes(data)
