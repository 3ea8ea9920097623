"""One round in a process of its own: `python -m bench.isolated module:function '{"argument": 1}'`.

The process calls the function and writes its figures as JSON to what was its standard output; whatever else
is printed there meanwhile goes to standard error, so that it cannot be taken for figures.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class RoundFailed(Exception):
    """The process ended without figures; the message ends with what it wrote to standard error."""


async def call(
    function: Callable[..., Any], arguments: Mapping[str, Any], under: Sequence[str] = ()
) -> dict[str, float]:
    """Call a module's function in a fresh process, and return its figures. Cancelled, it ends the process.

    `under` is a command that runs it, such as `taskset -c 1`.

    Raises:
        ValueError: another process could not import the function.
        RoundFailed: it raised, or its process died.
    """
    process = await asyncio.create_subprocess_exec(
        *under,
        sys.executable,
        "-m",
        "bench.isolated",
        target(function),
        json.dumps(dict(arguments)),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        answer, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        ending = f"{target(function)} ended with {process.returncode}"
        raise RoundFailed(f"{ending}\n{complaint.decode(errors='replace').rstrip()}")
    figures: dict[str, float] = json.loads(answer)
    return figures


def target(function: Callable[..., Any]) -> str:
    """The name another process finds the function by.

    Raises:
        ValueError: it is local to another function, or in the program's main module.
    """
    if "<" in function.__qualname__ or function.__module__ == "__main__":
        raise ValueError(f"{function.__qualname__} cannot run isolated: it must be a module's own function")
    return f"{function.__module__}:{function.__qualname__}"


def main(name: str, arguments_json: str) -> None:
    """Be the fresh process."""
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    module, _, path = name.partition(":")
    function = attrgetter(path)(importlib.import_module(module))
    figures = function(**json.loads(arguments_json))
    if inspect.iscoroutine(figures):
        figures = asyncio.run(figures)
    with os.fdopen(answer_fd, "w") as answer:
        json.dump(dict(figures), answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
