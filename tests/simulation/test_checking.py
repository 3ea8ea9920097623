"""The checker says yes to what may be and no to what may not, and names the guarantee."""

from typing import Any

import hiredis
import pytest

from fencehold.core.commands import (
    Acquire,
    Break,
    Cancel,
    ChangePolicy,
    CloseSession,
    FollowPolicy,
    Mode,
    OpenSession,
    Release,
    Renew,
)
from fencehold.core.policy import Policy, PolicyChange, Role, Rule, User, Verb
from tests.simulation.checking import check
from tests.simulation.history import Ask, Replicated
from tests.simulation.scenes import Scene
from tests.simulation.scheduler import SECOND


def named(scene: Scene) -> set[str]:
    """The guarantees that a scene breaks."""
    return {violation.guarantee for violation in check(scene.history)}


def grant_reply(fence: int, name: str = "a") -> dict[bytes, Any]:
    return {b"names": [name.encode()], b"fence": fence, b"at": 0}


def handed_over(until: float) -> Scene:
    """One client has a name and trusts it until then; at 20 it is released, and the next one's."""
    scene = Scene()
    scene.sessions(2)
    first = scene.acquire(11, 1)
    scene.store(20, Release(1, ("a",), first))
    second = scene.acquire(21, 2)
    scene.granted("c1", 10.5, 11.1, first)
    scene.granted("c2", 20.5, 21.1, second)
    scene.held("c1", first, 11.1, until)
    scene.held("c2", second, 21.1, 30)
    return scene


def test_what_may_be_is_accepted() -> None:
    """A hold that was given back before the next one was granted breaks nothing."""
    assert named(handed_over(until=19.9)) == set()


@pytest.mark.parametrize("until", [21, 21.5, 40])
def test_trust_beyond_the_next_grant_is_found(until: float) -> None:
    """G7: the first one must not trust its hold when the name is given to the second."""
    assert named(handed_over(until)) == {"G7"}


def test_trust_beyond_a_break_is_an_operators_doing() -> None:
    """G7: who is told by an operator to give way may be trusting at that moment."""
    scene = Scene()
    scene.sessions(2)
    first = scene.acquire(11, 1)
    scene.store(20, Break("a"))
    scene.acquire(21, 2)
    scene.held("c1", first, 11.1, 21.2)
    assert named(scene) == set()


def test_readers_may_trust_together() -> None:
    """G7: shared holds do not exclude one another."""
    scene = Scene()
    scene.sessions(2)
    first = scene.acquire(11, 1, mode=Mode.SHARED)
    scene.acquire(12, 2, mode=Mode.SHARED)
    scene.held("c1", first, 11.1, 30, mode=Mode.SHARED)
    assert named(scene) == set()


def test_a_writer_and_a_trusting_reader_are_found() -> None:
    """G7: a writer is granted when no reader trusts."""
    scene = Scene()
    scene.sessions(2)
    first = scene.acquire(11, 1, mode=Mode.SHARED)
    scene.store(12, CloseSession(1))
    scene.acquire(13, 2)
    scene.held("c1", first, 11.1, 30, mode=Mode.SHARED)
    assert named(scene) == {"G7"}


def test_as_many_permits_may_be_trusted_as_there_are() -> None:
    """G7: one more than the limit is one too many."""
    scene = Scene()
    scene.sessions(3)
    first = scene.acquire(11, 1, mode=Mode.PERMIT, limit=2)
    second = scene.acquire(12, 2, mode=Mode.PERMIT, limit=2)
    for client, fence in (("c1", first), ("c2", second)):
        scene.held(client, fence, 12.5, 30, mode=Mode.PERMIT)
    assert named(scene) == set()
    scene.store(13, Release(1, ("a",), first))
    scene.acquire(14, 3, mode=Mode.PERMIT, limit=2)
    assert named(scene) == {"G7"}


def test_trust_that_comes_back_is_found() -> None:
    """G7: what was lost stays lost."""
    scene = handed_over(until=12)
    scene.history.holds[0].distrusted_ns = 12_500_000_000
    scene.history.holds[0].relapsed_ns = 13_000_000_000
    assert named(scene) == {"G7"}


def test_a_fence_seen_twice_is_found() -> None:
    """G1: no two grants have one fence."""
    scene = handed_over(until=19)
    scene.history.asks[1].fence = scene.history.asks[0].fence
    assert named(scene) == {"G1"}


def test_a_fence_below_one_granted_before_is_found() -> None:
    """G1: who asks later gets a greater one."""
    scene = handed_over(until=19)
    first, second = scene.history.asks
    first.fence, second.fence = second.fence, first.fence
    assert named(scene) == {"G1"}


def test_fences_of_those_who_ask_at_once_may_come_in_any_order() -> None:
    """G1: answers may overtake one another; the order of fences is that of the grants."""
    scene = handed_over(until=19)
    scene.history.asks[1].asked_ns = scene.history.asks[0].asked_ns
    scene.history.asks[0].ended_ns = scene.history.asks[1].ended_ns + 1
    assert named(scene) == set()


def test_an_acquire_that_never_ends_is_found() -> None:
    """G9: every request ends, unless nobody is there to hear of it."""
    scene = Scene()
    scene.history.asks.append(Ask("c1", ("a",), Mode.EXCLUSIVE, 0, 1))
    assert named(scene) == {"G9"}
    scene.history.asks[0].orphaned = True
    assert named(scene) == set()


def test_a_hold_that_nobody_has_is_found() -> None:
    """G9: a client at rest has nothing at the server; G6: nor has one that was closed."""
    scene = Scene()
    scene.sessions(1)
    scene.acquire(11, 1)
    scene.rest(12, "c1")
    assert named(scene) == {"G9", "G6"}


def test_a_dead_clients_hold_is_nobodys_fault_until_it_runs_out() -> None:
    """G9 is about those who live; when all are gone, their sessions must be."""
    scene = Scene()
    scene.sessions(2)
    scene.acquire(11, 1)
    scene.rest(12, "c2")
    scene.store(13, CloseSession(2), CloseSession(1))
    assert named(scene) == set()


def test_what_an_earlier_session_left_behind_is_nobodys_fault_until_it_runs_out() -> None:
    """G9 is about a client's newest session: nobody could tell the service that the one before is over."""
    scene = Scene()
    scene.sessions(1)
    scene.acquire(11, 1)
    scene.sessions(1, at=12)
    scene.rest(13, "c1")
    scene.store(14, CloseSession(2), CloseSession(1))
    assert named(scene) == set()


# What was said.


def test_an_answer_after_its_entry_is_accepted() -> None:
    """G3: the entry is durable when the answer leaves."""
    scene = handed_over(until=19)
    scene.say(11, 1, "LOCK.ACQUIRE a", grant_reply(1))
    scene.say(21, 2, "", [b"grant", 0, grant_reply(2)])
    assert named(scene) == set()


def test_an_answer_before_its_entry_is_found() -> None:
    """G3: a nanosecond is too early."""
    scene = handed_over(until=19)
    scene.say(10.999_999_999, 1, "LOCK.ACQUIRE a", grant_reply(1))
    assert named(scene) == {"G3"}


def test_an_answer_without_an_entry_is_found() -> None:
    """G3: a grant that the journal does not know is none."""
    scene = handed_over(until=19)
    scene.say(30, 1, "LOCK.ACQUIRE a", grant_reply(3))
    assert named(scene) == {"G3"}


def test_a_grant_told_to_another_session_is_found() -> None:
    """G3: the grant of one session explains no other's."""
    scene = handed_over(until=19)
    scene.say(30, 2, "LOCK.ACQUIRE a", grant_reply(1))
    assert named(scene) == {"G3"}


def test_an_error_that_says_nothing_happened_needs_no_entry() -> None:
    """G3: what is refused for want of a leader is explained by nothing."""
    scene = Scene()
    for code in ("UNAVAILABLE", "NOTLEADER", "UNKNOWN"):
        scene.say(5, 0, "LOCK.ACQUIRE a", hiredis.ReplyError(f"{code} for some reason"))
    assert named(scene) == set()


def test_a_session_told_to_be_over_is_over() -> None:
    """G3: a client that hears so gives up all it holds; so it must be true."""
    scene = Scene()
    scene.sessions(1)
    scene.say(11, 1, "SESSION.KEEPALIVE", hiredis.ReplyError("NOSESSION it has ended"))
    assert named(scene) == {"G3"}
    scene.store(10.5, CloseSession(1))
    assert named(scene) == set()


def renewed(at: float, *, node: str) -> Scene:
    """Session 1 is renewed at 11 under n1; n2 takes over at 12; a node answers a keep-alive."""
    scene = Scene("n1")
    scene.sessions(1)
    scene.store(11, Renew((1,)), elapsed_ms=500)
    scene.lead("n2", 12)
    scene.store(12.5, elapsed_ms=100)
    scene.say(13, 1, "SESSION.KEEPALIVE", {b"at": at, b"ttl_ms": 30_000}, node=node)
    return scene


def test_a_sealed_leader_may_say_what_was_durable_before() -> None:
    """G10: the keep-alive rode with an entry of its own epoch; only the answer took its time."""
    assert named(renewed(500, node="n1")) == set()


def test_a_keep_alive_answered_by_a_sealed_leader_is_found() -> None:
    """G10: there is no entry for it, and there cannot be any more."""
    assert named(renewed(600, node="n1")) == {"G10"}


def test_a_keep_alive_that_was_not_journaled_is_found() -> None:
    """G3: the same said by who leads is an answer before durability."""
    assert named(renewed(600, node="n2")) == {"G3"}


def reading(fence: int, *, heard: float, node: str = "n1") -> Scene:
    """A is held with fence 1 from 11 to 20, and with fence 2 from 21; a node says who has it at 22."""
    scene = handed_over(until=19)
    scene.lead("n2", 21.5)
    holds = [{b"fence": fence}] if fence else []
    scene.say(22, 1, "LOCK.INFO a", {b"holds": holds, b"waiters": []}, node=node, heard=heard)
    return scene


@pytest.mark.parametrize(("fence", "heard"), [(2, 21.6), (1, 19), (0, 20.5), (2, 20.5)])
def test_a_reading_may_be_of_any_moment_since_it_was_asked(fence: int, heard: float) -> None:
    """A question and its answer are apart in time; what was so in between is true."""
    assert named(reading(fence, heard=heard)) == set()


@pytest.mark.parametrize(("fence", "heard"), [(1, 20.5), (0, 21.6), (3, 11)])
def test_a_reading_of_what_was_before_is_found(fence: int, heard: float) -> None:
    """G3: what had changed before it was asked is old. G10, if a sealed leader said it."""
    assert named(reading(fence, heard=heard, node="n2")) == {"G3"}
    assert named(reading(fence, heard=heard, node="n1")) == {"G10"}


# What was stored.


def test_time_that_runs_faster_than_the_clock_is_found() -> None:
    """G7: an epoch tells no more time than has passed since it was taken."""
    scene = Scene()
    scene.store(1.5, elapsed_ms=1_500)
    assert named(scene) == set()
    scene.store(2.5, elapsed_ms=1_001)
    assert named(scene) == {"G7"}


def test_a_clock_that_goes_fast_may_tell_more() -> None:
    """G7: it is the leader's own clock that counts."""
    scene = Scene()
    scene.history.rates["n1"] = 1.01
    scene.store(1.0, elapsed_ms=1_010)
    assert named(scene) == set()


def test_a_replica_that_is_another_is_found() -> None:
    """G12: at the same position replicas have the same hash."""
    scene = handed_over(until=19)
    position, state_hash = scene.machine.position, scene.machine.state_hash()
    scene.history.replicas.append(Replicated("n1", position, state_hash))
    assert named(scene) == set()
    scene.history.replicas.append(Replicated("n2", position - 1, state_hash))
    assert named(scene) == {"G12"}


def test_what_the_machine_refuses_to_apply_is_found() -> None:
    """A journal with a gap is no journal."""
    scene = handed_over(until=19)
    del scene.history.stored[1]
    assert "machine" in named(scene)


def test_a_complaint_of_an_event_loop_is_found() -> None:
    """Nothing may be swallowed."""
    scene = Scene()
    scene.history.complaints.append("n1: a task failed")
    assert named(scene) == {"code"}


def test_a_grant_to_a_withdrawn_request_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: the journal itself is judged, also if the machine that made it is wrong."""
    from fencehold.core import commands, machine, outcomes  # noqa: PLC0415

    monkeypatch.setitem(machine._COMMANDS, commands.Cancel, lambda _, command: outcomes.Cancelled(command.request))
    scene = Scene()
    scene.sessions(2)
    scene.acquire(11, 1)
    scene.store(12, Acquire(2, ("a",), request=1))
    scene.store(13, Cancel(2, 1))
    scene.store(14, CloseSession(1))
    assert named(scene) == {"G9"}


# Beside wild clients.


def calm(from_s: float, *living: str) -> Scene:
    """Two clients with sessions, a wild one beside them; from then on there is nothing else to blame."""
    scene = Scene()
    scene.sessions(2)
    scene.history.wild, scene.history.living = ("w",), living
    scene.history.calm_ns, scene.history.calm_until_ns = int(from_s * SECOND), int(100 * SECOND)
    return scene


@pytest.mark.parametrize(
    ("from_s", "living", "named_then"),
    [(20, ("c1", "c2"), {"neighbours"}), (45, ("c1", "c2"), set()), (20, (), set())],
    ids=["calm", "not yet calm", "not theirs"],
)
def test_a_session_that_runs_out_beside_a_wild_client_is_found(
    from_s: float, living: tuple[str, ...], named_then: set[str]
) -> None:
    """Nobody loses a session when there is no fault to explain it; who was killed before does."""
    scene = calm(from_s, *living)
    for second in range(11, 42, 2):
        scene.store(second, elapsed_ms=2_000)
    assert {1, 2} & set(scene.machine.state.sessions) == set()
    assert named(scene) == named_then


def test_a_session_that_must_be_resumed_beside_a_wild_client_is_found() -> None:
    """Who comes back to its session has lost a connection, and only a wild client was there to end it."""
    scene = calm(20, "c1", "c2")
    applied = scene.store(21, Renew((1,)))
    scene.say(21, 1, "SESSION.RESUME 1 secret", {b"at": applied.at_ms})
    assert named(scene) == {"neighbours"}


def test_a_session_that_had_run_out_before_all_was_calm_is_resumed_in_vain_later() -> None:
    """Its client was refused while its user was disabled, and comes back when it is used again."""
    scene = calm(45, "c1", "c2")
    for second in range(11, 45, 2):
        scene.store(second, elapsed_ms=2_000)
    assert {1, 2} & set(scene.machine.state.sessions) == set()
    scene.say(46, 1, "SESSION.RESUME 1 secret", hiredis.ReplyError("NOSESSION it has ended"))
    assert named(scene) == set()


def test_sessions_that_mistaken_frames_opened_are_nobodys() -> None:
    """G6: what a wild client opens by mistake lives as long as the mistake says; a client's own does not."""
    scene = calm(20)
    scene.store(11, OpenSession(86_400_000, meta="{"), CloseSession(1), CloseSession(2))
    scene.rest(30)
    assert named(scene) == set()
    scene.store(12, OpenSession(86_400_000, meta='{"client": "w"}'))
    assert named(scene) == {"G6"}


# Over several shards.


def beside(first: Scene, second: Scene) -> set[str]:
    """The guarantees that two shards break together."""
    first.history.beside = [second.history]
    return named(first)


def ruled() -> tuple[Scene, list[Policy]]:
    """A shard whose policy was changed twice, and the policies it had, by revision."""
    scene, root = Scene(), Role((Rule((Verb.ADMIN,), prefix=""),))
    policies = [scene.machine.state.policy]
    for revision, name in enumerate(("a", "b")):
        change = PolicyChange(users={name: User(("root",))}, roles={"root": root})
        scene.store(10 + revision, ChangePolicy(revision, change, "a"))
        policies.append(scene.machine.state.policy)
    return scene, policies


@pytest.mark.parametrize(
    ("followed", "named_then"),
    [((1, 2), set()), ((2,), set()), ((1,), {"G13"}), ((), {"G13"}), ((2, 1, 2), {"G13"})],
    ids=["each", "the newest", "not the newest", "none", "an older one after it"],
)
def test_a_shard_follows_the_policy_of_the_first(followed: tuple[int, ...], named_then: set[str]) -> None:
    """G13: forwards only, and in the end to where the first one is."""
    (scene, policies), other = ruled(), Scene()
    for place, revision in enumerate(followed):
        other.store(12 + place, FollowPolicy(policies[revision]))
    assert beside(scene, other) == named_then


def test_a_policy_that_the_first_shard_never_had_is_found() -> None:
    """G13: one that is followed before it is durable there, or is not whole."""
    (scene, policies), other = ruled(), Scene()
    other.store(10.5, FollowPolicy(policies[2]))
    assert beside(scene, other) == {"G13"}


def joint(trusted: float) -> tuple[Scene, Scene]:
    """A client has a name in each of two shards together, and trusts them until then; its second session ends."""
    first, second = Scene(), Scene()
    for scene, name in ((first, "a"), (second, "b")):
        scene.sessions(1)
        scene.acquire(11, 1, name)
    held = first.held("c1", 1, 12, trusted)
    held.names, held.fences = ("a", "b"), {"a": 1, "b": 1}
    for at in range(12, 42, 2):
        first.store(at, Renew((1,)), elapsed_ms=2_000)
        second.store(at, elapsed_ms=2_000)
    assert not second.machine.state.sessions
    return first, second


@pytest.mark.parametrize(("trusted", "named_then"), [(39, set()), (41, {"G8"})])
def test_who_trusts_the_rest_of_what_it_has_lost_is_found(trusted: float, named_then: set[str]) -> None:
    """G8: with the session in one shard all is lost, though that in the other lives on."""
    assert beside(*joint(trusted)) == named_then


def test_a_joint_hold_that_was_not_granted_whole_is_found() -> None:
    """G8: each of its names was granted to its client in some shard, before it had them."""
    first, second = joint(39)
    first.history.holds[0].fences["b"] = 2
    assert beside(first, second) == {"G8"}
