"""Planted bugs: that the simulation can fail. Each is a patch, the guarantee it breaks, and a seed that shows it.

They are the mistakes that lock services have made, or that would be easy to make here. `python -m tests.simulation
bugs` looks for each from the first seed on and says how many it took; the tests run the seeds noted here.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from fencehold.client.aio.shards import ShardChannels
from fencehold.client.joint_grant import JointGrant
from fencehold.client.protocol import ledger
from fencehold.client.protocol.session import SessionProtocol
from fencehold.core import acquire, commands, machine, policy_change, requests, slot_moves
from fencehold.core.outcomes import Cancelled, Refused, Renewed, SlotsSealed
from fencehold.core.state import Home, Session, SlotMove, Stage, State
from fencehold.errors import Sealed
from fencehold.locks.identity import Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.node import shards, slot_mover
from fencehold.node.leader import Leader
from fencehold.placement.map import ShardMap
from fencehold.types import Position
from tests.mistakes import guess_the_fence_after_a_restart, let_waiters_outlive_their_session

Patch = pytest.MonkeyPatch


class Bug(NamedTuple):
    """Something to be found."""

    name: str
    plant: Callable[[Patch], None]
    guarantees: tuple[str, ...]
    """One of these must be named."""
    seed: int
    """One that shows it in the short run of a push. As the code changes, so does what a seed brings about: then it
    is one of the next few."""
    of_moves: bool = False
    """Only where there are several shards can it be found."""


# What the issue asks for.


def _a_grant_to_an_ended_session(patch: Patch) -> None:
    """A session that ends keeps its places in the queues (etcd #11456)."""
    let_waiters_outlive_their_session(patch)


def _a_keep_alive_answered_by_a_sealed_leader(patch: Patch) -> None:
    """A leader that finds itself sealed tells those who wait for their keep-alive that all is well."""
    fail = Leader._fail

    def answer_first(leader: Leader, error: BaseException) -> None:
        if isinstance(error, Sealed):
            at_ms = leader.machine.now_at
            renewals, leader._renewals = leader._renewals, []
            for _, answer in renewals:
                answer(Renewed(at_ms), at_ms)
            for answer in [each for each in leader._under_way if getattr(each, "__name__", "") == "told"]:
                answer(Renewed(at_ms), at_ms)
                leader._under_way.remove(answer)
        fail(leader, error)

    patch.setattr(Leader, "_fail", answer_first)


def _an_answer_before_durability(patch: Patch) -> None:
    """Answers leave when the entry is applied, not when it is stored."""

    async def commit(leader: Leader) -> None:
        entry, data, _, _ = leader._gather(leader._clock.now_ms())
        position = Position(leader.machine.position + 1)
        applied = leader.machine.apply(position, entry)
        answers, leader._under_way = leader._under_way, []
        for answer, outcome in zip(answers, applied.outcomes, strict=True):
            answer(outcome, applied.at_ms)
        found = [question(leader.machine.state) for question, _ in leader._asked]
        await leader._journal.append(data, epoch=leader._epoch, position=position)
        asked, leader._asked = leader._asked, []
        for (_, reply), thing in zip(asked, found, strict=True):
            reply(thing)
        leader._on_durable(entry, applied, len(data))

    patch.setattr(Leader, "_commit", commit)


def _a_fence_reused_after_restart(patch: Patch) -> None:
    """A snapshot does not keep the counter of fences: it is guessed from what is held."""
    guess_the_fence_after_a_restart(patch)


def _a_waiter_granted_after_its_cancel(patch: Patch) -> None:
    """A cancel is answered, but the waiter keeps its place."""

    def cancel(state: State, command: commands.Cancel) -> Any:
        session = state.sessions.get(command.session)
        if session is not None and command.request in session.waiters:
            return Cancelled(command.request)
        return acquire.cancel(state, command)

    patch.setitem(machine._COMMANDS, commands.Cancel, cancel)


# Others that were made elsewhere, or nearly here.


def _a_repeated_request_acted_upon_again(patch: Patch) -> None:
    """What was done before a failover is done once more after it."""

    def recall(state: State, session: Session, number: int) -> Any:
        known = recalled(state, session, number)
        return known if isinstance(known, Refused) else None

    recalled = requests._recall
    patch.setattr(requests, "_recall", recall)


def _trust_counted_from_the_answer(patch: Patch) -> None:
    """The client counts from when the answer came, not from when it asked."""
    on_kept_alive, on_attached = SessionProtocol._on_kept_alive, SessionProtocol._on_attached
    patch.setattr(SessionProtocol, "_on_kept_alive", lambda self, _, at_ms: on_kept_alive(self, self._now, at_ms))
    patch.setattr(SessionProtocol, "_on_attached", lambda self, reply, _: on_attached(self, reply, self._now))


def _time_nobody_led_is_counted(patch: Patch) -> None:
    """The first entry of a leader tells the time since it last led, or began to stand by."""
    made = Leader.__init__

    def init(leader: Leader, *args: Any, **kwargs: Any) -> None:
        made(leader, *args, **kwargs)
        leader._told_ms -= 1_500

    patch.setattr(Leader, "__init__", init)


def _trust_that_comes_back(patch: Patch) -> None:
    """A client that slept beyond its trust believes the keep-alive that was answered meanwhile."""
    patch.setattr(SessionProtocol, "_distrust", lambda _: None)
    patch.setattr(ledger.Session, "next_end", lambda _: inf)


def _a_withdrawal_is_sent_once(patch: Patch) -> None:
    """A cancel that was on its way when the connection broke is not sent again."""
    on_attached = SessionProtocol._on_attached

    def forget(protocol: SessionProtocol, reply: Any, sent_at: float) -> None:
        protocol.session.cancels.clear()
        on_attached(protocol, reply, sent_at)

    patch.setattr(SessionProtocol, "_on_attached", forget)


def _no_margin_for_clocks_that_drift(patch: Patch) -> None:
    """The client trusts for the whole ttl, by a clock that may be slower than the leader's."""
    from fencehold.locks import trust  # noqa: PLC0415

    patch.setattr(trust, "DRIFT", 0.0)
    patch.setattr(trust, "_ROUNDING_S", 0.0)


def _waiters_outlive_their_rights(patch: Patch) -> None:
    """Rights are looked at when somebody asks for a name, and not when it is granted what it waited for."""
    patch.setattr(policy_change, "refuse_acquire", lambda *_: None)


def _keep_alives_wait_for_a_quiet_moment(patch: Patch) -> None:
    """A keep-alive is put off while there are commands: one client that always has some starves all others."""
    submit, renew = Leader.submit, Leader.renew
    busy_at: dict[int, float] = {}

    def submit_and_note(leader: Leader, *args: Any) -> None:
        busy_at[id(leader)] = asyncio.get_running_loop().time()
        submit(leader, *args)

    def renew_later(leader: Leader, *args: Any) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - busy_at.get(id(leader), -inf) < 0.5:
            loop.call_later(0.1, renew_later, leader, *args)
        else:
            renew(leader, *args)

    patch.setattr(Leader, "submit", submit_and_note)
    patch.setattr(Leader, "renew", renew_later)


# Of slots that move.


def _open_before_closed(patch: Patch) -> None:
    """A slot is opened where it goes as soon as it is closing where it was: something of it may still be held."""

    def is_for(move: SlotMove, shard: int, version: int) -> bool:
        return move.stage in (Stage.CLOSING, Stage.CLOSED) and move.to == shard and move.version == version

    patch.setattr(slot_mover, "_is_for", is_for)


def _the_fence_taken_before_the_last_grant(patch: Patch) -> None:
    """The fence above which a slot is opened is that of when it began to drain: its waiters are granted later."""
    place, seal = slot_moves._place, slot_moves._seal

    def place_and_note(state: State, home: Home, slot: int, shard: int, version: int) -> None:
        place(state, home, slot, shard, version)
        move = state.slots.get(slot)
        if move is not None and move.stage is Stage.CLOSING and not move.fence:
            state.slots[slot] = replace(move, fence=state.fence)

    def seal_as_noted(state: State) -> SlotsSealed:
        noted = {slot: state.slots[slot].fence for slot in state.draining}
        sealed = seal(state)
        for slot, fence in noted.items():
            if state.slots[slot].stage is Stage.CLOSED:
                state.slots[slot] = replace(state.slots[slot], fence=fence)
        return sealed

    patch.setattr(slot_moves, "_place", place_and_note)
    patch.setattr(slot_moves, "_seal", seal_as_noted)


def _maps_applied_out_of_order(patch: Patch) -> None:
    """A map that comes late, after the one that replaced it, is believed."""
    due = slot_mover.SlotMover._due
    late: dict[slot_mover.SlotMover, dict[int, ShardMap]] = {}

    def due_late(mover: slot_mover.SlotMover, shard: int, state: State) -> Any:
        own = mover.standings[shard]
        maps = late.setdefault(mover, {})
        maps[own.placed.version] = own.placed
        older = maps.get(own.placed.version - 1)
        if own.is_settled and older is not None and state.fence % 3 == 0:
            return commands.FollowMap(older)
        return due(mover, shard, state)

    patch.setattr(slot_mover.SlotMover, "_due", due_late)
    patch.setattr(slot_moves, "_is_newer", lambda *_: True)


def _a_map_taken_before_the_last_one_is_done(patch: Patch) -> None:
    """The next map is taken while slots are on their way by the one before, and told as soon as it is seen."""
    take, due = slot_moves._take, slot_mover.SlotMover._due

    def take_at_once(state: State, placed: ShardMap) -> Any:
        draining, arriving = dict(state.draining), dict(state.arriving)
        state.draining.clear()
        state.arriving.clear()
        taken = take(state, placed)
        state.draining.update(draining)
        state.arriving.update(arriving)
        return taken

    def due_at_once(mover: slot_mover.SlotMover, shard: int, state: State) -> Any:
        if mover._newest.version > mover.standings[shard].placed.version:
            return commands.FollowMap(mover._newest)
        return due(mover, shard, state)

    patch.setattr(slot_moves, "_take", take_at_once)
    patch.setattr(slot_mover.SlotMover, "_due", due_at_once)
    patch.setattr(slot_mover.SlotMover, "is_settled", True)


def _a_slot_opened_by_an_older_map(patch: Patch) -> None:
    """That a slot was closed once, for any shard and by any map, is enough to open it."""

    def is_for(move: SlotMove, shard: int, version: int) -> bool:
        return move.stage is Stage.CLOSED

    patch.setattr(slot_mover, "_is_for", is_for)


# Of names of several shards, and of a policy that is followed.


def _what_is_left_of_a_joint_hold_is_trusted(patch: Patch) -> None:
    """Who has lost its session in one shard goes on with the names of the others, and of that one."""
    patch.setattr(JointGrant, "safe_for", lambda self, now: max(part.safe_for(now) for part in self.parts))
    patch.setattr(JointGrant, "_on_part_lost", lambda *_: None)


def _parts_are_kept_when_the_rest_is_not_to_be_had(patch: Patch) -> None:
    """Names of several shards are taken part by part, and what was taken is not released when another is not."""

    async def take(channels: ShardChannels, terms: Terms, who: Who, owner: bytes | None, patience: Any) -> Any:
        parts: list[Grant] = []
        for _shard, names in sorted(channels._split(terms.names).items()):
            asked = terms.part(tuple(names), terms.timeout)
            part = await channels._acquire_together(asked, who, owner, lambda: None, patience)
            if part is None:
                return None
            parts.append(part)
        return JointGrant(terms, parts, channels.release) if len(parts) > 1 else parts[0]

    patch.setattr(ShardChannels, "_acquire_parts", take)


def _a_policy_is_told_once(patch: Patch) -> None:
    """A shard is told of a policy when the first one takes it, and not by a leader that comes later."""
    patch.setattr(shards, "_one_by_one", lambda on_promoted, _: on_promoted())


BUGS = (
    Bug("a grant to an ended session", _a_grant_to_an_ended_session, ("G6",), 108),
    Bug("a keep-alive answered by a sealed leader", _a_keep_alive_answered_by_a_sealed_leader, ("G10",), 8),
    Bug("an answer before durability", _an_answer_before_durability, ("G3",), 1),
    Bug("a fence reused after restart", _a_fence_reused_after_restart, ("G1",), 1),
    Bug("a waiter granted after its cancel", _a_waiter_granted_after_its_cancel, ("G9",), 1),
    Bug("a repeated request acted upon again", _a_repeated_request_acted_upon_again, ("G9",), 12),
    Bug("trust counted from the answer", _trust_counted_from_the_answer, ("G7",), 4),
    Bug("time nobody led is counted", _time_nobody_led_is_counted, ("G7",), 1),
    Bug("trust that comes back", _trust_that_comes_back, ("G7",), 1),
    Bug("a withdrawal is sent once", _a_withdrawal_is_sent_once, ("G9",), 1),
    Bug("keep-alives wait for a quiet moment", _keep_alives_wait_for_a_quiet_moment, ("neighbours",), 23),
    Bug("waiters outlive their rights", _waiters_outlive_their_rights, ("G13",), 39),
    Bug("no margin for clocks that drift", _no_margin_for_clocks_that_drift, ("G7",), 93),
    Bug("open before closed", _open_before_closed, ("G1", "G2"), 17, of_moves=True),
    Bug(
        "the fence taken before the last grant", _the_fence_taken_before_the_last_grant, ("G1",), 46, of_moves=True
    ),
    Bug("maps applied out of order", _maps_applied_out_of_order, ("G1", "G2", "G9", "moves"), 95, of_moves=True),
    Bug(
        "a map taken before the last one is done",
        _a_map_taken_before_the_last_one_is_done,
        ("moves", "G9"),
        17,
        of_moves=True,
    ),
    Bug("a slot opened by an older map", _a_slot_opened_by_an_older_map, ("G1", "G2"), 46, of_moves=True),
    Bug(
        "what is left of a joint hold is trusted",
        _what_is_left_of_a_joint_hold_is_trusted,
        ("G7", "G8"),
        120,
        of_moves=True,
    ),
    Bug(
        "parts are kept when the rest is not to be had",
        _parts_are_kept_when_the_rest_is_not_to_be_had,
        ("G9",),
        80,
        of_moves=True,
    ),
    Bug("a policy is told once", _a_policy_is_told_once, ("G13",), 253, of_moves=True),
)


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Run with a bug in the code; with None, as it is."""
    with pytest.MonkeyPatch.context() as patch:
        if bug is not None:
            bug.plant(patch)
        yield
