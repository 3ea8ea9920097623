"""What is started and stopped, as a context: stopped at the end, and also when it did not start whole."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self, TypeVar


class Lasting:
    """Several processes that are started and stopped together."""

    def start(self) -> None:
        """Start all of them, and wait until they serve."""
        raise NotImplementedError

    def stop(self) -> None:
        """End all of them that run."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Startable(Protocol):
    """What can be started and stopped."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


S = TypeVar("S", bound=Startable)


@contextmanager
def running_in(folder: Path, kind: Callable[[Path], S]) -> Iterator[S]:
    """A server of that kind, running in a folder that goes with it."""
    made = kind(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
