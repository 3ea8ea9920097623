"""Processes that a benchmark talks to while it measures: a line of JSON for a line of JSON.

1. A child is a function of a module, called in a fresh process with arguments from JSON and a `Talk` with its
   parent.
2. None outlives the benchmark: each is on a leash, so that the kernel ends it when its parent is gone,
   however that was. It is in a process group of its own: ctrl-c is for the benchmark, which then ends its
   children.
3. Each line has a bound in time. A child that is late, or ends, is reported with the end of what it wrote.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from bench import isolated
from rig.processes import leash

_LINE_SECONDS_MAX = 60.0
_LINE_BYTES_MAX = 16 << 20
"""What a minute of a quick server's latencies take, several times."""
_COMPLAINT_BYTES_MAX = 4_000


class ChildFailed(Exception):
    """The child ended, or said nothing in time; the message ends with what it wrote to standard error."""


class Child:
    """One process, from the parent's side."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, complaints: Path) -> None:
        self.name = name
        self._process = process
        self._complaints = complaints

    @classmethod
    async def start(cls, name: str, function: Callable[..., Any], folder: Path, **arguments: Any) -> "Child":
        """Start it; what it writes to standard error goes to a file in the folder."""
        complaints = folder / f"{name.replace(' ', '-')}.log"
        with complaints.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *leash(None),
                *(sys.executable, "-m", "bench.children", isolated.target(function), json.dumps(arguments)),
                cwd=isolated.ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE_BYTES_MAX,
                process_group=0,
            )
        return cls(name, process, complaints)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, word: str, seconds_max: float = _LINE_SECONDS_MAX) -> dict[str, Any]:
        """Say a word, and return what the child answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        return await self.hear(seconds_max)

    async def hear(self, seconds_max: float = _LINE_SECONDS_MAX) -> dict[str, Any]:
        """The next line of the child.

        Raises:
            ChildFailed: it has ended, or was silent for too long.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds_max):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise ChildFailed(f"{self.name} said nothing for {seconds_max:g} s\n{self._written()}") from None
        if not line:
            raise ChildFailed(f"{self.name} ended with {await self._process.wait()}\n{self._written()}")
        return dict(json.loads(line))

    async def kill(self) -> None:
        """End it at once, as a process that crashes: its kernel closes its connections."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _written(self) -> str:
        return self._complaints.read_text(errors="replace")[-_COMPLAINT_BYTES_MAX:]


@asynccontextmanager
async def running(name: str, function: Callable[..., Any], folder: Path, **arguments: Any) -> AsyncIterator[Child]:
    """A child for as long as the context lasts."""
    child = await Child.start(name, function, folder, **arguments)
    try:
        yield child
    finally:
        await child.kill()


class Talk:
    """The parent, from the child's side."""

    def __init__(self, reader: asyncio.StreamReader, answer_fd: int) -> None:
        self._reader = reader
        self._answers = os.fdopen(answer_fd, "w")

    async def word(self) -> str:
        """What the parent says next; empty when there is no parent any more."""
        return (await self._reader.readline()).decode().strip()

    def say(self, **told: Any) -> None:
        """A line for the parent."""
        self._answers.write(json.dumps(told) + "\n")
        self._answers.flush()


async def talk() -> Talk:
    """Take up the talk. Whatever else is printed goes to standard error."""
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return Talk(reader, answer_fd)


async def main(name: str, arguments: Mapping[str, Any]) -> None:
    """Be the child."""
    module, _, path = name.partition(":")
    function = attrgetter(path)(importlib.import_module(module))
    outcome = function(await talk(), **arguments)
    if inspect.isawaitable(outcome):
        await outcome


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1], json.loads(sys.argv[2])))
