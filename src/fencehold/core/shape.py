"""Shape: what can be checked of a command alone, whatever the state is: that it names too much, or is too long.

A leader checks before it takes a command, so that what can only be refused is in no entry and costs next to
nothing. The machine checks an acquire again: an entry may come from a leader that had other limits, or none.

The machine does not check how much a release, an extension or a break names. Journals hold some that name more
than is taken now, and must be read as they were written; so those limits are the leader's alone.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from fencehold.core.commands import (
    FOREVER,
    Acquire,
    AcquireAtLeast,
    Break,
    BreakAs,
    Extend,
    Mode,
    OpenSession,
    OpenSessionAs,
    OpenSessionBy,
    Release,
    Settle,
)
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Code, Refused
from fencehold.core.policy import TOKEN_ID_LENGTH
from fencehold.durations import shown, shown_limit

TEXT_PER_WEIGHT = 256
"""Bytes of other text that weigh as much as one name."""

SETTLED_PER_WEIGHT = 16

_EXCLUSIVE: Final = Mode.EXCLUSIVE


def size(text: str) -> int:
    """Bytes of the text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def is_plain(limits: Limits, ask: Acquire) -> bool:
    """Whether it asks for one name on the usual terms, short enough for certain: then there is no more to check.

    Most do, and are checked twice, by a leader and by the machine.
    """
    names = ask.names
    return (
        len(names) == 1
        and 0 < 4 * len(names[0]) <= limits.name_bytes_max
        and 4 * len(ask.owner) <= limits.owner_bytes_max
        and ask.mode is _EXCLUSIVE
        and FOREVER <= ask.wait_ms <= limits.wait_ms_max
        and not (ask.meta or ask.ttl_ms or ask.lock_delay_ms or ask.limit)
        and type(ask) is Acquire
    )


def refuse_names(limits: Limits, names: tuple[str, ...]) -> Refused | None:
    """Why so many names, or such, are not taken, if so."""
    if not 0 < len(names) <= limits.names_per_request_max:
        return wrong_count(limits, names)
    bytes_max = limits.name_bytes_max
    for name in names:
        if not 0 < len(name) <= bytes_max or (not name.isascii() and size(name) > bytes_max):
            return Refused(Code.LIMIT, f"a name has 1 to {bytes_max} bytes, not {size(name)}")
    return None


def refuse_terms(limits: Limits, ask: Acquire) -> Refused | None:
    """Why an acquire on such terms is not taken, if so: its times, its mode, its texts."""
    if not FOREVER <= ask.wait_ms <= limits.wait_ms_max:
        return out_of_range("wait", ask.wait_ms, 0, limits.wait_ms_max)
    if not 0 <= ask.ttl_ms <= limits.ttl_ms_max:
        return out_of_range("ttl", ask.ttl_ms, 0, limits.ttl_ms_max)
    if not 0 <= ask.lock_delay_ms <= limits.lock_delay_ms_max:
        return out_of_range("delay", ask.lock_delay_ms, 0, limits.lock_delay_ms_max)
    if len(ask.names) > 1 and len(set(ask.names)) != len(ask.names):
        return Refused(Code.USAGE, "a name is asked for twice in one request")
    if isinstance(ask, AcquireAtLeast):
        refusal = _refuse_least_time(limits, ask)
    elif ask.mode is Mode.PERMIT or ask.limit:
        refusal = _refuse_permits(limits, ask)
    else:
        refusal = None
    return refusal


def refuse_texts(limits: Limits, ask: Acquire) -> Refused | None:
    """Why such an owner or such metadata are not taken, if so."""
    if ask.owner and size(ask.owner) > limits.owner_bytes_max:
        return Refused(Code.LIMIT, f"an owner has at most {limits.owner_bytes_max} bytes, not {size(ask.owner)}")
    if ask.meta and size(ask.meta) > limits.meta_bytes_max:
        return Refused(Code.LIMIT, f"meta has at most {limits.meta_bytes_max} bytes, not {size(ask.meta)}")
    return None


def _refuse_least_time(limits: Limits, ask: AcquireAtLeast) -> Refused | None:
    if not 0 < ask.at_least_ms <= limits.ttl_ms_max:
        return out_of_range("at_least", ask.at_least_ms, 1, limits.ttl_ms_max)
    if ask.mode is not Mode.EXCLUSIVE or ask.limit:
        return Refused(Code.USAGE, "at_least is for a name that is held exclusively, not shared or as a permit")
    return None


def _refuse_permits(limits: Limits, ask: Acquire) -> Refused | None:
    if ask.mode is not Mode.PERMIT:
        return Refused(Code.USAGE, "a semaphore, and nothing else, has a limit")
    if not 0 < ask.limit <= limits.permits_max:
        return Refused(Code.USAGE, f"limit is 1 to {limits.permits_max} permits, not {ask.limit}")
    if len(ask.names) > 1:
        return Refused(Code.USAGE, "a semaphore is asked for by itself, not among several names")
    return None


def wrong_count(limits: Limits, names: tuple[str, ...]) -> Refused:
    """The refusal of a request without names, or with too many."""
    return Refused(Code.LIMIT, f"a request has 1 to {limits.names_per_request_max} names, not {len(names)}")


def out_of_range(what: str, given_ms: int, least_ms: int, most_ms: int, *, bound_by: str = "") -> Refused:
    """The refusal of a duration that is too short or too long; `bound_by`: by what, if not by a limit."""
    if given_ms < least_ms:
        return Refused(Code.USAGE, f"{what} is at least {least_ms} ms, not {given_ms} ms")
    most = bound_by + shown_limit(most_ms / 1000)
    return Refused(Code.USAGE, f"{what} is at most {most}, not {shown(given_ms / 1000)}")


def refuse_session(limits: Limits, command: OpenSession) -> Refused | None:
    """Why such a session is not opened, if so."""
    if not 0 < command.ttl_ms <= limits.ttl_ms_max:
        return out_of_range("ttl", command.ttl_ms, 1, limits.ttl_ms_max)
    if not 0 <= command.grace_ms <= command.ttl_ms:
        return out_of_range("grace", command.grace_ms, 0, command.ttl_ms, bound_by="the ttl, ")
    if max(size(command.meta), size(command.secret)) > limits.meta_bytes_max:
        return Refused(Code.LIMIT, f"meta and secret have at most {limits.meta_bytes_max} bytes each")
    if isinstance(command, OpenSessionAs) and size(command.principal) > limits.meta_bytes_max:
        return Refused(Code.LIMIT, f"a principal has at most {limits.meta_bytes_max} bytes")
    if isinstance(command, OpenSessionBy) and len(command.token) != TOKEN_ID_LENGTH:
        return Refused(Code.USAGE, f"a token is called by {TOKEN_ID_LENGTH} digits")
    return None


def refuse_breaker(limits: Limits, command: Break) -> Refused | None:
    """Why the text on who breaks a hold is too long, if so."""
    if size(command.by) > limits.meta_bytes_max:
        return Refused(Code.LIMIT, f"who breaks it has at most {limits.meta_bytes_max} bytes")
    return None


Judged: TypeAlias = int | Refused
"""What a command weighs (one for each name it is about), or why it is refused whatever the state is."""


def _judge_acquire(limits: Limits, ask: Acquire) -> Judged:
    if is_plain(limits, ask):
        return 1
    refusal = refuse_names(limits, ask.names) or refuse_terms(limits, ask) or refuse_texts(limits, ask)
    return refusal or len(ask.names) + len(ask.meta) // TEXT_PER_WEIGHT


def _judge_named(limits: Limits, command: Release | Extend) -> Judged:
    names = command.names
    if len(names) == 1 and 0 < 4 * len(names[0]) <= limits.name_bytes_max:
        return 1
    return refuse_names(limits, names) or len(names)


def _judge_break(limits: Limits, command: Break) -> Judged:
    return refuse_names(limits, (command.name,)) or refuse_breaker(limits, command) or 1


def _judge_opening(limits: Limits, command: OpenSession) -> Judged:
    return refuse_session(limits, command) or 1 + len(command.meta) // TEXT_PER_WEIGHT


def _judge_settling(_: Limits, command: Settle) -> Judged:
    return 1 + len(command.requests) // SETTLED_PER_WEIGHT


# `Any`: each function takes the one command it is filed under, which a dictionary cannot say.
JUDGES: Final[dict[type, Callable[[Limits, Any], Judged]]] = {
    Acquire: _judge_acquire,
    AcquireAtLeast: _judge_acquire,
    Release: _judge_named,
    Extend: _judge_named,
    Break: _judge_break,
    BreakAs: _judge_break,
    OpenSession: _judge_opening,
    OpenSessionAs: _judge_opening,
    OpenSessionBy: _judge_opening,
    Settle: _judge_settling,
}
"""The check of a command before a leader takes it; what is not listed here has one size and no limits."""
