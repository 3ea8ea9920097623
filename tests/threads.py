"""Threads that do the same at once."""

import threading
from collections.abc import Callable


def at_once(count: int, work: Callable[[], None]) -> None:
    """Have so many threads do it, and wait for all."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
