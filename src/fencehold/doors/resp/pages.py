"""Pages: names, holds, waiters and sessions, listed some at a time.

1. A page has at most as many items as were asked for, no more bytes than `REPLY_BYTES_MAX`, and at least one item,
   if there is any.
2. A cursor is the number or the name of the last item listed, so whatever is there throughout is listed exactly
   once, whatever is added and removed meanwhile.
3. Where there is a policy, a page has what its reader may see, and nothing of the rest: no name, count or cursor
   that is such a name. What may be seen is looked up in the state that is shown, at its position.
"""

from typing import Any

from fencehold.core.anchors import granted_unix_ms, opened_unix_ms, queued_unix_ms, unix_ms_now
from fencehold.core.cells import refuse_unknown_here
from fencehold.core.outcomes import Refused
from fencehold.core.policy import Verb
from fencehold.core.rulebook import Rights, denied
from fencehold.core.shards import refuse_unknown
from fencehold.core.state import Hold, Kept, Session, State, Waiter
from fencehold.core.views import holding_of, holds_after, sessions_after, waiters_after
from fencehold.doors.resp import replies
from fencehold.doors.resp.brief_names import brief
from fencehold.doors.resp.replies import Encoded, Form, bulk, number_or_null
from fencehold.node.names import NamePage, Names

REPLY_BYTES_MAX = 256 << 10
"""Of any reply here. With the limits as they are by default no item comes near it."""
_ROUNDS_MAX = 64
"""How many times a list skips names that its reader may not see, before it ends with a cursor."""
_SESSIONS_LOOKED_MAX = 10_000
"""How many one page scans, of all principals."""
_ITEMS_BYTES_MAX = REPLY_BYTES_MAX - (8 << 10)
"""What is left of that for the items of a page; the rest is for what surrounds them."""


def rights_in(state: State, principal: str) -> Rights | None:
    """What a principal may see of a state; None: everything."""
    return None if state.rulebook is None else state.rulebook.rights_of(principal)


def info_page(
    name: str,
    holds_from: int | None,
    waiters_from: int | None,
    count: int,
    version: int,
    principal: str,
    state: State,
) -> dict[str, object] | Refused:
    """A page of the holds and one of the waiters; None: not this time. Each may take half of the room."""
    rights = rights_in(state, principal)
    if rights is not None and not rights.sees(name):
        return denied(principal, Verb.OBSERVE, name)
    if state.cells is not None and (away := refuse_unknown_here(state.cells, name)) is not None:
        return away
    if state.home is not None and (elsewhere := refuse_unknown(state, state.home, name)) is not None:
        return elsewhere
    holds = holds_after(state, name, holds_from or 0, count if holds_from is not None else 0)
    waiters = waiters_after(state, name, waiters_from or 0, count if waiters_from is not None else 0)
    half_bytes = _ITEMS_BYTES_MAX // 2
    told = (_hold(state, hold) for hold in holds.items)
    held, hold_count = replies.fitted(told, version, half_bytes)
    places = enumerate(waiters.items, waiters.ahead)
    lined_up = (_waiter(state, rights, version, *each) for each in places)
    awaited, waiter_count = replies.fitted(lined_up, version, half_bytes)
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
    """Since when, by wall clock; and for how long, including time without a leader, if that is known."""
    return {"since_unix_ms": since_unix_ms, "age_ms": _age_ms(state, since_at, since_unix_ms)}


def _age_ms(state: State, since_at: int, since_unix_ms: int | None) -> int:
    now_unix_ms, age_ms = unix_ms_now(state), state.now_at - since_at
    if now_unix_ms is None or since_unix_ms is None:
        return age_ms
    # A clock that was set back makes nothing younger than by the service's own count.
    return max(age_ms, now_unix_ms - since_unix_ms)


_WAITER = Form(
    session=int,
    owner=str,
    ticket=int,
    ahead=int,
    mode=str,
    names=list,
    waited_ms=int,
    left_ms=int,
    session_meta=str,
    since_unix_ms=object,
    age_ms=int,
)


def _waiter(state: State, rights: Rights | None, version: int, ahead: int, waiter: Waiter) -> Encoded:
    ask, since_at = waiter.ask, waiter.since_at
    since_unix_ms = queued_unix_ms(state, waiter)
    names = ask.names if rights is None else rights.seen(ask.names)
    return _WAITER.filled(
        version,
        ask.session,
        bulk(ask.owner),
        waiter.ticket,
        ahead,
        bulk(ask.mode.value),
        replies.reply(names, version),
        state.now_at - since_at,
        waiter.until_at - state.now_at if waiter.until_at else -1,
        bulk(state.sessions[ask.session].meta),
        number_or_null(since_unix_ms, version),
        _age_ms(state, since_at, since_unix_ms),
    )


def names_page(
    names: Names,
    prefix: str,
    cursor: str,
    count: int,
    with_hold: bool,
    version: int,
    principal: str,
    state: State,
    *,
    in_brief: bool = False,
) -> list[object] | None:
    """A page of names; None: they are not sorted now."""
    rights = rights_in(state, principal)
    page = names.page(state, prefix, cursor, count)
    if page is not None and rights is not None:
        page = _seen_page(names, prefix, count, rights, state, page)
    if page is None:
        return None
    if in_brief:
        items, told_count = brief(state, page.names, _ITEMS_BYTES_MAX)
        if not page.cursor and told_count == len(page.names):
            names.spare(state)
    else:
        told = (_summary(state, name, with_hold) for name in page.names)
        items, told_count = replies.fitted(told, version, _ITEMS_BYTES_MAX)
    return [page.cursor if told_count == len(page.names) else page.names[told_count - 1], items]


def _seen_page(
    names: Names, prefix: str, count: int, rights: Rights, state: State, page: NamePage
) -> NamePage | None:
    """A page of the names that may be seen, from where an ordinary one begins.

    What may not be seen is passed over by the bounds of rules; a cursor is a name that is seen, or such a bound.
    """
    seen: list[str] = []
    for _ in range(_ROUNDS_MAX):
        hidden = next((name for name in page.names if not rights.sees(name)), None)
        seen += page.names if hidden is None else page.names[: page.names.index(hidden)]
        if len(seen) >= count:
            return NamePage(seen[:count], seen[count - 1])
        after = page.cursor if hidden is None else hidden
        if after and not rights.sees(after):
            after = rights.next_bound(after)
        if not after:
            return NamePage(seen, "")
        found = names.page(state, prefix, after, count)
        if found is None:
            return None
        page = found
    return NamePage(seen, after)


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


def sessions_page(
    is_connected: Any, cursor: int, count: int, version: int, principal: str, state: State
) -> list[object]:
    """A page of sessions: all, if the principal may observe everything; else its own."""
    rights = rights_in(state, principal)
    page = sessions_after(state, cursor, count if rights is None else _SESSIONS_LOOKED_MAX)
    sessions = page.items
    if rights is not None and Verb.OBSERVE not in rights.everywhere:
        sessions = [session for session in sessions if session.principal == principal]
    sessions = sessions[:count]
    told = (_session(state, version, session, is_connected(session.id)) for session in sessions)
    items, told_count = replies.fitted(told, version, _ITEMS_BYTES_MAX)
    if told_count < len(sessions) or (rights is not None and len(sessions) == count):
        return [sessions[told_count - 1].id, items]
    looked = len(page.items)
    return [page.items[-1].id if page.has_more(looked) else 0, items]


_SESSION = Form(
    session=int,
    connected=int,
    opened_ms_ago=int,
    expires_in_ms=int,
    holds=int,
    waits=int,
    meta=str,
    principal=str,
    since_unix_ms=object,
    age_ms=int,
)


def _session(state: State, version: int, session: Session, connected: bool) -> Encoded:
    since_unix_ms = opened_unix_ms(state, session)
    return _SESSION.filled(
        version,
        session.id,
        connected,
        state.now_at - session.opened_at,
        state.sessions_until[session.id] - state.now_at,
        session.hold_count(),
        len(session.waiters),
        bulk(session.meta),
        bulk(session.principal),
        number_or_null(since_unix_ms, version),
        _age_ms(state, session.opened_at, since_unix_ms),
    )
