"""Looking on: what can be asked without changing anything.

1. What may be long comes in pages: at most so many items, and no more bytes than `REPLY_BYTES_MAX`. A page has one
   item at the least, if there is any.
2. A cursor is the number or the name of the last item that was told, so whatever is there throughout is told
   exactly once, whatever comes and goes meanwhile.
3. A question costs what it tells. What needs preparation, as a list of names does, is asked after that.
"""

from functools import partial
from typing import Any

from fencehold.core.anchors import granted_unix_ms, opened_unix_ms, queued_unix_ms, unix_ms_now
from fencehold.core.state import Hold, Kept, Session, State, Waiter
from fencehold.core.views import holding_of, holds_after, sessions_after, waiters_after
from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import Wrong, at_least, exactly, kinds, number, options, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.watching import Watching
from fencehold.errors import FenceholdError, Unavailable
from fencehold.node.leader import Question
from fencehold.node.names import Names

_LIST = kinds(PREFIX=("prefix", text), CURSOR=("cursor", text), COUNT=("count", number))
_FROM = kinds(FROM=("position", number))
_STALE = frozenset({b"STALE"})
_LIST_FLAGS = _STALE | {b"HOLD"}
_INFO = kinds(HOLDS=("holds", number), WAITERS=("waiters", number), COUNT=("count", number))
_SESSIONS = kinds(CURSOR=("cursor", number), COUNT=("count", number))
_COUNT, _COUNT_MAX = 100, 1_000
_COUNT_WITH_HOLDS_MAX = 250
"""Each brings metadata of up to 2 KiB with it."""

REPLY_BYTES_MAX = 256 << 10
"""Of any reply here. With the limits as they are by default no item comes near it."""
_ITEMS_BYTES_MAX = REPLY_BYTES_MAX - (8 << 10)
"""What is left of that for the items of a page; the rest is for what stands around them."""

_ATTEMPTS_MAX = 5
"""How often names are prepared for one list: what was prepared is gone if the machine was replaced meanwhile."""


def info_name(connection: Connection, words: list[bytes], slot: Slot) -> None:
    at_least(words, 1)
    name, found = text(words[1], "a name"), options(words, 2, _INFO, _STALE)
    holds, waiters = found.get("holds"), found.get("waiters")
    if holds is None and waiters is None:
        holds = waiters = 0
    question = partial(_info, name, holds, waiters, _count(found, _COUNT_MAX), connection.version)
    _ask(connection, slot, question, "STALE" in found)


def list_names(connection: Connection, words: list[bytes], slot: Slot) -> None:
    found = options(words, 1, _LIST, _LIST_FLAGS)
    with_hold = "HOLD" in found
    count = _count(found, _COUNT_WITH_HOLDS_MAX if with_hold else _COUNT_MAX)
    prefix, cursor = found.get("prefix", ""), found.get("cursor", "")
    question = partial(_names, connection.node.names, prefix, cursor, count, with_hold, connection.version)
    _ask_prepared(connection, slot, question, "STALE" in found, _ATTEMPTS_MAX)


def list_sessions(connection: Connection, words: list[bytes], slot: Slot) -> None:
    found = options(words, 1, _SESSIONS, _STALE)
    is_connected = connection.node.routes.is_attached
    cursor, count = found.get("cursor", 0), _count(found, _COUNT_MAX)
    question = partial(_sessions, is_connected, cursor, count, connection.version)
    _ask(connection, slot, question, "STALE" in found)


def _count(found: dict[str, Any], count_max: int) -> int:
    return min(found.get("count", _COUNT), count_max) or 1


def watch(connection: Connection, words: list[bytes], slot: Slot) -> None:
    at_least(words, 1)
    prefix, found = text(words[1], "the prefix"), options(words, 2, _FROM)
    if connection.version != 3:
        raise Wrong("watching needs pushes: say HELLO 3 first")
    if not connection.node.leads:
        refuse(slot, connection.node.refusal(), 0)
        return
    if connection.watching is None:
        connection.watching = Watching(connection, found.get("position", connection.node.position))
    elif found:
        raise Wrong("FROM comes with the first watch of a connection: all its prefixes are told in one order")
    connection.watching.add(prefix)
    slot.reply({"position": connection.watching.position})
    connection.watching.wake()


def unwatch(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 1)
    if connection.watching is not None:
        connection.watching.prefixes.pop(text(words[1], "the prefix"), None)
    slot.fill(replies.OK)


def _ask(connection: Connection, slot: Slot, question: Question, stale: bool) -> None:
    ask = connection.node.look if stale else connection.node.ask
    ask(question, partial(_found, slot))


def _found(slot: Slot, found: Any) -> None:
    if isinstance(found, FenceholdError):
        refuse(slot, found, 0)
    else:
        slot.reply(found)


def _ask_prepared(connection: Connection, slot: Slot, question: Question, stale: bool, attempts_left: int) -> None:
    """Put a question to the names in order, once they are; again, if they were not any more when its turn came."""

    def ask() -> None:
        if not connection.ending:
            (connection.node.look if stale else connection.node.ask)(question, on_found)

    def on_found(found: Any) -> None:
        if found is not None:
            _found(slot, found)
        elif attempts_left > 1:
            _ask_prepared(connection, slot, question, stale, attempts_left - 1)
        else:
            _found(slot, Unavailable("the names could not be put in order: try again"))

    if stale or connection.node.leads:
        connection.node.prepare_names(ask)
    else:
        ask()


def _info(
    name: str, holds_from: int | None, waiters_from: int | None, count: int, version: int, state: State
) -> dict[str, object]:
    """A page of the holds and one of the waiters; None: not this time. Each may take half of the room."""
    holds = holds_after(state, name, holds_from or 0, count if holds_from is not None else 0)
    waiters = waiters_after(state, name, waiters_from or 0, count if waiters_from is not None else 0)
    half_bytes = _ITEMS_BYTES_MAX // 2
    told = (_hold(state, hold) for hold in holds.items)
    held, hold_count = replies.fitted(told, version, half_bytes)
    places = enumerate(waiters.items, waiters.ahead)
    awaited, waiter_count = replies.fitted((_waiter(state, *each) for each in places), version, half_bytes)
    holding, kept = holding_of(state, name), state.kept.get(name)
    return {
        "name": name,
        "holds": held,
        "waiters": awaited,
        "delayed_ms": max(0, state.delays.get(name, 0) - state.now_at),
        "kept": [] if kept is None else [_kept(state, kept)],
        "fence": holding.newest.fence if holding is not None else 0,
        "hold_count": holds.total,
        "waiter_count": waiters.total,
        "holds_cursor": holds.items[hold_count - 1].fence if holds.has_more(hold_count) else 0,
        "waiters_cursor": waiters.items[waiter_count - 1].ticket if waiters.has_more(waiter_count) else 0,
    }


def _kept(state: State, kept: Kept) -> dict[str, object]:
    return {
        "session": kept.session,
        "owner": kept.owner,
        "fence": kept.fence,
        "kept_ms": state.now_at - kept.since_at,
        "left_ms": kept.until_at - state.now_at,
        "meta": kept.meta,
        "session_meta": kept.session_meta,
        **_dated(state, kept.since_at, granted_unix_ms(state, kept)),
    }


def _hold(state: State, hold: Hold) -> dict[str, object]:
    return {
        "session": hold.session,
        "owner": hold.owner,
        "fence": hold.fence,
        "mode": hold.mode.value,
        "limit": hold.limit,
        "held_ms": state.now_at - hold.since_at,
        "left_ms": hold.until_at - state.now_at if hold.until_at else -1,
        "meta": hold.meta,
        "session_meta": state.sessions[hold.session].meta,
        **_dated(state, hold.since_at, granted_unix_ms(state, hold)),
    }


def _dated(state: State, since_at: int, since_unix_ms: int | None) -> dict[str, object]:
    """Since when, by the time of day; and for how long, with the time nobody led, if that is known."""
    now_unix_ms, age_ms = unix_ms_now(state), state.now_at - since_at
    if now_unix_ms is not None and since_unix_ms is not None:
        # A clock that was set back makes nothing younger than the service has counted.
        age_ms = max(age_ms, now_unix_ms - since_unix_ms)
    return {"since_unix_ms": since_unix_ms, "age_ms": age_ms}


def _waiter(state: State, ahead: int, waiter: Waiter) -> dict[str, object]:
    ask = waiter.ask
    return {
        "session": ask.session,
        "owner": ask.owner,
        "ticket": waiter.ticket,
        "ahead": ahead,
        "mode": ask.mode.value,
        "names": list(ask.names),
        "waited_ms": state.now_at - waiter.since_at,
        "left_ms": waiter.until_at - state.now_at if waiter.until_at else -1,
        "session_meta": state.sessions[ask.session].meta,
        **_dated(state, waiter.since_at, queued_unix_ms(state, waiter)),
    }


def _names(
    names: Names, prefix: str, cursor: str, count: int, with_hold: bool, version: int, state: State
) -> list[object] | None:
    """A page of names; None: they are not in order now."""
    page = names.page(state, prefix, cursor, count)
    if page is None:
        return None
    told = (_summary(state, name, with_hold) for name in page.names)
    items, told_count = replies.fitted(told, version, _ITEMS_BYTES_MAX)
    return [page.cursor if told_count == len(page.names) else page.names[told_count - 1], items]


def _summary(state: State, name: str, with_hold: bool) -> dict[str, object]:
    holding, queue = holding_of(state, name), state.queues.get(name)
    summary: dict[str, object] = {
        "name": name,
        "mode": holding.oldest.mode.value if holding is not None else "",
        "holders": holding.count if holding is not None else 0,
        "waiters": len(queue) if queue is not None else 0,
        "fence": holding.newest.fence if holding is not None else 0,
    }
    if with_hold:
        kept = state.kept.get(name)
        summary["hold"] = _hold(state, holding.oldest) if holding is not None else None
        summary["kept"] = [] if kept is None else [_kept(state, kept)]
    return summary


def _sessions(is_connected: Any, cursor: int, count: int, version: int, state: State) -> list[object]:
    page = sessions_after(state, cursor, count)
    told = (_session(state, session, is_connected(session.id)) for session in page.items)
    items, told_count = replies.fitted(told, version, _ITEMS_BYTES_MAX)
    return [page.items[told_count - 1].id if page.has_more(told_count) else 0, items]


def _session(state: State, session: Session, connected: bool) -> dict[str, object]:
    return {
        "session": session.id,
        "connected": int(connected),
        "opened_ms_ago": state.now_at - session.opened_at,
        "expires_in_ms": state.sessions_until[session.id] - state.now_at,
        "holds": len(session.held) + len(session.shares),
        "waits": len(session.waiters),
        "meta": session.meta,
        **_dated(state, session.opened_at, opened_unix_ms(state, session)),
    }


HANDLERS: dict[bytes, Handler] = {
    b"LOCK.INFO": info_name,
    b"LOCK.LIST": list_names,
    b"LOCK.WATCH": watch,
    b"LOCK.UNWATCH": unwatch,
    b"SESSION.LIST": list_sessions,
}
