"""A real Redis for tests of what stands in for redis-py."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.processes import Process, accepts, free_port


class RedisServer:
    """One `redis-server` that keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no"]
        self.process = Process("redis", command, folder)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """A Redis, for as long as it is needed."""
    server = RedisServer(folder)
    server.process.start()
    try:
        server.process.await_ready(lambda: accepts(server.port))
        yield server
    finally:
        server.process.stop()
