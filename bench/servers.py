"""Servers that contests run against: each its own process, on a free port of loopback, gone with the contest."""

import asyncio
import contextlib
import socket
import ssl
import sys
from pathlib import Path

from bench import folders, procfs
from bench.contest import Fixture
from rig.processes import leash

_START_SECONDS_MAX = 20.0
_STOP_SECONDS_MAX = 10.0


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server(Fixture):
    """A process that is ready when it answers a PING in the Redis protocol."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.port = free_port()
        self.folder = Path()
        self._process: asyncio.subprocess.Process | None = None

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def setup(self) -> None:
        self.folder = folders.new_folder()
        await self.start()

    async def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self._process = await asyncio.create_subprocess_exec(
            *leash(None),
            *self.command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Of its own: ctrl-c is for the benchmark, which then stops it in order.
            process_group=0,
        )
        log.close()
        async with asyncio.timeout(_START_SECONDS_MAX):
            while not await self._answers():
                if self._process.returncode is not None:
                    raise RuntimeError(f"{self.name} did not start: {(self.folder / 'log').read_text()[-2_000:]}")
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def teardown(self) -> None:
        await self.stop()
        if self.folder != Path():
            folders.remove(self.folder)

    def cpu_seconds(self) -> float:
        """Processor time it has used so far."""
        return procfs.cpu_seconds(self.pid)

    def tls(self) -> ssl.SSLContext | None:
        """How it is spoken to; None: without TLS."""
        return None

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls())
            try:
                writer.write(b"*1\r\n$4\r\nPING\r\n")
                return (await reader.readline()).startswith(b"+PONG")
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        return False


class Fencehold(Server):
    """The embedded server, every batch synced; or all in memory."""

    def __init__(
        self, name: str = "a Fencehold server", *, memory: bool = False, python: str = sys.executable
    ) -> None:
        """`python`: the interpreter that runs it, with the build that is installed there."""
        super().__init__(name)
        self._memory, self._python = memory, python

    def command(self) -> list[str]:
        where = ["--memory"] if self._memory else ["--data", str(self.folder / "data")]
        return [self._python, "-m", "fencehold.cli", "serve", "--no-http", "--port", str(self.port), *where]


class Redis(Server):
    """A Redis that syncs every write, or keeps all in memory."""

    def __init__(self, name: str, *, synced: bool) -> None:
        super().__init__(name)
        self._synced = synced

    def command(self) -> list[str]:
        append = ["--appendonly", "yes", "--appendfsync", "always"] if self._synced else ["--appendonly", "no"]
        return ["redis-server", "--port", str(self.port), "--save", "", "--dir", str(self.folder), *append]
