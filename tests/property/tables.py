"""The tables: what each table of the state must hold, worked out from the model's lists.

Nothing may be missing and nothing left over (G11): a name that is neither held, awaited, delayed nor kept, a
session that has ended, an answer that was acknowledged appear nowhere. A table that is not checked here fails the
check.
"""

import inspect
from collections import OrderedDict
from typing import Any

from fencehold.core import commands as c
from fencehold.core.anchors import granted_unix_ms, opened_unix_ms, queued_unix_ms, unix_ms_now
from fencehold.core.deadlines import Deadlines, Key
from fencehold.core.state import Anchor, Crowd, Hold, Home, Kept, Session, SlotMove, Stage, State, Waiter
from fencehold.core.views import names_in_use
from tests.property import model as m

_BESIDE = {"steps", "notices", "outcomes", "repeated", "ticking", "saving", "position"}
"""What the last entry led to, where it stood, and a snapshot under way: no tables."""
_RULES = {"policy", "rulebook", "usage"}

TABLES = frozenset(
    name
    for name, found in vars(State).items()
    # The first as they are of slots, the second as a compiled class has them.
    if inspect.ismemberdescriptor(found) or inspect.isgetsetdescriptor(found)
)
"""All that a state has, whether it is compiled or not."""


def g11_free_names_cost_nothing(state: State, model: m.Model) -> None:
    """G11: every table is exactly what follows from the live holds, waiters, sessions and delays."""
    expected = _tables(model)
    assert {*expected, *_BESIDE, *_RULES, "sessions", "sessions_due"} == TABLES, "a table nobody checks"
    for table, content in expected.items():
        found = _plain(getattr(state, table))
        if table == "draining":
            _check_draining(model, found)
            continue
        assert found == content, f"G11: {table} has {found}, not {content}"
    _check_queues(state, expected["queues"])
    _check_policy(state, model)
    assert list(state.sessions) == [session.id for session in model.sessions if session.ending is None]
    assert len(state.sessions_due) == len(state.sessions), "G11: a deadline of no session"
    for expected_session in filter(None, map(model.alive, state.sessions)):
        _check_session(state, state.sessions[expected_session.id], model, expected_session)
    names = {hold.name for hold in model.held()} | {name for name, _ in model.delays if model.is_delayed(name)}
    names |= {kept.name for kept in model.kept()}
    assert set(names_in_use(state)) == names | {name for w in model.waiting() for name in w.ask.names}


def what_is_alive_has_its_time_of_day(state: State, model: m.Model) -> None:
    """Since when something is held, awaited or open is by the leader's clock of then, or not known."""
    assert unix_ms_now(state) == model.unix_ms(len(model.anchors), model.now_at)
    for session in filter(None, map(model.alive, state.sessions)):
        opened = opened_unix_ms(state, state.sessions[session.id])
        assert opened == model.unix_ms(session.anchor, session.opened_at)
    for hold in model.held():
        assert granted_unix_ms(state, _hold(hold)) == model.unix_ms(hold.anchor, hold.since_at)
    for kept in model.kept():
        assert granted_unix_ms(state, state.kept[kept.name]) == model.unix_ms(kept.anchor, kept.since_at)
    for waiter in model.waiting():
        assert queued_unix_ms(state, _waiter(waiter)) == model.unix_ms(waiter.anchor, waiter.since_at)


def entered(deadlines: Deadlines[Key]) -> set[tuple[int, Key]]:
    """The instants and keys that will come due."""
    return {(at, key) for at, keys in deadlines._keys_at.items() for key in keys}


def _plain(found: Any) -> Any:
    """A table with its order where order matters, as plain dictionaries, lists and sets."""
    if isinstance(found, Deadlines):
        assert set(found._keys_at) <= set(found.heap), "G9: a deadline that never comes"
        return entered(found)
    if isinstance(found, dict):
        return {key: list(v.items()) if isinstance(v, OrderedDict) else v for key, v in found.items()}
    return found


def _check_draining(model: m.Model, found: dict[int, tuple[str, ...] | None]) -> None:
    assert sorted(found) == model.standing("closing"), "G11: slots that drain are those that close"
    for slot, names in found.items():
        assert names is None or model.left(slot) <= set(names), "a name of a closing slot is not known"


def _home(model: m.Model) -> Home | None:
    if model.home is None:
        return None
    shard, shards = model.home
    return Home(shard, shards, shard * 16_384 // shards, (shard + 1) * 16_384 // shards - 1)


def _tables(model: m.Model) -> dict[str, object]:
    holds = list(map(_hold, model.held()))
    waiters = list(map(_waiter, model.waiting()))
    delayed = {name for name, _ in model.delays if model.is_delayed(name)}
    delays = {name: max(at for other, at in model.delays if other == name) for name in delayed}
    crowds: dict[str, Crowd] = {}
    queues: dict[str, list[tuple[int, Waiter]]] = {}
    waiting: dict[m.Owner, dict[int, Waiter]] = {}
    blocking: dict[m.Owner, list[str]] = {}
    for hold in holds:
        if hold.mode is not c.Mode.EXCLUSIVE:
            crowds.setdefault(hold.name, Crowd(hold.mode, hold.limit, {})).holds[hold.fence] = hold
    for waiter in waiters:
        for name in waiter.ask.names:
            queues.setdefault(name, []).append((waiter.ticket, waiter))
        if waiter.ask.owner:
            waiting.setdefault((waiter.ask.session, waiter.ask.owner), {})[waiter.ticket] = waiter
    for hold in sorted(holds, key=lambda hold: hold.name):
        if hold.mode is c.Mode.EXCLUSIVE and hold.owner and hold.name in queues:
            blocking.setdefault((hold.session, hold.owner), []).append(hold.name)
    return {
        "limits": model.limits,
        "now_at": model.now_at,
        "anchors": [Anchor(*anchor) for anchor in model.anchors[model.anchors_gone :]],
        "fence": model.fence,
        "ticket": len(model.waiters),
        "session_last": len(model.sessions),
        "owned": sum(bool(s.principal) for s in model.sessions if s.ending is None),
        "noted": sum(bool(hold.meta) for hold in holds),
        "home": _home(model),
        "cells": None,
        "slots": {
            move[0]: SlotMove(move[0], move[1], Stage(move[2]), *move[3:])
            for move in filter(None, map(model.last_move, sorted({move[0] for move in model.moves})))
        },
        "placed": model.placed,
        "draining": dict.fromkeys(model.standing("closing")),
        "arriving": dict.fromkeys(model.standing("arriving")),
        "leader": model.leader[0],
        "leader_address": model.leader[1],
        "sessions_until": {s.id: s.until_at for s in model.sessions if s.ending is None},
        "held": {hold.name: hold for hold in holds if hold.mode is c.Mode.EXCLUSIVE},
        "crowds": crowds,
        "queues": queues,
        "waiters": {waiter.ticket: waiter for waiter in waiters},
        "waiting": waiting,
        "blocking": blocking,
        "delays": delays,
        "kept": {kept.name: _kept(kept) for kept in model.kept()},
        "kept_due": {(kept.until_at, kept.name) for kept in model.kept()},
        "delays_due": {(until_at, name) for name, until_at in delays.items()},
        "holds_due": {(hold.until_at, (hold.fence, hold.name)) for hold in holds if hold.until_at},
        "waiters_due": {(waiter.until_at, waiter.ticket) for waiter in waiters if waiter.until_at},
    }


def _check_queues(state: State, expected: Any) -> None:
    """What is kept with a queue follows from who stands in it, and crowds are in the order of the fences."""
    for name, waiters in expected.items():
        queue = state.queues[name]
        limits = [waiter.ask.limit for _, waiter in waiters if waiter.ask.limit]
        assert queue.permits == len(limits), f"G11: {name} has {queue.permits} permits awaited, not {limits}"
        assert set(limits) <= {queue.limit}, f"{name} has a limit of {queue.limit}, not {limits}"
        assert queue.tickets in (None, [ticket for ticket, _ in waiters]), (
            f"G11: places of none in {queue.tickets}"
        )
        assert queue.holder is None or name in state.blocking[queue.holder]
    for crowd in state.crowds.values():
        assert list(crowd.holds) == sorted(crowd.holds), f"G12: {crowd} is in no order that a restored one has"


def _check_policy(state: State, model: m.Model) -> None:
    """The policy is what was asked for, and what is counted for quotas is what there is."""
    policy, right = state.policy, model.policy
    assert (policy.revision, policy.roles, policy.quotas) == (right.revision, right.roles, right.quotas)
    assert {name: (user.roles, user.disabled) for name, user in policy.users.items()} == {
        name: (user.roles, user.disabled) for name, user in right.users.items()
    }
    assert (state.rulebook is None) is (not right.revision)
    assert (state.usage is None) is (not right.quotas)
    assert state.rulebook is None or state.rulebook.policy is policy
    if state.usage is None:
        return
    whose = {session.id: session.principal for session in model.sessions}
    had: dict[str, list[int]] = {s.principal: [0, 0, 0] for s in model.sessions if s.ending is None}
    under = {quota.prefix: [0, 0, 0] for quota in right.quotas.values() if quota.prefix is not None}
    for session in model.sessions:
        if session.ending is None:
            had[session.principal][0] += 1
    names = [(hold.name, hold.ask.session) for hold in model.held()]
    awaited = [(name, waiter.ask.session) for waiter in model.waiting() for name in waiter.ask.names]
    for waiter in model.waiting():
        had[whose[waiter.ask.session]][2] += 1
    for _, session_id in names + awaited:
        had[whose[session_id]][1] += 1
    for prefix, counts in under.items():
        counts[1] = sum(name.startswith(prefix) for name, _ in names + awaited)
        counts[2] = sum(name.startswith(prefix) for name, _ in awaited)
    usage = state.usage
    assert {who: [h.sessions, h.holds, h.waiters] for who, h in usage.principals.items()} == had, (
        "G11: what principals use is miscounted"
    )
    assert {prefix: [h.sessions, h.holds, h.waiters] for prefix, h in usage.under.items()} == under, (
        "G11: what is used under a prefix is miscounted"
    )


def _check_session(state: State, session: Session, model: m.Model, expected: m.Session) -> None:
    holds = sorted(map(_hold, model.held(session=session.id)), key=lambda hold: (hold.fence, hold.name))
    waiters = list(map(_waiter, model.waiting(session=session.id)))
    assert session.holds() == holds, f"G11: {session} has not {holds}"
    assert list(session.waiters.items()) == [(w.ask.request or -w.ticket, w) for w in waiters]
    assert session.names_awaited == sum(len(waiter.ask.names) for waiter in waiters)
    assert (session.latest, session.answered) == (expected.latest, expected.answered)
    assert (session.ttl_ms, session.grace_ms) == (expected.ttl_ms, expected.grace_ms)
    assert session.opened_fence == expected.opened_fence
    assert session.principal == expected.principal
    assert list(session.lapsed) == model.lapsed(session.id)
    # Its deadline may have been entered before it was renewed, never after it ends.
    assert (session.due_at, session.id) in entered(state.sessions_due)
    assert session.due_at <= expected.until_at, f"G9: {session} outlives {expected.until_at}"
    for answers, remembered in ((session.answers, expected.direct), (session.final_answers, expected.final)):
        assert list(answers) == [number for number, _ in remembered], f"G9: {answers} are not {remembered}"
        assert all(m.agrees(answers[number], answer) for number, answer in remembered), (
            f"G9: {answers} are not {remembered}"
        )


def _hold(hold: m.Hold) -> Hold:
    ask = hold.ask
    return Hold(
        hold.name,
        ask.session,
        ask.owner,
        hold.fence,
        hold.since_at,
        hold.until_at,
        ask.mode,
        ask.limit,
        ask.lock_delay_ms,
        ask.meta,
    )


def _kept(kept: m.Kept) -> Kept:
    ask = kept.ask
    return Kept(
        kept.name,
        kept.fence,
        ask.session,
        ask.owner,
        kept.since_at,
        kept.until_at,
        ask.meta,
        kept.session_meta,
    )


def _waiter(waiter: m.Waiter) -> Waiter:
    return Waiter(waiter.ticket, waiter.ask, waiter.since_at, waiter.until_at)
