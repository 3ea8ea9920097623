"""Looking on: what can be asked without changing anything."""

from functools import partial
from typing import Any

from fencehold.core.anchors import granted_unix_ms, opened_unix_ms, queued_unix_ms, unix_ms_now
from fencehold.core.state import Hold, Kept, Session, State, Waiter
from fencehold.core.views import names_in_use, view_name
from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import Wrong, at_least, exactly, kinds, number, options, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.watching import Watching
from fencehold.errors import FenceholdError
from fencehold.node.leader import Question

_LIST = kinds(PREFIX=("prefix", text), CURSOR=("cursor", text), COUNT=("count", number))
_FROM = kinds(FROM=("position", number))
_STALE = frozenset({b"STALE"})
_LIST_FLAGS = _STALE | {b"HOLD"}
_COUNT, _COUNT_MAX = 100, 1_000
_COUNT_WITH_HOLDS_MAX = 250
"""Each brings metadata of up to 2 KiB with it."""


def info_name(connection: Connection, words: list[bytes], slot: Slot) -> None:
    at_least(words, 1)
    stale = "STALE" in options(words, 2, {}, _STALE)
    _ask(connection, slot, partial(_info, text(words[1], "a name")), stale)


def list_names(connection: Connection, words: list[bytes], slot: Slot) -> None:
    found = options(words, 1, _LIST, _LIST_FLAGS)
    with_hold = "HOLD" in found
    count = min(found.get("count", _COUNT), _COUNT_WITH_HOLDS_MAX if with_hold else _COUNT_MAX) or 1
    question = partial(_names, found.get("prefix", ""), found.get("cursor", ""), count, with_hold)
    _ask(connection, slot, question, "STALE" in found)


def list_sessions(connection: Connection, words: list[bytes], slot: Slot) -> None:
    stale = "STALE" in options(words, 1, {}, _STALE)
    _ask(connection, slot, partial(_sessions, connection.node.routes.is_attached), stale)


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


def _info(name: str, state: State) -> dict[str, object]:
    view = view_name(state, name)
    return {
        "name": name,
        "holds": [_hold(state, hold) for hold in view.holds],
        "waiters": [_waiter(state, waiter) for waiter in view.waiters],
        "delayed_ms": max(0, view.delayed_until_at - state.now_at),
        "kept": [] if view.kept is None else [_kept(state, view.kept)],
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


def _waiter(state: State, waiter: Waiter) -> dict[str, object]:
    ask = waiter.ask
    return {
        "session": ask.session,
        "owner": ask.owner,
        "ticket": waiter.ticket,
        "mode": ask.mode.value,
        "names": list(ask.names),
        "waited_ms": state.now_at - waiter.since_at,
        "left_ms": waiter.until_at - state.now_at if waiter.until_at else -1,
        "session_meta": state.sessions[ask.session].meta,
        **_dated(state, waiter.since_at, queued_unix_ms(state, waiter)),
    }


def _names(prefix: str, cursor: str, count: int, with_hold: bool, state: State) -> list[object]:
    names = names_in_use(state, prefix, after=cursor, count=count + 1)
    more = len(names) > count
    summaries = [_summary(state, name, with_hold) for name in names[:count]]
    return [names[count - 1] if more else "", summaries]


def _summary(state: State, name: str, with_hold: bool) -> dict[str, object]:
    holds = state.holders(name)
    oldest: dict[str, object] = {}
    if with_hold:
        kept = state.kept.get(name)
        oldest["hold"] = _hold(state, holds[0]) if holds else None
        oldest["kept"] = [] if kept is None else [_kept(state, kept)]
    return {
        "name": name,
        "mode": holds[0].mode.value if holds else "",
        "holders": len(holds),
        "waiters": len(state.queues.get(name, ())),
        "fence": max((hold.fence for hold in holds), default=0),
        **oldest,
    }


def _sessions(is_connected: Any, state: State) -> list[object]:
    return [_session(state, session, is_connected(session.id)) for session in state.sessions.values()]


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
