"""The examples in the docs do what the pages say, against a real server.

1. Each page has a server of its own, and is read from top to bottom, as its reader does.
2. A whole program, one that connects, runs in a process of its own and writes nothing to stderr. A fragment runs
   with a `client` at hand; with an async one if it awaits something.
3. Commands run in one shell per page. Each ends with 0, unless the page asks for `$?` next, and writes what is
   shown.
4. What is marked as not to be run is compiled all the same.
"""

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import CodeType

import pytest

import fencehold
from tests.docs.pages import ROOT, Block, blocks, name_of
from tests.docs.shell import PATIENCE_S, Shell, shell
from tests.e2e.served import serving

RUN_ELSEWHERE = {"docs/how-to/pytest.md": "tests/unit/testing/test_howto.py"}
"""Pages whose examples are no programs of their own, and the test that runs them."""
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/tutorial/*.md")),
    *(page for page in sorted(ROOT.glob("docs/how-to/*.md")) if name_of(page) not in RUN_ELSEWHERE),
    ROOT / "docs/explanation/which-lock.md",
    ROOT / "docs/reference/sdk.md",
    ROOT / "docs/reference/configuration.md",
]
BY_THE_READER = re.compile(r"make |source |cd ")
"""Commands for a reader's own terminal: the tests have their server and their place already."""
SAYS_NO = {("README.md", "fencehold info nightly-report")}
"""Commands whose answer is no where they stand: their exit code is 1."""
SCRIPTS = ("report.sh",)
"""What commands on the pages call as if the reader had it."""

_ADDRESS = re.compile(r"\bfencehold://127\.0\.0\.1(:7420)?(?![\d:])")
_PORT = re.compile(r"-p 7420\b|(?<=127\.0\.0\.1:)7420\b")


class Reader:
    """Reads a page and does what it says."""

    def __init__(self, url: str, place: Path, terminal: Shell) -> None:
        self._url = url
        self._place = place
        self._terminal = terminal

    def do(self, block: Block) -> None:
        """Do what a block says."""
        word, rest = block.test_mark
        assert word in ("", "skip-run", "file"), f"{block.place}: what is {word!r}?"
        if block.language == "python":
            source = self._here(block.text)
            code = compiled(source, block.place)
            if word == "file":
                (self._place / rest).write_text(source)
            elif word != "skip-run":
                self._run_python(source, code, block.place)
        elif word == "file":
            (self._place / rest).write_text(self._here(block.text))
        elif block.language == "console" and word != "skip-run":
            for command, shown in conversation(block.text):
                self._type(block, command, shown)

    def _here(self, text: str) -> str:
        """The text with the address of the server that runs here."""
        port = self._url.rpartition(":")[2]
        return _PORT.sub(lambda found: found[0].replace("7420", port), _ADDRESS.sub(self._url, text))

    def _run_python(self, source: str, code: CodeType, place: str) -> None:
        if "connect(" in source:
            run_program(source, place, self._place)
        else:
            run_fragment(code, self._url)

    def _type(self, block: Block, command: str, shown: list[str]) -> None:
        if BY_THE_READER.match(command):
            return
        code = self._terminal.type(self._here(command))
        try:
            if shown:
                self._terminal.expect([self._here(line) for line in shown])
            else:
                self._terminal.forget()
            wanted = 1 if (block.page, command) in SAYS_NO else 0
            assert code == wanted or asked_for_code(block, command), f"exit code {code}"
        except AssertionError as error:
            raise AssertionError(f"{block.place}: $ {command}\n{error}") from None


def compiled(source: str, place: str) -> CodeType:
    code: CodeType = compile(source, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


def run_program(source: str, place: str, directory: Path) -> None:
    """Run it as a reader does who has pasted it into a file."""
    program = directory / "pasted.py"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, "-W", "error", program.name],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{place}\n{done.stdout}\n{done.stderr}"


def run_fragment(code: CodeType, url: str) -> None:
    """Run it with what its page says is there."""
    names: dict[str, object] = {"fencehold": fencehold, "asyncio": asyncio, "__name__": "__main__"}
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(_awaited(code, names, url))
        return
    with fencehold.connect(url, name="docs") as client:
        exec(code, names | {"client": client})


async def _awaited(code: CodeType, names: dict[str, object], url: str) -> None:
    async with fencehold.aio.connect(url, name="docs") as client:
        await eval(code, names | {"client": client})


def conversation(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines shown below it."""
    turns: list[tuple[str, list[str]]] = []
    goes_on = False
    for line in text.splitlines():
        if goes_on:
            command, shown = turns[-1]
            turns[-1] = (command + line.strip(), shown)
        elif line.startswith("$ "):
            turns.append((re.sub(r"\s+# .*$", "", line[2:]), []))
        else:
            assert turns, f"nobody asked for {line!r}"
            turns[-1][1].append(line)
        goes_on = turns[-1][0].endswith("\\") and not turns[-1][1]
        if goes_on:
            turns[-1] = (turns[-1][0][:-1], [])
    return turns


def asked_for_code(block: Block, command: str) -> bool:
    """Whether the page itself shows the exit code of a command, next."""
    commands = [typed for typed, _ in conversation(block.text)]
    at = commands.index(command) + 1
    return at < len(commands) and "echo $?" in commands[at]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_examples_of_a_page_work_as_pasted(page: Path, tmp_path: Path) -> None:
    """Every program and command of a page runs, and writes what the page shows."""
    place = tmp_path / "reader"
    place.mkdir()
    for name in SCRIPTS:
        (place / name).write_text("#!/bin/sh\nexit 0\n")
        (place / name).chmod(0o755)
    with serving(tmp_path, "--data", str(tmp_path / "data")) as served:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with shell(place, {"PATH": path, "FENCEHOLD_URL": served.url}) as terminal:
            reader = Reader(served.url, place, terminal)
            for block in blocks(page):
                reader.do(block)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    """Leaving an example untested takes a reason."""
    for block in blocks(page):
        word, reason = block.test_mark
        assert word != "skip-run" or reason, block.place


@pytest.mark.parametrize("page", RUN_ELSEWHERE)
def test_what_is_run_elsewhere_is_run(page: str) -> None:
    """The page compiles, and the test that runs it is there and names it."""
    for block in blocks(ROOT / page):
        if block.language == "python":
            compiled(block.text, block.place)
    assert Path(page).name in (ROOT / RUN_ELSEWHERE[page]).read_text()
