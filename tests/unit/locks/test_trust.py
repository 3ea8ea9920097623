"""Law 3 of the session protocol: the client stops trusting first (G7)."""

from itertools import pairwise

import pytest

from fencehold.errors import HoldLost, LimitExceeded, Unavailable
from fencehold.locks.loss_reasons import LossKind, loss_kind
from fencehold.locks.terms import Terms
from fencehold.locks.trust import State, margin
from tests.unit.client.talk import NODES, OWNER, Slot, Talk

pytestmark = pytest.mark.guarantee("G7")


def test_trust_counts_from_the_sending_of_the_last_answered_keep_alive() -> None:
    """A slow answer does not lengthen trust: it runs from when the keep-alive was sent, less the margin."""
    talk = Talk(nodes=NODES[:1])
    talk.open()
    opened_at = talk.now
    grant = talk.hold()
    assert grant.safe_for(talk.now) == pytest.approx(30 - margin(30))
    talk.wait(10)
    assert talk.sent() == [["SESSION.KEEPALIVE"]]
    sent_at = talk.now
    talk.wait(3)
    assert grant.safe_for(talk.now) == pytest.approx(opened_at + 30 - margin(30) - talk.now)
    talk.reply({"at": 11_000, "ttl_ms": 30_000})
    assert grant.safe_for(talk.now) == pytest.approx(sent_at + 30 - margin(30) - talk.now)


def test_a_client_that_is_being_closed_trusts_nothing_any_more() -> None:
    """The server lets go when it hears of the close, and its answer comes later: so trust ends with the asking."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    _, asked = talk.ask()
    talk.protocol.close(Slot(), talk.now)
    assert grant.state(talk.now) is State.LOST
    assert "the client was closed" in str(grant.why())
    talk.reply(talk.grant(2))
    assert asked.result.state(talk.now) is State.LOST
    talk.lose_connection()
    assert ["SESSION.CLOSE"] in talk.resume()
    assert asked.result.state(talk.now) is State.LOST


def test_a_hold_is_lost_when_trust_ends() -> None:
    """Without an answered keep-alive every hold is lost before the server would give it away, and says so once."""
    talk = Talk()
    talk.open()
    grants = [talk.hold(fence) for fence in (1, 2, 3)]
    told: list[int] = []
    for grant in grants:
        grant.on_lost = lambda lost: told.append(lost.fence)
    talk.lose_connection()
    talk.wait(30 - margin(30) - 0.01)
    assert [grant.state(talk.now) for grant in grants] == [State.JEOPARDY] * 3
    talk.wait(0.02)
    assert [grant.state(talk.now) for grant in grants] == [State.LOST] * 3
    assert told == [1, 2, 3]
    assert isinstance(grants[0].why(), HoldLost)


def test_what_was_lost_stays_lost_and_is_given_back() -> None:
    """Should the session turn out to live, its lost holds are released there, not taken up again."""
    talk = Talk()
    talk.open()
    grant = talk.hold(5)
    talk.lose_connection()
    talk.wait(31)
    talk.carry_out()
    words = talk.resume()
    assert [w[:3] for w in words] == [["LOCK.RELEASE", "a", "5"]]
    assert grant.state(talk.now) is State.LOST


def test_a_keep_alive_answered_after_a_pause_does_not_bring_a_hold_back() -> None:
    """A process that slept through its trust finds the answer in the socket, and its holds lost."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.wait(10)
    talk.now += 60
    talk.reply({"at": 11_000, "ttl_ms": 30_000})
    assert grant.state(talk.now) is State.LOST


def test_a_hold_is_in_jeopardy_when_half_its_time_has_passed_unheard() -> None:
    """A keep-alive overdue shows in the state before it costs the hold."""
    talk = Talk(nodes=NODES[:1])
    talk.open()
    grant = talk.hold()
    talk.wait(14)
    assert grant.state(talk.now) is State.HELD
    talk.wait(2)
    assert grant.state(talk.now) is State.JEOPARDY


def test_holds_stay_held_while_keep_alives_are_answered() -> None:
    """An hour of answered keep-alives is an hour of being held."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    for _ in range(360):
        talk.wait_alive(10)
        assert grant.state(talk.now) is State.HELD


def test_a_ttl_of_its_own_is_counted_from_the_sending_of_its_acquire() -> None:
    """A hold that was answered directly ends its ttl after it was asked for, less the margin of the ttl."""
    talk = Talk()
    talk.open()
    talk.now += 2
    talk.at_ms += 2_000
    _, slot = talk.ask(ttl=5)
    end = talk.now + 5 - margin(5)
    talk.now += 0.1
    talk.reply(talk.grant(1, ttl_ms=5_000))
    grant = slot.result
    assert grant.safe_for(talk.now) == pytest.approx(end - talk.now)
    talk.wait(end - talk.now - 0.01)
    assert grant.state(talk.now) is State.HELD
    talk.wait(0.02)
    assert grant.state(talk.now) is State.LOST
    assert grant.ending == "its ttl ran out"


@pytest.mark.parametrize(("session_ttl", "silent_for", "ttl"), [(30, 9.5, 0.2), (300, 75, 1), (30, 9.9, 0.05)])
def test_a_short_ttl_is_not_lost_to_an_old_keep_alive(session_ttl: float, silent_for: float, ttl: float) -> None:
    """The margin is one of the ttl, not of the time since the last keep-alive."""
    talk = Talk(ttl=session_ttl)
    talk.open()
    talk.now += silent_for
    talk.at_ms += round(silent_for * 1000)
    grant = talk.hold(ttl_ms=round(ttl * 1000))
    assert grant.state(talk.now) is State.HELD
    assert grant.safe_for(talk.now) == pytest.approx(ttl - margin(ttl))


def test_an_extension_is_counted_from_its_own_sending() -> None:
    """However long ago the last keep-alive was."""
    talk = Talk(nodes=NODES[:1])
    talk.open()
    grant = talk.hold(ttl_ms=20_000)
    talk.now += 9
    talk.at_ms += 9_000
    talk.protocol.extend(grant, 200, Slot(), talk.now)
    talk.sent()
    talk.now += 0.05
    talk.reply(talk.grant(1, ttl_ms=200))
    assert grant.safe_for(talk.now) == pytest.approx(0.15 - margin(0.2))


def test_an_answer_that_is_heard_again_is_not_counted_from_its_repetition() -> None:
    """The grant is older than that: it ends when it would have ended had it been heard the first time."""
    talk = Talk(nodes=NODES[:1])
    talk.open()
    _, slot = talk.ask(ttl=5)
    granted, granted_at = talk.grant(1, ttl_ms=5_000), talk.now
    talk.now += 1
    talk.lose_connection()
    talk.at_ms += 3_000
    talk.now += 2
    talk.resume()
    talk.reply(granted)
    # Placed by the resume, after which 2 s were left.
    assert slot.result.own_end == pytest.approx(granted_at + 5 - margin(2))


def test_a_pushed_grant_is_placed_by_the_best_answer_before_it() -> None:
    """The reply that it is queued is one; the drift since then is left out, too."""
    talk = Talk(ttl=300)
    talk.open()
    talk.now += 75
    talk.at_ms += 75_000
    _, slot = talk.ask(ttl=1)
    queued_at = talk.now
    talk.sent()
    talk.now += 0.02
    talk.reply({"queued": 1, "ahead": 0, "at": talk.at_ms})
    talk.now += 0.48
    talk.at_ms += 500
    talk.push("grant", 1, talk.grant(1, ttl_ms=1_000))
    assert slot.result.own_end == pytest.approx(queued_at + 1.5 - margin(1.5))


@pytest.mark.parametrize(("ttl", "every"), [(0.2, 1), (4, 4), (60, 10)])
def test_whoever_waits_for_a_short_ttl_keeps_alive_more_often(ttl: float, every: float) -> None:
    """So a grant that is pushed after a long wait loses the margin of twice its ttl, or of a second more."""
    talk = Talk(nodes=NODES[:1])
    talk.open()
    _, slot = talk.ask(ttl=ttl)
    talk.sent()
    talk.reply({"queued": 1, "ahead": 0, "at": talk.at_ms})
    beats = []
    for _ in range(5):
        while not (beat := [words for words in talk.sent() if words == ["SESSION.KEEPALIVE"]]):
            talk.at_ms += round((talk.protocol.wake_at - talk.now) * 1000)
            talk.wait(talk.protocol.wake_at - talk.now)
        assert len(beat) == 1
        beats.append(talk.now)
        # Entered 200 ms after it came, and answered then.
        came_at, talk.at_ms, talk.now = talk.at_ms, talk.at_ms + 200, talk.now + 0.2
        talk.reply({"at": talk.at_ms, "ttl_ms": 30_000, "came_at": came_at})
    assert [later - earlier for earlier, later in pairwise(beats)] == pytest.approx([every] * 4)
    talk.push("grant", 1, talk.grant(1, ttl_ms=round(ttl * 1000)))
    grant = slot.result
    assert grant.own_end >= talk.now + ttl - margin(ttl + every) - 0.001
    talk.protocol.release(grant, None, talk.now)
    talk.sent()
    talk.reply("OK")
    talk.wait_alive(60)
    assert talk.protocol._keep_alive_at - talk.now <= 10


def test_an_extension_moves_the_end() -> None:
    """An extended hold outlives its first ttl, and one extended to its session has no end of its own."""
    talk = Talk()
    talk.open()
    grant = talk.hold(ttl_ms=5_000)
    slot = Slot()
    talk.protocol.extend(grant, 20_000, slot, talk.now)
    assert talk.sent()[0][:4] == ["LOCK.EXTEND", "a", "1", "20000"]
    talk.reply(talk.grant(1, ttl_ms=20_000))
    assert slot.kept
    talk.wait_alive(6)
    assert grant.state(talk.now) is State.HELD
    talk.protocol.extend(grant, 0, Slot(), talk.now)
    talk.sent()
    talk.reply(talk.grant(1))
    talk.wait_alive(60)
    assert grant.state(talk.now) is State.HELD


@pytest.mark.parametrize("ttl_ms", [0, 20_000])
def test_an_extension_to_an_earlier_end_counts_before_it_is_answered(ttl_ms: int) -> None:
    """The server may have shortened the hold, and the answer be lost: so it is trusted no longer than that."""
    talk = Talk()
    talk.open()
    grant, slot = talk.hold(ttl_ms=ttl_ms), Slot()
    talk.protocol.extend(grant, 10_000, Slot(), talk.now)
    talk.protocol.extend(grant, 1_000, slot, talk.now)
    talk.sent()
    talk.reply(talk.grant(1, ttl_ms=10_000))
    assert grant.safe_for(talk.now) == pytest.approx(1 - margin(1))
    talk.lose_connection()
    talk.wait(1)
    assert grant.state(talk.now) is State.LOST
    assert grant.ending == "its ttl ran out"
    assert "LOCK.RELEASE" in [words[0] for words in talk.resume()]


def test_an_extension_that_is_refused_or_not_sent_changes_no_end() -> None:
    """It is certain then that nothing was shortened."""
    talk = Talk()
    talk.open()
    grant, refused, unsent = talk.hold(ttl_ms=20_000), Slot(), Slot()
    before = grant.safe_for(talk.now)
    talk.protocol.extend(grant, 10_000, refused, talk.now)
    talk.sent()
    talk.fail("LIMIT not that often")
    assert isinstance(refused.error, LimitExceeded)
    assert grant.safe_for(talk.now) == pytest.approx(before)
    talk.lose_connection()
    talk.protocol.extend(grant, 10_000, unsent, talk.now)
    assert grant.safe_for(talk.now) == pytest.approx(10 - margin(10))
    talk.wait(5.1)
    assert isinstance(unsent.error, Unavailable)
    assert grant.safe_for(talk.now) == pytest.approx(before - 5.1)
    assert not grant.extensions


def test_an_extension_that_is_done_settles_those_before_it() -> None:
    """Of one whose outcome is unknown nothing remains once a later one is answered."""
    talk = Talk()
    talk.open()
    grant = talk.hold(ttl_ms=25_000)
    talk.protocol.extend(grant, 15_000, Slot(), talk.now)
    talk.sent()
    talk.lose_connection()
    talk.wait(5.1)
    assert grant.safe_for(talk.now) == pytest.approx(15 - margin(15) - 5.1)
    talk.carry_out()
    talk.resume()
    talk.protocol.extend(grant, 20_000, Slot(), talk.now)
    talk.sent()
    talk.reply(talk.grant(1, ttl_ms=20_000))
    assert grant.safe_for(talk.now) == pytest.approx(20 - margin(20))
    assert not grant.extensions


def test_an_answered_extension_brings_nothing_back() -> None:
    """What has run out here is lost, though the timer has not said so yet, and the server did extend it."""
    talk = Talk()
    talk.open()
    grant, slot = talk.hold(ttl_ms=1_000), Slot()
    talk.protocol.extend(grant, 20_000, slot, talk.now)
    talk.sent()
    talk.now += 0.99
    assert grant.state(talk.now) is State.LOST
    talk.reply(talk.grant(1, ttl_ms=20_000))
    assert grant.state(talk.now) is State.LOST
    assert isinstance(slot.error, HoldLost)
    assert talk.sent()[0][:3] == ["LOCK.RELEASE", "a", "1"]


def test_an_extension_that_came_too_late_is_a_loss() -> None:
    """When the server knows nothing of the hold any more, it is lost here, too."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    slot = Slot()
    talk.protocol.extend(grant, 1_000, slot, talk.now)
    talk.fail("EXPIRED it ran out")
    assert isinstance(slot.error, HoldLost)
    assert grant.state(talk.now) is State.LOST


def test_an_extension_of_what_was_lost_meanwhile_is_no_success() -> None:
    """What was lost while the extension was on its way stays lost, though the server did extend it."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    slot = Slot()
    talk.protocol.extend(grant, 20_000, slot, talk.now)
    talk.push("lost", "a", 1, "broken")
    talk.reply(talk.grant(1, ttl_ms=20_000))
    assert isinstance(slot.error, HoldLost)
    assert grant.state(talk.now) is State.LOST


@pytest.mark.guarantee("G7")
def test_an_extension_that_is_heard_after_the_end_brings_nothing_back() -> None:
    """The process was stopped when the hold ran out, and finds the answer before any timer: it stays lost."""
    talk = Talk()
    talk.open()
    grant = talk.hold(ttl_ms=5_000)
    slot = Slot()
    talk.protocol.extend(grant, 0, slot, talk.now)
    talk.sent()
    talk.now += 6
    assert grant.safe_for(talk.now) == 0
    talk.reply(talk.grant(1))
    assert grant.state(talk.now) is State.LOST
    assert isinstance(slot.error, HoldLost)
    assert ["LOCK.RELEASE", "a", "1"] in [command[:3] for command in talk.sent()]


@pytest.mark.parametrize(
    ("delay", "end"), [(0, ["LOCK.RELEASE", "a", "1"]), (0.4, ["LOCK.EXTEND", "a", "1", "1"])]
)
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_hold_that_ran_out_while_it_was_extended_is_not_left_to_run_out(
    delay: float, end: list[str], is_connected: bool
) -> None:
    """At the server the extension may have made it last as long as the session: so it is ended there, too."""
    talk = Talk()
    talk.open()
    _, asked = talk.ask(ttl=5, delay=delay)
    talk.sent()
    talk.reply(talk.grant(1, ttl_ms=5_000))
    talk.wait(4.8)
    talk.protocol.extend(asked.result, 0, Slot(), talk.now)
    talk.sent()
    if not is_connected:
        talk.lose_connection()
    talk.wait(0.2)
    assert asked.result.state(talk.now) is State.LOST
    words = talk.sent() if is_connected else talk.resume()
    assert end in [command[: len(end)] for command in words]


def test_a_hold_the_server_ended_is_lost_at_once() -> None:
    """A push that a hold was broken or ran out takes effect with the push."""
    talk = Talk()
    talk.open()
    broken, kept = talk.hold(1), talk.hold(2)
    talk.push("lost", "a", 1, "broken")
    assert broken.state(talk.now) is State.LOST
    assert (broken.ending, loss_kind(broken.ending)) == ("'a' was force-released", LossKind.BROKEN)
    assert kept.state(talk.now) is State.HELD


def test_who_force_released_a_hold_is_told_to_its_holder() -> None:
    """The reason says who did it; a server that does not know, or does not say it, is no trouble."""
    reasons = []
    alice, unnamed = '{"client":"fencehold break","user":"alice","host":"ops1"}', '{"host":"ops1","pid":7}'
    for said in ((), ("",), (alice,), (unnamed,), ("anything",)):
        talk = Talk()
        talk.open()
        grant = talk.hold()
        talk.push("lost", "a", 1, "broken", *said)
        reasons.append(grant.ending)
    assert reasons[0] == reasons[1] == "'a' was force-released"
    assert reasons[2] == "'a' was force-released by alice@ops1 (fencehold break)"
    assert reasons[3] == "'a' was force-released by an unnamed client on ops1 (pid 7)"
    assert reasons[4] == "'a' was force-released by anything"
    assert "force-released by anything" in str(grant.why())


def test_closing_a_connection_leaves_only_the_grace() -> None:
    """If the client itself closes what may carry its session, it trusts the grace only, less a margin."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.lose_connection()
    talk.protocol.on_connection_closed(talk.now)
    assert grant.safe_for(talk.now) == pytest.approx(1 - margin(1))
    talk.wait(1)
    assert grant.state(talk.now) is State.LOST


def test_a_resumed_session_is_trusted_anew() -> None:
    """An answered resume counts like a keep-alive, from when it was sent."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.wait_alive(5)
    talk.lose_connection()
    talk.resume()
    assert grant.safe_for(talk.now) == pytest.approx(30 - margin(30), abs=0.1)


def test_a_released_hold_is_not_lost() -> None:
    """A hold that was given back tells nobody that it is gone, whatever happens later."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    told: list[object] = []
    grant.on_lost = told.append
    talk.protocol.release(grant, None, talk.now)
    talk.wait(60)
    assert grant.state(talk.now) is State.RELEASED
    assert told == []


def test_the_rest_of_several_names_is_given_back() -> None:
    """When one of several names is taken from a hold, the hold is lost, and its other names are released."""
    talk = Talk()
    talk.open()
    slot = Slot()
    talk.protocol.acquire(Terms(("a", "b")), OWNER, slot, talk.now)
    talk.sent()
    talk.reply(talk.grant(3))
    talk.push("lost", "a", 3, "broken")
    assert slot.result.state(talk.now) is State.LOST
    assert talk.sent() == [["LOCK.MRELEASE", "2", "a", "b", "3", "REQUEST", "2", "ANSWERED", "1"]]
    talk.fail("EXPIRED a was broken")


def test_ends_of_released_holds_are_not_kept() -> None:
    """Two thousand holds with a long ttl, each released, leave no more behind than a few."""
    talk = Talk()
    talk.open()
    for fence in range(1, 2_001):
        talk.protocol.release(talk.hold(fence, ttl_ms=3_600_000), None, talk.now)
        talk.sent()
        talk.reply("OK")
    assert len(talk.protocol.session.ends) < 100
    last = talk.hold(2_001, ttl_ms=1_000)
    talk.wait(1)
    assert last.state(talk.now) is State.LOST


def test_what_ran_out_here_is_given_back_before_it_is_asked_for_again() -> None:
    """The server counts a hold for a margin longer; nobody is to wait for what was their own."""
    talk = Talk()
    talk.open()
    grant = talk.hold(4, ttl_ms=1_000)
    talk.wait(1)
    assert grant.state(talk.now) is State.LOST
    assert talk.sent() == [], "if nobody asks, it is to be seen that it ran out"
    talk.ask()
    assert [words[:3] for words in talk.sent()] == [["LOCK.RELEASE", "a", "4"], ["LOCK.ACQUIRE", "a", "ASYNC"]]
    talk.ask("b")
    assert [words[0] for words in talk.sent()] == ["LOCK.ACQUIRE"]


def test_what_ran_out_is_given_back_though_no_timer_has_said_so() -> None:
    """Whoever asks again at the very end of a hold need not be lucky with timers."""
    talk = Talk()
    talk.open()
    grant = talk.hold(4, ttl_ms=1_000)
    talk.now += 1
    talk.ask()
    assert [words[0] for words in talk.sent()] == ["LOCK.RELEASE", "LOCK.ACQUIRE"]
    assert grant.ending == "its ttl ran out"


def test_what_the_server_has_ended_meanwhile_is_not_given_back() -> None:
    """Once the server has said that a hold ran out, there is nothing to release."""
    talk = Talk()
    talk.open()
    talk.hold(4, ttl_ms=1_000)
    talk.wait(1)
    talk.push("lost", "a", 4, "expired")
    talk.ask()
    assert [words[0] for words in talk.sent()] == ["LOCK.ACQUIRE"]


def test_a_hold_with_a_delay_is_left_to_run_out() -> None:
    """A release is a clean end: it would give away a name that is to stay ungranted."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask(delay=60, ttl=1)
    talk.sent()
    talk.reply(talk.grant(4, ttl_ms=1_000))
    talk.wait(1)
    assert slot.result.state(talk.now) is State.LOST
    talk.ask()
    assert [words[0] for words in talk.sent()] == ["LOCK.ACQUIRE"]
