"""What is started and stopped, as a context: stopped at the end, and also when it did not start whole."""

from typing import Self


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
