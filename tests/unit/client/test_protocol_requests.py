"""Laws 4, 5, 6 and 9 of the session protocol: every request ends, is done once, and leaves nothing behind."""

import pytest

from fencehold.client.protocol.connection import WINDOW
from fencehold.client.protocol.requests import Promise
from fencehold.errors import (
    Deadlock,
    HoldLost,
    LimitExceeded,
    NotOwner,
    OutcomeUnknown,
    PermissionDenied,
    QueueFull,
    SessionExpired,
    Unavailable,
    UsageError,
)
from fencehold.locks.trust import State
from tests.unit.client.talk import Slot, Talk


def test_an_acquire_says_what_it_wants() -> None:
    """Every acquire is asynchronous, numbered, and says who asks and which answers have arrived."""
    talk = Talk()
    talk.open()
    talk.ask("a", timeout=1.5, ttl=20, shared=True, delay=0.25, meta={"k": 1})
    (words,) = talk.sent()
    assert words[:3] == ["LOCK.ACQUIRE", "a", "ASYNC"]
    assert words[3:11] == ["WAIT", "1500", "TTL", "20000", "DELAY", "250", "META", '{"k":1}']
    assert words[11:] == ["MODE", "S", "OWNER", "task", "REQUEST", "1", "ANSWERED", "0"]
    talk.ask("b", timeout=0, at_least=60)
    assert talk.sent()[0][2:7] == ["ASYNC", "WAIT", "0", "ATLEAST", "60000"]


def test_answers_that_arrived_are_acknowledged() -> None:
    """Each request carries the id up to which direct replies have come in."""
    talk = Talk()
    talk.open()
    for _ in range(3):
        talk.ask()
    talk.sent()
    talk.reply(talk.grant(1), None)
    talk.ask()
    assert talk.sent()[0][-4:] == ["REQUEST", "4", "ANSWERED", "2"]


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("QUEUEFULL 1000 wait", QueueFull),
        ("LIMIT too long", LimitExceeded),
        ("USAGE bad", UsageError),
        ("ERR what", UsageError),
        ('DEADLOCK {"circle": []}', Deadlock),
    ],
)
def test_a_refusal_says_what_it_is(message: str, kind: type[Exception]) -> None:
    """Each code of the protocol is an error of its own kind."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    talk.fail(message)
    assert isinstance(slot.error, kind)


def test_a_deadlock_names_its_circle() -> None:
    """The error carries who waits for what, as the server found it."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    link = '{"session": 7, "owner": "t", "name": "b", "fence": 3, "since_ms_ago": 9}'
    talk.fail(f'DEADLOCK {{"circle": [{link}]}}')
    assert isinstance(slot.error, Deadlock)
    assert slot.error.circle[0].name == "b"
    assert "already holds 'b' (fence 3): use client.rlock()" in str(slot.error)


def test_a_queued_acquire_is_answered_by_a_push_and_settled() -> None:
    """The push brings the grant; with the next keep-alive the server is told to forget it."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    talk.reply({"queued": 1, "ahead": 0})
    assert not slot.kept
    talk.push("grant", 1, talk.grant(4))
    assert slot.result.fence == 4
    talk.sent()
    talk.wait(11)
    assert talk.sent() == [["SESSION.KEEPALIVE"], ["LOCK.SETTLE", "1"]]


@pytest.mark.guarantee("G9")
def test_a_push_that_overtakes_the_reply_of_its_own_acquire_counts() -> None:
    """The reply that says queued may be held back behind another; the grant pushed before it is not lost."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    talk.sent()
    talk.push("grant", 1, talk.grant(4))
    assert slot.result.fence == 4
    talk.reply({"queued": 7, "ahead": 0})
    assert not talk.protocol.session.waiting
    assert slot.result.fence == 4


def test_many_pushed_answers_are_settled_without_waiting() -> None:
    """The server need not remember more than some dozens of answers that have arrived."""
    talk = Talk()
    talk.open()
    for request in range(1, 65):
        talk.ask(f"n{request}")
        talk.reply({"queued": request, "ahead": 0})
        talk.push("timeout", request)
    assert talk.sent()[-1] == ["LOCK.SETTLE", *map(str, range(1, 65))]


@pytest.mark.guarantee("G9")
def test_a_push_that_was_lost_is_asked_for_again() -> None:
    """A queued acquire is repeated after a reconnect, and the answer it gets then is settled, too."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask(timeout=20)
    talk.reply({"queued": 1, "ahead": 0})
    talk.sent()
    talk.lose_connection()
    (words,) = talk.resume()
    assert words[0] == "LOCK.ACQUIRE"
    assert words[-4:] == ["REQUEST", "1", "ANSWERED", "1"]
    talk.reply(talk.grant(9))
    assert slot.result.fence == 9
    talk.wait(11)
    assert ["LOCK.SETTLE", "1"] in talk.sent()


def test_a_push_that_overtakes_the_repetition_counts_once() -> None:
    """An answer may be pushed to the new connection before the repeated acquire is replied to."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    talk.reply({"queued": 1, "ahead": 0})
    talk.lose_connection()
    talk.resume()
    talk.push("grant", 1, talk.grant(9))
    talk.reply(talk.grant(9))
    assert slot.result.fence == 9
    assert list(talk.protocol.session.holds) == [9]


@pytest.mark.guarantee("G9")
def test_what_was_not_answered_is_repeated_in_the_order_of_ids() -> None:
    """After a reconnect every unanswered request goes out again under its own id, before anything new."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.ask("queued")
    talk.reply({"queued": 1, "ahead": 0})
    talk.protocol.release(grant, Slot(), talk.now)
    talk.ask("third")
    talk.lose_connection()
    talk.ask("new")
    words = talk.resume()
    assert [(w[0], w[1]) for w in words] == [
        ("LOCK.ACQUIRE", "queued"),
        ("LOCK.RELEASE", "a"),
        ("LOCK.ACQUIRE", "third"),
        ("LOCK.ACQUIRE", "new"),
    ]
    assert [w[w.index("REQUEST") + 1] for w in words] == ["2", "3", "4", "5"]


def test_a_repeated_wait_is_shorter_by_what_was_waited() -> None:
    """One deadline over all tries: time spent on reconnecting is not waited again."""
    talk = Talk()
    talk.open()
    talk.ask(timeout=10)
    talk.sent()
    talk.wait(3)
    talk.lose_connection()
    talk.now += 1
    (words,) = talk.resume()
    assert int(words[words.index("WAIT") + 1]) <= 6_000


@pytest.mark.guarantee("G9")
def test_a_request_that_was_sent_and_not_answered_is_unknown() -> None:
    """When the service cannot be reached again, the caller is told that it may have happened."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    released, extended, read = Slot(), Slot(), Slot()
    talk.protocol.extend(grant, 5_000, extended, talk.now)
    talk.protocol.release(grant, released, talk.now)
    talk.protocol.read(b"*1\r\n$4\r\nPING\r\n", read, talk.now)
    _, asked = talk.ask("b")
    talk.sent()
    talk.lose_connection()
    talk.wait(5.1)
    assert isinstance(asked.error, OutcomeUnknown)
    assert isinstance(released.error, OutcomeUnknown)
    assert isinstance(extended.error, OutcomeUnknown)
    assert isinstance(read.error, Unavailable)
    # The acquire is withdrawn and the release done as soon as the service is back.
    talk.carry_out()
    words = talk.resume()
    assert [w[0] for w in words] == ["LOCK.CANCEL", "LOCK.RELEASE"]


def test_waiting_for_a_service_that_is_away_is_not_busy() -> None:
    """The timer is never due in the past, even with a release left to be repeated."""
    talk = Talk()
    talk.open()
    talk.protocol.release(talk.hold(), Slot(), talk.now)
    talk.lose_connection()
    for _ in range(40):
        talk.wait(1)
        talk.carry_out()
        if talk.connected_to:
            talk.lose_connection()
        assert talk.protocol.wake_at > talk.now - 1e-9


def test_withdrawn_before_it_was_sent() -> None:
    """An acquire that was given up before a connection stood is never sent."""
    talk = Talk()
    request, _ = talk.ask()
    talk.protocol.withdraw(request, talk.now)
    talk.greet()
    talk.opened()
    assert talk.sent() == []


def test_withdrawn_before_its_reply() -> None:
    """An acquire given up on the wire is cancelled, and the grant that crosses the cancel is not kept."""
    talk = Talk()
    talk.open()
    request, slot = talk.ask()
    talk.protocol.withdraw(request, talk.now)
    assert talk.sent()[-1] == ["LOCK.CANCEL", "1"]
    talk.reply(talk.grant(1), "OK")
    assert not slot.kept
    assert talk.protocol.session.holds == {}


def test_withdrawn_while_queued() -> None:
    """A queued acquire given up is cancelled; the push that crosses the cancel is not settled before its reply."""
    talk = Talk()
    talk.open()
    request, slot = talk.ask()
    talk.reply({"queued": 1, "ahead": 0})
    talk.sent()
    talk.protocol.withdraw(request, talk.now)
    assert talk.sent() == [["LOCK.CANCEL", "1"]]
    talk.push("grant", 1, talk.grant(1))
    assert talk.protocol.session.unsettled == []
    talk.reply("OK")
    assert talk.protocol.session.unsettled == [1]
    assert not slot.kept
    assert talk.protocol.session.holds == {}


def test_withdrawn_after_it_was_granted() -> None:
    """An acquire given up after its grant arrived is released by its fence."""
    talk = Talk()
    talk.open()
    request, _ = talk.ask()
    talk.sent()
    talk.reply(talk.grant(6))
    talk.protocol.withdraw(request, talk.now)
    assert talk.sent() == [["LOCK.RELEASE", "a", "6", "REQUEST", "2", "ANSWERED", "1"]]


def test_a_grant_that_nobody_waits_for_goes_back() -> None:
    """If the promise was given up when the grant arrives, the names are released at once."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    slot.kept = True
    talk.sent()
    talk.reply(talk.grant(6))
    assert talk.sent()[0][:3] == ["LOCK.RELEASE", "a", "6"]


@pytest.mark.parametrize("is_pushed", [False, True])
def test_a_grant_that_nobody_heard_of_keeps_its_name_for_no_least_time(is_pushed: bool) -> None:
    """A release would keep it; to withdraw the acquire says that nothing was done under it."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask(at_least=60)
    slot.kept = True
    talk.sent()
    if is_pushed:
        talk.reply({"queued": 1, "ahead": 0})
        talk.push("grant", 1, talk.grant(6))
    else:
        talk.reply(talk.grant(6))
    assert talk.sent() == [["LOCK.CANCEL", "1"]]
    assert talk.protocol.session.holds == {}
    talk.lose_connection()
    assert talk.resume() == [["LOCK.CANCEL", "1"]]
    talk.reply("OK")
    assert talk.sent() == []
    assert talk.protocol.session.cancels == {}


def test_a_grant_that_was_acknowledged_and_given_up_is_released() -> None:
    """What the server cannot undo any more is given back, and its name is kept."""
    talk = Talk()
    talk.open()
    request, _ = talk.ask(at_least=60)
    talk.reply(talk.grant(6))
    talk.ask("b")
    talk.reply(None)
    talk.sent()
    talk.protocol.withdraw(request, talk.now)
    assert talk.sent() == [["LOCK.CANCEL", "1"]]
    talk.fail("USAGE request 1 was acknowledged: release what it was granted")
    assert talk.sent() == [["LOCK.RELEASE", "a", "6", "REQUEST", "3", "ANSWERED", "2"]]
    assert talk.protocol.session.cancels == {}


def test_a_withdrawal_is_repeated_until_it_is_answered() -> None:
    """A cancel that was on a lost connection goes out first on the next, and the acquire not at all."""
    talk = Talk()
    talk.open()
    request, _ = talk.ask()
    talk.protocol.withdraw(request, talk.now)
    talk.ask("b")
    talk.sent()
    talk.lose_connection()
    words = talk.resume()
    assert [w[:2] for w in words] == [["LOCK.CANCEL", "1"], ["LOCK.ACQUIRE", "b"]]
    talk.fail("USAGE it was acknowledged")
    assert talk.protocol.session.cancels == {}


def test_what_was_asked_before_the_client_was_shut_out_does_not_stay_behind() -> None:
    """Who waited is told, and should the session be taken up again, nothing is granted to nobody."""
    talk = Talk()
    talk.open()
    _, queued = talk.ask("a")
    talk.reply({"queued": 1, "ahead": 0, "at": talk.at_ms})
    _, sent = talk.ask("b")
    talk.sent()
    talk.lose_connection()
    _, unsent = talk.ask("c")
    _shut_out(talk)
    for slot in (queued, sent, unsent):
        assert isinstance(slot.error, PermissionDenied)
    # Somebody asks again, and is let in.
    talk.protocol.ready(Slot(), talk.now)
    assert talk.resume() == [["LOCK.CANCEL", "1"], ["LOCK.CANCEL", "2"]]
    talk.push("grant", 1, talk.grant(8))
    assert not talk.protocol.session.holds
    talk.reply("OK", "OK")
    assert not talk.protocol.session.cancels


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_release_is_made_when_a_client_that_was_shut_out_is_let_in_again(is_sent: bool) -> None:
    """The caller is told that it is not known, or that it was not done; the name is freed all the same."""
    talk = Talk()
    talk.open()
    grant, slot = talk.hold(), Slot()
    if not is_sent:
        talk.lose_connection()
    talk.protocol.release(grant, slot, talk.now)
    if is_sent:
        talk.sent()
        talk.lose_connection()
    _shut_out(talk)
    assert isinstance(slot.error, OutcomeUnknown if is_sent else PermissionDenied)
    talk.protocol.ready(Slot(), talk.now)
    assert [words[:3] for words in talk.resume()] == [["LOCK.RELEASE", "a", str(grant.fence)]]


def test_an_extension_that_was_not_made_because_the_client_was_shut_out_ends_nothing_later() -> None:
    """The hold ends as if it had not been asked for."""
    talk = Talk()
    talk.open()
    grant, slot = talk.hold(ttl_ms=6_000), Slot()
    end = grant.own_end
    talk.lose_connection()
    talk.protocol.extend(grant, 20_000, slot, talk.now)
    _shut_out(talk)
    assert isinstance(slot.error, PermissionDenied)
    assert grant.own_end == end


def _shut_out(talk: Talk) -> None:
    """The next node does not let the client take up its session."""
    talk.carry_out()
    while talk.connected_to is None:
        talk.wait(max(0.0, talk.protocol.wake_at - talk.now))
        talk.carry_out()
    talk.greet()
    talk.fail("DENIED not you")


def test_a_timeout_the_server_forgot_ends_all_the_same() -> None:
    """A queued acquire whose time is over ends by itself a little later, and is withdrawn."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask(timeout=2)
    talk.reply({"queued": 1, "ahead": 0})
    talk.sent()
    talk.wait(2.9)
    assert not slot.done()
    talk.wait(0.2)
    assert slot.done()
    assert slot.result is None
    assert ["LOCK.CANCEL", "1"] in talk.sent()


def test_requests_beyond_the_window_wait_their_turn() -> None:
    """No more than a window of requests is on the wire; each reply lets the next one out."""
    talk = Talk()
    talk.open()
    slots = [talk.ask(f"n{i}")[1] for i in range(WINDOW + 2)]
    assert len(talk.sent()) == WINDOW
    talk.reply(talk.grant(1))
    assert talk.sent()[0][1] == f"n{WINDOW}"
    talk.reply(*[talk.grant(fence) for fence in range(2, WINDOW + 1)])
    talk.reply(talk.grant(WINDOW + 1), talk.grant(WINDOW + 2))
    assert all(slot.kept for slot in slots)


@pytest.mark.parametrize(
    ("message", "kind"),
    [("NOTOWNER no", NotOwner), ("RELEASED before", NotOwner), ("EXPIRED gone", HoldLost)],
)
@pytest.mark.guarantee("G5")
def test_a_release_that_found_no_hold_says_why(message: str, kind: type[Exception]) -> None:
    """Whoever releases what is not theirs any more is told, and told why."""
    talk = Talk()
    talk.open()
    slot = Slot()
    talk.protocol.release(talk.hold(), slot, talk.now)
    talk.fail(message)
    assert isinstance(slot.error, kind)


@pytest.mark.guarantee("G9")
def test_a_release_overtaken_by_the_end_of_its_session_is_a_loss() -> None:
    """A release or extension not answered before the session ended says that the hold was lost."""
    talk = Talk()
    talk.open()
    released, extended = Slot(), Slot()
    first = talk.hold(2)
    second = talk.hold(3)
    talk.protocol.release(first, released, talk.now)
    talk.protocol.extend(second, 1_000, extended, talk.now)
    talk.fail("NOSESSION expired")
    assert isinstance(released.error, HoldLost)
    assert isinstance(extended.error, HoldLost)
    assert second.state(talk.now) is State.LOST


def test_a_promise_is_kept_once() -> None:
    """What a caller gave up is not kept, not even with an error."""
    talk = Talk()
    talk.open()
    slot: Slot = Slot()
    promise: Promise = slot
    talk.protocol.read(b"*1\r\n$4\r\nPING\r\n", promise, talk.now)
    slot.kept = True
    talk.fail("ERR no")
    assert slot.error is None


def test_acquires_in_flight_when_the_client_closes_are_refused() -> None:
    """Nothing is granted to a client that was closed; whoever waited hears that."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    talk.protocol.close(Slot(), talk.now)
    talk.reply(None, "OK")
    assert slot.kept
    talk = Talk()
    _, slot = talk.ask()
    talk.protocol.close(Slot(), talk.now)
    assert isinstance(slot.error, SessionExpired)


def test_whoever_waits_when_the_session_ends_during_a_close_is_told() -> None:
    """The session is over before the close is heard of: what was asked in it, of whatever kind, ends with it."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    read, extended = Slot(), Slot()
    talk.protocol.read(b"PING", read, talk.now)
    talk.protocol.extend(grant, 5_000, extended, talk.now)
    _, asked = talk.ask()
    closed = Slot()
    talk.protocol.close(closed, talk.now)
    talk.fail("NOSESSION session 7 has ended")
    assert closed.kept
    assert all(isinstance(slot.error, SessionExpired) for slot in (read, extended, asked))


# Holds that ended while nobody could be told.


def test_what_was_broken_while_the_connection_was_down_is_lost_when_it_is_back() -> None:
    """Holds are asked about as the session is taken up again: those that have ended are lost, no others."""
    talk = Talk()
    talk.open()
    (_, broken), (_, kept) = talk.ask(), talk.ask()
    talk.sent()
    talk.reply(talk.grant(5), talk.grant(6))
    talk.lose_connection()
    assert talk.resume(ended=(5,)) == []
    assert broken.result.state(talk.now) is State.LOST
    assert "while the connection was down" in broken.result.ending
    assert kept.result.state(talk.now) is State.HELD


def test_holds_are_asked_about_some_at_a_time_and_again_after_busy() -> None:
    """No question has more than 128 names; one told BUSY is repeated, one that is not known is not."""
    talk = Talk()
    talk.open()
    slots = [talk.ask()[1] for _ in range(130)]
    talk.sent()
    talk.reply(*(talk.grant(fence) for fence in range(1, 131)))
    talk.lose_connection()
    talk.carry_out()
    while talk.connected_to is None:
        talk.wait(max(0.0, talk.protocol.wake_at - talk.now))
        talk.carry_out()
    talk.greet()
    talk.opened()
    first, second = talk.sent()
    assert (first[0], len(first), second) == ("SESSION.HELD", 257, ["SESSION.HELD", "a", "129", "a", "130"])
    talk.fail("ERR unknown command 'SESSION.HELD'")
    talk.fail("BUSY 100 much to do")
    talk.wait(1)
    assert talk.sent() == [second]
    talk.reply([130])
    assert [slot.result.state(talk.now) for slot in slots[-2:]] == [State.HELD, State.LOST]
