"""Questions: read-only queries. The replies are made in `pages`.

A question costs as much as it returns. One that needs preparation, as a list of names does, is put after that.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from fencehold.core.outcomes import Code, Refused
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import at_least, kinds, number, options, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.pages import info_page, names_page, sessions_page
from fencehold.errors import FenceholdError, Overloaded, Unavailable
from fencehold.node.leader import Question, Reply

Ask: TypeAlias = Callable[[Question, Reply], None]
"""How a question is put: to the current state, to a recent one, or to whatever is there."""

_LIST = kinds(PREFIX=("prefix", text), CURSOR=("cursor", text), COUNT=("count", number))
_STALE = frozenset({b"STALE"})
_LIST_FLAGS = _STALE | {b"HOLD", b"BRIEF"}
_INFO = kinds(HOLDS=("holds", number), WAITERS=("waiters", number), COUNT=("count", number))
_SESSIONS = kinds(CURSOR=("cursor", number), COUNT=("count", number))
_RETRY_AFTER_S = 0.5
_COUNT, _COUNT_MAX = 100, 250
"""Listing this many takes half a millisecond: no other client is served meanwhile."""

_ATTEMPTS_MAX = 5
"""How many times names are prepared for one list: the preparation is lost if the machine is replaced meanwhile."""


def info_name(connection: Connection, words: list[bytes], slot: Slot) -> None:
    at_least(words, 1)
    name, found = text(words[1], "a name"), options(words, 2, _INFO, _STALE)
    holds, waiters = found.get("holds"), found.get("waiters")
    if holds is None and waiters is None:
        holds = waiters = 0
    question = partial(info_page, name, holds, waiters, _count(found), *_who(connection))
    _ask(connection, slot, question, "STALE" in found)


def list_names(connection: Connection, words: list[bytes], slot: Slot) -> None:
    found = options(words, 1, _LIST, _LIST_FLAGS)
    with_hold, in_brief, stale = "HOLD" in found, "BRIEF" in found, "STALE" in found
    count = _count(found)
    prefix, cursor = found.get("prefix", ""), found.get("cursor", "")
    page = partial(names_page, in_brief=in_brief)
    question = partial(page, connection.node.names, prefix, cursor, count, with_hold, *_who(connection))
    # A mirror of all names is read in thousands of pages, and kept current by events: not an entry for each.
    ask = connection.node.look if stale else connection.ask_recent if in_brief else connection.ask
    _ask_prepared(connection, slot, question, ask, stale, _ATTEMPTS_MAX)


def list_sessions(connection: Connection, words: list[bytes], slot: Slot) -> None:
    found = options(words, 1, _SESSIONS, _STALE)
    is_connected = connection.node.routes.is_attached
    cursor, count = found.get("cursor", 0), _count(found)
    question = partial(sessions_page, is_connected, cursor, count, *_who(connection))
    _ask(connection, slot, question, "STALE" in found)


def _who(connection: Connection) -> tuple[int, str]:
    """The protocol version of the reply, and the principal whose rights apply."""
    return connection.version, connection.principal


def _count(found: dict[str, Any]) -> int:
    return min(found.get("count", _COUNT), _COUNT_MAX) or 1


def _ask(connection: Connection, slot: Slot, question: Question, stale: bool) -> None:
    ask = connection.node.look if stale else connection.ask
    ask(question, partial(_found, slot))


def _found(slot: Slot, found: Any) -> None:
    if isinstance(found, FenceholdError | Refused):
        refuse(slot, found, 0)
        if isinstance(found, Refused) and found.code is Code.DENIED:
            # No entry records it, as one does when a change is denied.
            slot.connection.door.on_denied(slot.connection, "LOCK.INFO", found.detail)
    else:
        slot.reply(found)


def _ask_prepared(
    connection: Connection, slot: Slot, question: Question, ask: Ask, stale: bool, attempts_left: int
) -> None:
    """Put a question to the sorted names, once they are sorted; again, if they no longer were when its turn
    came."""

    def ask_now() -> None:
        if not connection.ending:
            ask(question, on_found)

    def on_found(found: Any) -> None:
        if found is not None:
            _found(slot, found)
        elif attempts_left > 1:
            _ask_prepared(connection, slot, question, ask, stale, attempts_left - 1)
        else:
            _found(slot, Unavailable("the names could not be sorted: try again"))

    if connection.node.names.is_crowded:
        _found(slot, Overloaded("too many requests wait for the names to be sorted", retry_after_s=_RETRY_AFTER_S))
    elif stale or connection.node.leads:
        connection.node.prepare_names(ask_now)
    else:
        ask_now()


HANDLERS: dict[bytes, Handler] = {
    b"LOCK.INFO": info_name,
    b"LOCK.LIST": list_names,
    b"SESSION.LIST": list_sessions,
}
