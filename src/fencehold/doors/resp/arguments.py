"""Arguments: the words of a command, read strictly. What is wrong is reported in one sentence."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from fencehold.core.commands import Acquire, AcquireAtLeast, Mode
from fencehold.doors.resp.usage_errors import Wrong

INTEGER_MAX: Final = (1 << 53) - 1
"""Integers up to here survive any client, JavaScript's too."""


def text(word: bytes, what: str) -> str:
    """A word as text."""
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise Wrong(f"{what} must be UTF-8") from None


def number(word: bytes, what: str) -> int:
    """A word as a whole number, not below zero."""
    if word.isdigit() and len(word) <= 16 and (value := int(word)) <= INTEGER_MAX:
        return value
    raise Wrong(f"{what} must be a whole number from 0 to {INTEGER_MAX}, not {shown(word)}")


often: Final = lru_cache(maxsize=256)(number)
"""The same, for what is mostly one of a few values: how long a client waits, or holds."""


def shown(word: bytes) -> str:
    """A word as it can stand in a message: whatever it is, short and printable."""
    return ascii(word[:40].decode(errors="replace"))


_USAGE = {
    usage.split(" ", 1)[0].encode(): usage
    for usage in (
        "LOCK.ACQUIRE name [WAIT ms] [TTL ms] [MODE X|S] [LIMIT n] [DELAY ms] [ATLEAST ms] [OWNER o] [META json]",
        "LOCK.MACQUIRE n name ... [WAIT ms] [TTL ms] [MODE X|S] [DELAY ms] [ATLEAST ms] [OWNER o] [META json]",
        "LOCK.CANCEL request",
        "LOCK.RELEASE name fence",
        "LOCK.MRELEASE n name ... fence",
        "LOCK.EXTEND name fence ttl_ms",
        "LOCK.MEXTEND n name ... fence ttl_ms",
        "LOCK.SETTLE request ...",
        "LOCK.BREAK name [FENCE fence] [BY meta]",
        "LOCK.INFO name [HOLDS cursor] [WAITERS cursor] [COUNT n] [STALE]",
        "LOCK.WATCH prefix [FROM position]",
        "LOCK.UNWATCH prefix",
        "SESSION.RESUME id secret",
        "SESSION.HELD name fence ...",
        "ECHO text",
        "SELECT 0",
        "CONFIG GET name",
    )
}
"""The syntax of commands with arguments, for clients that left them out."""


def at_least(words: list[bytes], count: int) -> None:
    """See that a command has its arguments."""
    if len(words) <= count:
        raise Wrong(_usage(words, f"needs {count} argument{'s' if count > 1 else ''} or more"))


def exactly(words: list[bytes], *counts: int) -> None:
    if len(words) - 1 not in counts:
        wanted = " or ".join(map(str, counts))
        raise Wrong(_usage(words, f"takes {wanted} arguments, not {len(words) - 1}"))


def usage(verb: bytes) -> str:
    """How a command is written."""
    return _USAGE[verb.upper()]


def _usage(words: list[bytes], otherwise: str) -> str:
    usage = _USAGE.get(words[0].upper())
    return usage if usage is not None else f"{shown(words[0])} {otherwise}"


def names(words: list[bytes]) -> tuple[tuple[str, ...], int]:
    """The names of ``VERB n name …``, and where the rest begins."""
    at_least(words, 2)
    count = number(words[1], "the count of names")
    if not 0 < count <= len(words) - 2:
        raise Wrong(f"{count} names were announced, but {len(words) - 2} arguments follow")
    return tuple(text(word, "a name") for word in words[2 : 2 + count]), 2 + count


Reader = Callable[[bytes, str], Any]
Kinds = dict[bytes, tuple[str, Reader, str]]
"""By the word of an option: the field it fills, how its value is read, and the word for messages."""


def kinds(**fields: tuple[str, Reader]) -> Kinds:
    """The options a command knows, by their words."""
    return {word.encode(): (field, read, word) for word, (field, read) in fields.items()}


def options(words: list[bytes], start: int, known: Kinds, flags: frozenset[bytes] = frozenset()) -> dict[str, Any]:
    """The options from a word on: each once, each known."""
    found: dict[str, Any] = {}
    index, end, count = start, len(words), 0
    while index < end:
        word = words[index]
        kind = known.get(word) or known.get(word.upper())
        if kind is not None and index + 1 < end:
            key, read, label = kind
            found[key] = read(words[index + 1], label)
            index += 2
        elif word.upper() in flags:
            found[word.decode().upper()] = True
            index += 1
        else:
            raise Wrong(f"{shown(word)} needs a value" if kind else _no_option(words, word))
        count += 1
    if len(found) < count:
        raise Wrong("an option is given twice")
    return found


def _no_option(words: list[bytes], word: bytes) -> str:
    usage = _USAGE.get(words[0].upper(), "")
    return f"no option {shown(word)}" + (f": {usage}" if usage else "")


def _mode(word: bytes, what: str) -> Mode:
    try:
        return {b"X": Mode.EXCLUSIVE, b"S": Mode.SHARED}[word.upper()]
    except KeyError:
        raise Wrong(f"{what} is X or S, not {shown(word)}") from None


REQUEST: Final = kinds(REQUEST=("request", number), ANSWERED=("answered", number))

_ACQUIRE: Final = REQUEST | kinds(
    WAIT=("wait_ms", often),
    TTL=("ttl_ms", often),
    MODE=("mode", _mode),
    LIMIT=("limit", number),
    DELAY=("lock_delay_ms", number),
    ATLEAST=("at_least_ms", number),
    OWNER=("owner", text),
    META=("meta", text),
)
_ASYNC: Final = frozenset({b"ASYNC"})
_SPECIAL: Final = frozenset({"ASYNC", "limit", "at_least_ms"})
"""Options that change the kind of acquire. Most have none."""


_REQUEST_WORDS: Final = [b"REQUEST", b"ANSWERED"]
_OWNED_WORDS: Final = [b"ASYNC", b"OWNER"]
_OWNED_COUNT: Final = 7


def request(words: list[bytes], start: int) -> dict[str, Any]:
    """The request id from a word on, and the last answer acknowledged; nothing, if not given."""
    if words[start::2] == _REQUEST_WORDS and len(words) == start + 4:
        # As the SDK sends it.
        return {"request": number(words[start + 1], "REQUEST"), "answered": number(words[-1], "ANSWERED")}
    return options(words, start, REQUEST)


def acquire(words: list[bytes], session: int, asked: tuple[str, ...], start: int) -> tuple[Acquire, bool]:
    """The acquire of these names by a session, and whether it waits asynchronously."""
    if (
        len(words) == start + _OWNED_COUNT
        and words[start : start + 2] == _OWNED_WORDS
        and words[start + 3 :: 2] == _REQUEST_WORDS
        and (request := number(words[start + 4], "REQUEST"))
    ):
        # As the SDK sends it, for most: there is no need to look for each option.
        owner, answered = text(words[start + 2], "OWNER"), number(words[start + 6], "ANSWERED")
        return Acquire(session, asked, owner=owner, request=request, answered=answered), True
    found = options(words, start, _ACQUIRE, _ASYNC)
    if _SPECIAL.isdisjoint(found):
        return Acquire(session, asked, **found), False
    in_background = found.pop("ASYNC", False)
    if in_background and not found.get("request"):
        raise Wrong("ASYNC needs a REQUEST id, by which the answer is known")
    if "limit" in found:
        if "mode" in found:
            raise Wrong("LIMIT makes it a semaphore, and MODE does not apply to it")
        found["mode"] = Mode.PERMIT
    if found.get("at_least_ms"):
        return AcquireAtLeast(session, asked, **found), in_background
    found.pop("at_least_ms", None)
    return Acquire(session, asked, **found), in_background
