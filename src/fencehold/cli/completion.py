"""Completion: names in use, read from the server when the user presses tab.

1. It is quick or silent: a server that is unreachable, slow or not ours means no names, never a message or a
   noticeable wait.
2. Names come from others, and shells act on what they are given (zsh even evaluates it): only names without
   special characters for any shell are offered.
3. bash breaks words at colons and equal signs, and names have them: the words are put together again, and of each
   name that part is given which bash is still missing.
"""

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fencehold.cli.wire import Wire

VARIABLE = "_FENCEHOLD_COMPLETE"
"""Set by the shell when it asks; its value says which shell it is."""
NAMES_MAX = 100
TOTAL_S = 1.0
_EACH_S = 0.3
"""For a node to accept the connection, and again to answer the greeting."""
_PLAIN = frozenset("._:/@%+=,-")
_BREAKS = (":", "=")


def names(context: typer.Context, incomplete: str) -> list[str]:
    """The names in use with this prefix, at the server that the command line, or the environment, names."""
    if "--" in asked_words():
        # Of `run`: from here on it is the command's.
        return []
    given = context.params
    try:
        found = _asked(str(given["url"]), str(given.get("tier") or ""), incomplete)
    except Exception:
        # During completion no error may be shown.
        return []
    return [name for name in found if is_plain(name)]


def is_plain(name: str) -> bool:
    """Whether a name is the same word in any shell, quoted or not."""
    return name[:1] not in ("-", "=", "%", "") and all(char.isalnum() or char in _PLAIN for char in name)


def _asked(url: str, tier: str, prefix: str) -> list[str]:
    # Not at the top: it is loaded for every command, and few of them are completed.
    from fencehold.cli.wire import Wire, login_of, tls_of  # noqa: PLC0415
    from fencehold.drivers.address import service_address  # noqa: PLC0415
    from fencehold.errors import FenceholdError  # noqa: PLC0415

    address = service_address(url)
    greeting, tls = (*login_of(address), *(("TIER", tier) if tier else ())), tls_of(address)
    until = time.monotonic() + TOTAL_S
    for endpoint in address.endpoints:
        left_s = until - time.monotonic()
        if left_s <= 0:
            break
        # Any node knows them, whether it leads or not; an unreachable one costs a part of the time.
        with contextlib.suppress(OSError, UnicodeError, FenceholdError):
            each_s = min(left_s, _EACH_S)
            wire = Wire(endpoint, *greeting, connect_s=each_s, greet_s=each_s, tls=tls)
            with contextlib.closing(wire):
                shards = int(wire.hello.get("shards", 1))
                if shards == 1:
                    return _listed(wire, prefix, left_s)
            found: list[str] = []
            for shard in range(shards):
                wire = Wire(endpoint, *greeting, "SHARD", str(shard), connect_s=each_s, greet_s=each_s, tls=tls)
                with contextlib.closing(wire):
                    found += _listed(wire, prefix, left_s)
            return sorted(found)[:NAMES_MAX]
    return []


def _listed(wire: "Wire", prefix: str, timeout_s: float) -> list[str]:
    listed = wire.call("LOCK.LIST", "PREFIX", prefix, "COUNT", NAMES_MAX, "STALE", timeout=timeout_s)
    return [str(found["name"]) for found in listed[1]]


def asked_words() -> list[str]:
    """The words of the command line that is being completed, but for the one that is being written."""
    if "COMP_WORDS" in os.environ:
        return os.environ["COMP_WORDS"].split("\n")[1:-1]
    return os.environ.get("_TYPER_COMPLETE_ARGS", "").split(" ")[1:-1]


def for_bash(complete: Callable[[], object]) -> None:
    """Have a command line completed as bash wants it."""
    words, at = _rejoined(os.environ.get("COMP_WORDS", "").split("\n"), int(os.environ.get("COMP_CWORD") or 0))
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(words), str(at)
    typed = words[at] if at < len(words) else ""
    # What precedes the last break stays on the line as it is.
    known = max((typed.rfind(mark) + 1 for mark in _BREAKS), default=0)
    offered = io.StringIO()
    try:
        with contextlib.redirect_stdout(offered):
            complete()
    finally:
        for line in filter(None, offered.getvalue().splitlines()):
            sys.stdout.write(line[known:] + "\n")


def _rejoined(words: list[str], at: int) -> tuple[list[str], int]:
    """The words as they were written, where bash has broken them; and which of them is being written."""
    joined: list[str] = []
    place = 0
    for index, word in enumerate(words):
        is_part = word in _BREAKS or (index > 0 and words[index - 1] in _BREAKS)
        if is_part and joined:
            joined[-1] += word
        else:
            joined.append(word)
        if index == at:
            place = len(joined) - 1
    return joined, place if at < len(words) else len(joined)
