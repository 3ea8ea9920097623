"""Servers that all tests of a run share: started by the first who asks, and ended with the process."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar


class Servers(Protocol):
    """What keeps the journals."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Members(Protocol):
    """Servers of which one leads."""

    def leader(self) -> int: ...
    def kill(self, index: int) -> None: ...


Made = TypeVar("Made", bound=Servers)


def stand(make: Callable[[Path], Made], folder: Path) -> Made:
    """Start servers in a folder, which is gone at the end as they are."""
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    servers = make(folder)
    atexit.register(servers.stop)
    servers.start()
    return servers


def own_folder(name: str) -> Path:
    """A folder that nobody else has."""
    return Path(tempfile.mkdtemp(prefix=f"fencehold-{name}-"))


def kill_some(members: Members, size: int, count: int) -> None:
    """`kill -9` so many members, beginning with the one that leads."""
    first = members.leader()
    for index in [first, *(at for at in range(size) if at != first)][:count]:
        members.kill(index)
