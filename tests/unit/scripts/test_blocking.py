"""What the script that makes the blocking client of the async one makes of what it is given."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "blocking"

SOURCE = '''"""Locks of tasks, entered by `async with`."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from fencehold.client.aio.hold import Claim
from fencehold.client.aio.routes import current_task


async def first(
    claims: Callable[[], Awaitable[Claim]],
    on_lost: str = "cancel",  # ASYNC
) -> AsyncGenerator[Claim, None]:
    async with await claims() as claim:
        await asyncio.sleep(0)  # ASYNC
        # BLOCKING: print("no task waits here")
        yield claim
        print(current_task())
'''

MADE = '''# Made of source.py by scripts/blocking: change that one.
"""Locks of threads, entered by `with`."""

from collections.abc import Callable, Generator

from fencehold.client.blocking.hold import Claim
from fencehold.client.blocking.routes import this_thread


def first(
    claims: Callable[[], Claim],
) -> Generator[Claim, None, None]:
    with claims() as claim:
        print("no thread waits here")
        yield claim
        print(this_thread())
'''


@pytest.fixture
def script(tmp_path: Path) -> dict[str, Any]:
    """The script, told of one file in a folder of its own."""
    (tmp_path / "source.py").write_text(SOURCE)
    names = runpy.run_path(str(SCRIPT))
    names["main"].__globals__.update(ROOT=tmp_path, FILES={"source.py": "made.py"})
    return names


def test_what_is_awaited_is_called(script: dict[str, Any], tmp_path: Path) -> None:
    """Lines of one client only, types, imports and words are those of the blocking one; and it is formatted."""
    assert script["main"]([]) == 0
    assert (tmp_path / "made.py").read_text() == MADE


def test_a_stale_file_is_told(script: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A check writes nothing, and says which files are not what would be made, or not there."""
    assert script["main"](["--check"]) == 1
    assert "made.py" in capsys.readouterr().out
    assert not (tmp_path / "made.py").exists()
    script["main"]([])
    assert script["main"](["--check"]) == 0
    (tmp_path / "made.py").write_text(MADE + "# by hand\n")
    assert script["main"](["--check"]) == 1


def test_the_blocking_client_is_what_is_made_of_the_async_one() -> None:
    """As `make lint` asks."""
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
