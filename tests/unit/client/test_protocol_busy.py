"""BUSY: what was told so rests, is asked again within its caller's time, and leaves nothing behind."""

from typing import Any

import pytest

from fencehold.client.protocol.connection import REMEMBERED_MAX, REST_S_MAX, REST_S_MIN, Backoff
from fencehold.drivers.address import Endpoint
from fencehold.drivers.resp.wire import error
from fencehold.errors import HoldLost, LimitExceeded, OutcomeUnknown, Overloaded, Unavailable
from fencehold.locks.trust import State
from tests.unit.client.talk import Slot, Talk

BUSY = "BUSY 200 too much waits for the journal"
ALONE = (Endpoint("one", 1),)
REST_S = 0.3
"""200 ms, and half as long again: in a `Talk` the lot is always the greatest."""


def opened(**options: float) -> Talk:
    talk = Talk(nodes=ALONE, **options)
    talk.open()
    talk.sent()
    return talk


# The rest.


def busy(told_s: float) -> Overloaded:
    return Overloaded("busy", retry_after_s=told_s)


def test_a_rest_is_as_long_as_was_told_and_up_to_half_as_long_again() -> None:
    """Clients that were told the same come back one by one."""
    assert Backoff(lambda: 0.0).rest_of(busy(0.2), 1) == pytest.approx(0.2)
    assert Backoff(lambda: 1.0).rest_of(busy(0.2), 1) == pytest.approx(0.3)


def test_a_rest_doubles_within_its_bounds() -> None:
    """Whatever is told, and however often, a rest is neither nothing nor endless."""
    backoff = Backoff(lambda: 0.0)
    assert [backoff.rest_of(busy(0.2), times) for times in (1, 2, 3)] == pytest.approx([0.2, 0.4, 0.8])
    assert backoff.rest_of(busy(0.0), 1) == REST_S_MIN
    assert backoff.rest_of(busy(3_600.0), 1) == REST_S_MAX
    assert backoff.rest_of(busy(0.2), 100_000) == REST_S_MAX


@pytest.mark.parametrize(
    ("detail", "told_s", "why"),
    [
        ("250 too much waits", 0.25, "the service is busy: too much waits"),
        ("250", 0.25, "the service is busy: it is overloaded"),
        ("too much waits", 0.0, "the service is busy: too much waits"),
        ("", 0.0, "the service is busy: it is overloaded"),
    ],
)
def test_busy_is_an_error_that_says_when_to_come_back(detail: str, told_s: float, why: str) -> None:
    """Also if a server leaves out what it should say."""
    failure = error("BUSY", detail)
    assert isinstance(failure, Overloaded)
    assert (failure.retry_after_s, str(failure)) == (told_s, why)


# Acquiring.


@pytest.mark.guarantee("G9")
def test_an_acquire_is_asked_again_under_a_new_id_when_it_has_rested() -> None:
    """BUSY says that it was not taken: what is asked then is a new request, for the same caller."""
    talk = opened()
    _, slot = talk.ask()
    talk.sent()
    talk.fail(BUSY)
    talk.wait(REST_S - 0.01)
    assert talk.sent() == []
    talk.wait(0.02)
    (words,) = talk.sent()
    assert words[0] == "LOCK.ACQUIRE"
    assert words[-4:-2] == ["REQUEST", "2"]
    talk.reply(talk.grant(5))
    assert slot.result.fence == 5


def test_an_acquire_without_a_timeout_is_asked_for_ever() -> None:
    """It rests longer and longer, up to a bound, and is never given up."""
    talk = opened()
    _, slot = talk.ask()
    rests = []
    for _ in range(20):
        talk.sent()
        talk.fail(BUSY)
        asked_at = talk.now
        while not any(words[0] == "LOCK.ACQUIRE" for words in alive(talk)):
            talk.wait(talk.protocol.wake_at - talk.now)
        rests.append(talk.now - asked_at)
    assert not slot.kept
    assert rests[:3] == pytest.approx([0.3, 0.6, 1.2])
    assert max(rests) == pytest.approx(1.5 * REST_S_MAX)


def alive(talk: Talk) -> list[list[str]]:
    """What was sent but for keep-alives, which are answered."""
    words = talk.sent()
    for _ in [each for each in words if each[0] == "SESSION.KEEPALIVE"]:
        talk.reply({"at": talk.at_ms, "ttl_ms": 30_000})
    return [each for each in words if each[0] != "SESSION.KEEPALIVE"]


def test_the_time_spent_counts_against_the_timeout() -> None:
    """What is left is what the server is told to wait."""
    talk = opened()
    talk.ask(timeout=1.0)
    assert talk.sent()[0][3:5] == ["WAIT", "1000"]
    talk.fail(BUSY)
    talk.wait(REST_S)
    assert talk.sent()[0][3:5] == ["WAIT", "700"]


def test_a_timed_acquire_that_never_got_in_is_overloaded_at_its_deadline() -> None:
    """It is not held by another, as far as anybody knows: so it is no timeout of a lock."""
    talk = opened()
    _, slot = talk.ask(timeout=0.5)
    talk.fail(BUSY)
    talk.wait(REST_S)
    talk.sent()
    talk.fail(BUSY)
    talk.wait(0.5 - REST_S - 0.01)
    assert not slot.kept
    talk.wait(0.02)
    assert isinstance(slot.error, Overloaded)
    assert str(slot.error) == "the service is busy: too much waits for the journal; asked 2 times in 0.5 s"
    assert slot.error.retry_after_s == 0.2
    assert talk.sent() == []


def test_a_try_that_is_told_busy_is_overloaded_at_once() -> None:
    """It must not look as if somebody held the name."""
    talk = opened()
    _, slot = talk.ask(timeout=0)
    talk.sent()
    talk.fail(BUSY)
    assert isinstance(slot.error, Overloaded)
    assert str(slot.error) == "the service is busy: too much waits for the journal"
    talk.wait(5)
    assert talk.sent() == []


def test_an_acquire_that_got_in_and_then_waited_times_out_as_ever() -> None:
    """Once it is queued, it is the name that it waits for."""
    talk = opened()
    _, slot = talk.ask(timeout=1.0)
    talk.fail(BUSY)
    talk.wait(REST_S)
    talk.reply({"queued": 1, "ahead": 0})
    talk.push("timeout", 2)
    assert slot.kept
    assert slot.error is None
    assert slot.result is None


@pytest.mark.guarantee("G9")
def test_an_acquire_that_is_left_while_it_rests_leaves_nothing_behind() -> None:
    """The server never took it, so there is nothing to withdraw, and nothing is asked again."""
    talk = opened()
    request, _ = talk.ask()
    talk.sent()
    talk.fail(BUSY)
    talk.protocol.withdraw(request, talk.now)
    talk.wait(REST_S + 1)
    assert talk.sent() == []
    assert not len(talk.protocol._backoff)


def test_a_limit_is_not_asked_again() -> None:
    """Waiting does not help with it."""
    talk = opened()
    _, slot = talk.ask()
    talk.sent()
    talk.fail("LIMIT 64 names at most")
    assert isinstance(slot.error, LimitExceeded)
    talk.wait(5)
    assert talk.sent() == []


def test_what_rests_does_not_hold_up_others() -> None:
    """A release goes on at once while an acquire rests: a service without room takes back all the same."""
    talk = opened()
    grant = talk.hold(1)
    talk.ask("b")
    talk.sent()
    talk.fail(BUSY)
    talk.protocol.release(grant, Slot(), talk.now)
    assert [words[0] for words in talk.sent()] == ["LOCK.RELEASE"]


def test_whoever_can_go_on_without_is_not_kept_for_ever() -> None:
    """Where its caller goes on without a lock when there is nobody to ask, no acquire is without a timeout."""
    talk = opened()
    talk.protocol.busy_s_max = 5.0
    _, slot = talk.ask()
    talk.fail("BUSY 60000 no room")
    talk.wait(4.9)
    assert not slot.kept
    talk.wait(0.2)
    assert isinstance(slot.error, Overloaded)


def test_the_shell_is_told_what_is_busy_and_for_how_long_it_is_asked_again() -> None:
    """The log is the shell's."""
    talk = opened()
    told: list[tuple[str, float]] = []
    talk.protocol.on_busy = lambda busy, left_s: told.append((str(busy), left_s))
    talk.ask(timeout=3)
    talk.fail(BUSY)
    assert told == [("the service is busy: too much waits for the journal", 3.0)]


# Repetitions, of which the first may have been taken.


def interrupted(talk: Talk, **terms: Any) -> Slot:
    """An acquire that was sent, and is repeated on another connection."""
    _, slot = talk.ask(**terms)
    talk.sent()
    talk.lose_connection()
    assert talk.resume()[0][-4:-2] == ["REQUEST", "1"]
    return slot


@pytest.mark.guarantee("G9")
def test_a_repetition_that_is_told_busy_keeps_its_id() -> None:
    """It may have been granted when it was first sent: under another id it would be asked for twice."""
    talk = opened()
    slot = interrupted(talk)
    talk.fail(BUSY)
    talk.wait(REST_S)
    assert talk.sent()[0][-4:] == ["REQUEST", "1", "ANSWERED", "0"]
    talk.reply(talk.grant(5))
    assert slot.result.fence == 5


@pytest.mark.guarantee("G9")
def test_nothing_is_acknowledged_from_a_repetition_on_that_rests() -> None:
    """The server must not forget what it answered the first time; later it is told of all that arrived."""
    talk = opened()
    interrupted(talk)
    talk.ask("b")
    talk.sent()
    talk.fail(BUSY)
    talk.reply(talk.grant(2))
    talk.ask("c")
    assert talk.sent()[0][-4:] == ["REQUEST", "3", "ANSWERED", "0"]
    talk.reply(talk.grant(3))
    talk.wait(REST_S)
    assert talk.sent()[0][-4:] == ["REQUEST", "1", "ANSWERED", "0"]
    talk.reply(talk.grant(1))
    talk.ask("d")
    assert talk.sent()[0][-4:] == ["REQUEST", "4", "ANSWERED", "3"]


def test_the_server_is_not_made_to_remember_without_bound() -> None:
    """While a repetition rests and others go on, as many are sent as it remembers by half, then they wait."""
    talk = opened()
    interrupted(talk)
    talk.fail("BUSY 5000 no room")
    sent = 0
    for fence in range(2, REMEMBERED_MAX + 10):
        talk.ask("b")
        if talk.sent():
            sent += 1
            talk.reply(talk.grant(fence))
    assert sent == REMEMBERED_MAX - 1
    talk.wait(7.5)
    alive(talk)
    talk.reply(talk.grant(1))
    assert talk.sent()[0][-4:] == ["REQUEST", str(REMEMBERED_MAX + 1), "ANSWERED", str(REMEMBERED_MAX)]


@pytest.mark.guarantee("G9")
def test_a_repetition_that_is_told_busy_to_the_end_is_withdrawn_and_unknown() -> None:
    """It may have been granted: nobody may say that it was not, nor may it stay held."""
    talk = opened()
    slot = interrupted(talk, timeout=0)
    talk.fail("BUSY 60000 no room")
    talk.wait(talk.protocol.settings.connect_timeout)
    assert isinstance(slot.error, OutcomeUnknown)
    assert "since then: the service is busy: no room" in str(slot.error)
    assert [words for words in talk.sent() if words[0] != "SESSION.KEEPALIVE"] == [["LOCK.CANCEL", "1"]]


def test_a_grant_that_is_pushed_while_its_repetition_rests_counts() -> None:
    """It was queued the first time, and its turn came."""
    talk = opened()
    slot = interrupted(talk)
    talk.fail(BUSY)
    talk.push("grant", 1, talk.grant(4))
    assert slot.result.fence == 4
    talk.wait(REST_S)
    assert talk.sent() == []
    talk.ask("b")
    talk.sent()
    talk.reply(talk.grant(6))
    talk.ask("c")
    assert talk.sent()[0][-2:] == ["ANSWERED", "2"]


def test_an_acquire_that_was_answered_while_it_rested_holds_up_nothing_on_the_next_connection() -> None:
    """Its id is not named again, so all that arrived is acknowledged."""
    talk = opened()
    interrupted(talk)
    talk.fail(BUSY)
    talk.push("grant", 1, talk.grant(4))
    talk.lose_connection()
    talk.resume()
    assert talk.protocol.session.kept == []


def test_a_queued_acquire_whose_repetition_is_told_busy_keeps_its_place() -> None:
    """It is asked again under its id, and a push that comes before is for it."""
    talk = opened()
    _, slot = talk.ask()
    talk.reply({"queued": 1, "ahead": 0})
    talk.lose_connection()
    talk.resume()
    talk.fail(BUSY)
    talk.wait(REST_S)
    assert talk.sent()[0][-4:-2] == ["REQUEST", "1"]
    talk.push("grant", 1, talk.grant(4))
    assert slot.result.fence == 4


def test_a_repetition_that_rests_is_repeated_at_once_on_the_next_connection() -> None:
    """Another node may lead by now; what was never taken goes on resting."""
    talk = opened()
    interrupted(talk)
    talk.fail(BUSY)
    talk.ask("b")
    talk.sent()
    talk.fail("BUSY 4000 no room")
    talk.lose_connection()
    assert [words[1] for words in talk.resume()] == ["a"]
    talk.reply(talk.grant(1))
    talk.wait(6)
    assert [words[1] for words in alive(talk)] == ["b"]


def test_an_extension_given_up_in_an_outage_does_not_hold_up_acknowledgements() -> None:
    """It rested under its id; nobody will name that again."""
    talk = opened()
    grant = talk.hold(1)
    slot = Slot()
    talk.protocol.extend(grant, 60_000, slot, talk.now)
    talk.sent()
    talk.lose_connection()
    talk.resume()
    talk.fail(BUSY)
    assert talk.protocol.session.kept == [2]
    talk.lose_connection()
    talk.wait(talk.protocol.settings.connect_timeout)
    assert isinstance(slot.error, OutcomeUnknown)
    talk.resume()
    assert talk.protocol.session.kept == []


# The session goes, or cannot be had.


def test_what_rests_is_told_within_the_connect_timeout_that_the_service_is_away() -> None:
    """Resting does not make an outage longer for its caller."""
    talk = opened()
    _, slot = talk.ask()
    talk.fail("BUSY 5000 no room")
    talk.lose_connection()
    talk.wait(talk.protocol.settings.connect_timeout)
    assert isinstance(slot.error, Unavailable)
    assert not isinstance(slot.error, Overloaded)


def test_what_rests_is_asked_in_the_next_session() -> None:
    """It was never taken, so it lost nothing; what is about a hold of the old one is over."""
    talk = opened()
    grant = talk.hold(1)
    release, acquire = Slot(), talk.ask("b")[1]
    talk.protocol.release(grant, release, talk.now)
    talk.sent()
    talk.fail(BUSY)
    talk.fail(BUSY)
    talk.push("ended", 7, "expired")
    assert isinstance(release.error, HoldLost)
    talk.session = 8
    talk.greet()
    talk.opened()
    talk.sent()
    talk.wait(REST_S)
    assert talk.sent()[0][:2] == ["LOCK.ACQUIRE", "b"]
    talk.reply(talk.grant(9))
    assert acquire.result.fence == 9


def test_closing_ends_what_rests() -> None:
    """Nobody waits for ever for a client that is closed."""
    talk = opened()
    _, slot = talk.ask()
    talk.fail(BUSY)
    closed = Slot()
    talk.protocol.close(closed, talk.now)
    talk.sent()
    talk.reply("OK")
    assert closed.kept
    assert slot.error is not None


def test_a_close_that_is_told_busy_is_repeated_for_as_long_as_closing_may_take() -> None:
    """The server should hear of it; but the client does not wait for ever."""
    talk = opened()
    closed = Slot()
    talk.protocol.close(closed, talk.now)
    talk.sent()
    talk.fail(BUSY)
    talk.wait(REST_S)
    assert ["SESSION.CLOSE"] in talk.sent()
    talk.fail(BUSY)
    assert not closed.kept
    talk.wait(talk.protocol.settings.connect_timeout)
    assert closed.kept


def test_a_session_is_asked_for_again_on_the_same_connection() -> None:
    """Another connection would only be more to do for a server that has too much."""
    talk = Talk(nodes=ALONE)
    ready = Slot()
    talk.protocol.ready(ready, talk.now)
    talk.greet()
    talk.fail(BUSY)
    assert talk.sent() == []
    talk.wait(REST_S)
    (words,) = talk.sent()
    assert words[0] == "SESSION.OPEN"
    talk.opened()
    assert ready.kept
    assert ready.error is None


def test_a_session_that_is_not_opened_in_time_is_overloaded() -> None:
    """The node is there, and says so: it is not taken for silent, nor left for another."""
    talk = Talk(nodes=ALONE)
    ready = Slot()
    talk.protocol.ready(ready, talk.now)
    talk.greet()
    while not ready.kept:
        talk.fail(BUSY)
        while not talk.sent() and not ready.kept:
            talk.wait(talk.protocol.wake_at - talk.now)
    assert talk.now == pytest.approx(105.0)
    assert isinstance(ready.error, Overloaded)
    tried = "fencehold://one:1 opened no session within 5 s"
    assert str(ready.error) == f"the service is busy: too much waits for the journal; {tried}"
    talk.carry_out()
    assert talk.connected_to == ALONE[0]


def test_a_session_is_taken_up_again_when_the_node_has_time() -> None:
    """Trust counts from the asking that was answered, and is no longer for the waiting."""
    talk = opened()
    grant = talk.hold(1)
    ends_at = talk.now + grant.safe_for(talk.now)
    talk.lose_connection()
    while talk.connected_to is None:
        talk.wait(talk.protocol.wake_at - talk.now)
        talk.carry_out()
    talk.greet()
    talk.fail(BUSY)
    assert talk.now + grant.safe_for(talk.now) == pytest.approx(ends_at)
    talk.wait(REST_S)
    assert talk.sent() == [["SESSION.RESUME", "7", "s"]]
    asked_at = talk.now
    talk.now += 0.1
    talk.opened()
    assert talk.now + grant.safe_for(talk.now) == pytest.approx(asked_at + 30 - 0.605)
    assert grant.state(talk.now) is State.HELD


def test_a_node_that_has_no_time_to_greet_is_tried_again_later() -> None:
    """Not before the time that it told."""
    talk = Talk(nodes=ALONE)
    ready = Slot()
    talk.protocol.ready(ready, talk.now)
    talk.carry_out()
    talk.protocol.on_connected(talk.now)
    talk.sent()
    talk.fail(BUSY)
    talk.carry_out()
    assert talk.connected_to is None
    talk.wait(REST_S)
    talk.greet()
    talk.opened()
    assert ready.kept


# Keeping, giving back, withdrawing.


@pytest.mark.guarantee("G7")
def test_a_keep_alive_is_repeated_soon_and_trust_is_no_longer_for_it() -> None:
    """Trust counts from the one that was answered."""
    talk = opened()
    grant = talk.hold(1)
    ends_at = talk.now + grant.safe_for(talk.now)
    talk.wait(10)
    assert talk.sent() == [["SESSION.KEEPALIVE"]]
    talk.fail(BUSY)
    talk.wait(REST_S)
    assert talk.sent() == [["SESSION.KEEPALIVE"]]
    assert talk.now + grant.safe_for(talk.now) == pytest.approx(ends_at)
    asked_at = talk.now
    talk.reply({"at": talk.at_ms, "ttl_ms": 30_000})
    assert talk.now + grant.safe_for(talk.now) == pytest.approx(asked_at + 30 - 0.605)


@pytest.mark.guarantee("G7")
def test_a_session_that_no_keep_alive_gets_in_for_is_lost_in_time() -> None:
    """Asked again and again, never further apart than a ninth of the ttl; then the client stops trusting first."""
    talk = opened()
    grant = talk.hold(1)
    beats = 0
    while grant.state(talk.now) is not State.LOST:
        talk.wait(talk.protocol.wake_at - talk.now)
        for _ in [words for words in talk.sent() if words[0] == "SESSION.KEEPALIVE"]:
            beats += 1
            talk.fail("BUSY 3600000 no room")
    assert beats > 4
    assert talk.now == pytest.approx(130 - 0.605)


def test_a_release_is_asked_again_and_its_caller_told_within_the_connect_timeout() -> None:
    """The names are freed all the same, as soon as the service has time."""
    talk = opened()
    grant = talk.hold(1)
    slot = Slot()
    talk.protocol.release(grant, slot, talk.now)
    talk.sent()
    talk.fail("BUSY 3000 no room")
    talk.wait(4.5)
    assert talk.sent()[0][:3] == ["LOCK.RELEASE", "a", "1"]
    talk.fail("BUSY 3000 no room")
    talk.wait(0.5)
    assert isinstance(slot.error, Overloaded)
    assert talk.sent() == []
    talk.wait(7.5)
    assert [words[0] for words in talk.sent()] == ["SESSION.KEEPALIVE", "LOCK.RELEASE"]
    talk.reply({"at": talk.at_ms, "ttl_ms": 30_000}, "OK")
    talk.wait(5)
    assert talk.sent() == []


def test_an_extension_that_is_not_taken_in_time_is_as_if_not_asked() -> None:
    """The hold ends when it would have ended."""
    talk = opened()
    grant = talk.hold(1, ttl_ms=20_000)
    ends_at = talk.now + grant.safe_for(talk.now)
    slot = Slot()
    talk.protocol.extend(grant, 10_000, slot, talk.now)
    assert talk.now + grant.safe_for(talk.now) < ends_at
    talk.fail("BUSY 60000 no room")
    talk.wait(5)
    assert isinstance(slot.error, Overloaded)
    assert talk.now + grant.safe_for(talk.now) == pytest.approx(ends_at)


def test_an_extension_that_is_taken_later_counts_from_its_asking() -> None:
    """What the server grants later lasts longer there, never here."""
    talk = opened()
    grant = talk.hold(1, ttl_ms=20_000)
    slot = Slot()
    talk.protocol.extend(grant, 60_000, slot, talk.now)
    talk.sent()
    talk.fail(BUSY)
    talk.wait(REST_S)
    assert talk.sent()[0][:4] == ["LOCK.EXTEND", "a", "1", "60000"]
    talk.reply({"at": talk.at_ms, "ttl_ms": 60_000, "own_ttl": 1})
    assert slot.kept
    assert slot.error is None


def test_a_question_is_asked_again_within_the_connect_timeout() -> None:
    """Who holds a name is worth a second question."""
    talk = opened()
    slot = Slot()
    talk.protocol.read(b"*1\r\n$4\r\nINFO\r\n", slot, talk.now)
    talk.sent()
    talk.fail(BUSY)
    talk.wait(REST_S)
    assert talk.sent() == [["INFO"]]
    talk.reply("fine")
    assert slot.result == b"fine"


@pytest.mark.guarantee("G9")
def test_a_withdrawal_that_is_told_busy_is_repeated_until_it_is_answered() -> None:
    """What may have been granted is not acknowledged before: the server would have nothing left to undo."""
    talk = opened()
    request, _ = talk.ask(at_least=60)
    talk.sent()
    talk.protocol.withdraw(request, talk.now)
    assert talk.sent() == [["LOCK.CANCEL", "1"]]
    talk.reply(talk.grant(3))
    talk.ask("b")
    assert talk.sent()[0][-2:] == ["ANSWERED", "0"]
    talk.fail(BUSY)
    talk.reply(talk.grant(4))
    talk.wait(REST_S)
    assert talk.sent() == [["LOCK.CANCEL", "1"]]
    talk.reply("OK")
    talk.ask("c")
    assert talk.sent()[0][-2:] == ["ANSWERED", "2"]


def test_a_settlement_that_is_told_busy_is_not_repeated_with_every_answer() -> None:
    """Many answers that arrive meanwhile are settled in one command."""
    talk = opened()
    for request in range(1, 201):
        talk.ask(f"n{request}")
        talk.reply({"queued": request, "ahead": 0})
        talk.push("timeout", request)
        for words in [words for words in talk.sent() if words[0] == "LOCK.SETTLE"]:
            assert len(words) == 65
            talk.fail(BUSY)
    assert len(talk.protocol.session.unsettled) == 200
    talk.wait(10)
    assert [len(words) for words in talk.sent() if words[0] == "LOCK.SETTLE"] == [201]


def test_what_is_watched_is_asked_for_until_it_is_heard() -> None:
    """A watch that outlived its connection does not go deaf because the next node was busy."""
    talk = opened()
    talk.protocol.subscriptions = lambda: [b"*2\r\n$10\r\nLOCK.WATCH\r\n$1\r\na\r\n"]
    talk.lose_connection()
    assert talk.resume() == [["LOCK.WATCH", "a"]]
    talk.fail(BUSY)
    talk.wait(REST_S)
    assert talk.sent() == [["LOCK.WATCH", "a"]]


def test_a_name_that_is_not_taken_back_yet_is_no_deadlock_for_who_gave_it() -> None:
    """Its release was told BUSY, and the acquire that followed was not: both are asked again."""
    talk = opened()
    grant = talk.hold(1)
    talk.protocol.release(grant, None, talk.now)
    _, slot = talk.ask()
    talk.sent()
    talk.fail(BUSY)
    link = '{"session": 7, "owner": "task", "name": "a", "fence": 1, "since_ms_ago": 9}'
    talk.fail(f'DEADLOCK {{"circle": [{link}]}}')
    assert not slot.kept
    talk.wait(REST_S)
    assert {words[0] for words in talk.sent()} == {"LOCK.RELEASE", "LOCK.ACQUIRE"}
