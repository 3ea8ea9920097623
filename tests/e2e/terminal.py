"""A terminal of a test's own: what a person would see, and keys to press."""

import codecs
import os
import pty
import re
import select
import subprocess
import time
from types import TracebackType
from typing import Self

from tests.e2e.served import COMMAND, PATIENCE_S

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The command, or a shell, started on a terminal of 100 columns; ended with the test."""

    def __init__(
        self, *words: str, shell: bool = False, place: str | os.PathLike[str] | None = None, **variables: str
    ) -> None:
        """Start it, in this folder if there is one."""
        self._ours, theirs = pty.openpty()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("FENCEHOLD_", "NO_COLOR"))}
        self.process = subprocess.Popen(
            # setsid -c: the terminal is the command's own, so that ctrl-c reaches it.
            ["setsid", "-c", *(words if shell else (*COMMAND, *words))],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=place,
            env=kept | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"} | variables,
        )
        os.close(theirs)
        self.raw = ""
        # A character may come in two parts.
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    @property
    def seen(self) -> str:
        """All that was written, without colours."""
        return _STYLE.sub("", self.raw).replace("\r\n", "\n")

    def until(self, text: str, times: int = 1) -> str:
        """Read until this was written so often."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self.seen.count(text) < times:
            assert time.monotonic() < give_up_at, f"{text!r} was not written: {self.seen!r}"
            assert self._read(), f"it ended without {text!r}: {self.seen!r}"
        return self.seen

    def press(self, keys: str) -> None:
        """Type something."""
        os.write(self._ours, keys.encode())

    def code(self) -> int:
        """Read on to the end; how it ended."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], PATIENCE_S)[0]:
            raise AssertionError(f"nothing more was written: {self.seen!r}")
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:
            # How Linux says that nobody has the other end any more.
            return False
        self.raw += self._decode(data)
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._ours)
