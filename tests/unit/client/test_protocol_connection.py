"""Laws 2, 7 and 8 of the session protocol: one session over many connections, and what its end means."""

import pytest

from fencehold.client.protocol.connection import Phase
from fencehold.drivers.address import Endpoint
from fencehold.errors import PermissionDenied, SessionExpired, Unavailable, UsageError
from fencehold.locks.trust import State
from tests.unit.client.talk import NODES, Slot, Talk


def test_a_session_is_opened_when_something_is_asked() -> None:
    """Nothing connects until a request wants it; then greeting and opening travel together."""
    talk = Talk()
    assert talk.protocol.connection.phase is Phase.IDLE
    slot = Slot()
    talk.protocol.ready(slot, talk.now)
    assert talk.greet() == [["HELLO", "3"], ["SESSION.OPEN", "TTL", "30000", "GRACE", "1000"]]
    assert not slot.kept
    talk.opened()
    assert slot.kept


def test_one_keep_alive_serves_all_holds() -> None:
    """A keep-alive goes out every third of the ttl, however many holds there are."""
    talk = Talk()
    talk.open()
    for fence in range(1, 6):
        talk.hold(fence)
    talk.wait(9.9)
    assert talk.sent() == []
    talk.wait(0.2)
    assert talk.sent() == [["SESSION.KEEPALIVE"]]


def test_a_lost_connection_is_replaced_and_the_session_resumed() -> None:
    """After a connection is lost the client reconnects by itself and takes its session up again."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.lose_connection()
    assert grant.state(talk.now) is State.JEOPARDY
    assert talk.resume() == []
    assert grant.state(talk.now) is State.HELD


def test_nodes_are_tried_in_turn() -> None:
    """All nodes are tried before any is waited for, and pauses grow from round to round."""
    talk = Talk()
    talk.protocol.ready(Slot(), talk.now)
    tried, pauses = [], []
    for _ in range(6):
        talk.carry_out()
        tried.append(talk.connected_to)
        talk.lose_connection()
        pauses.append(talk.protocol.wake_at - talk.now)
        talk.wait(max(0.0, pauses[-1]))
    assert tried == [*NODES] * 3
    assert pauses[0] == pauses[2] == pauses[4] == 0
    assert 0 < pauses[1] < pauses[3] < pauses[5]


def test_a_node_that_does_not_lead_says_who_does() -> None:
    """The address in a NOTLEADER error is where the client goes next, even if it was not in its list."""
    talk = Talk()
    talk.protocol.ready(Slot(), talk.now)
    talk.greet()
    talk.fail("NOTLEADER three:3")
    talk.carry_out()
    talk.wait(0.1)
    talk.carry_out()
    assert talk.connected_to == Endpoint("three", 3)


@pytest.mark.parametrize("code", ["NOTLEADER", "UNAVAILABLE the journal is away", "UNKNOWN lost"])
@pytest.mark.guarantee("G9")
def test_an_answer_that_is_none_leads_to_a_repetition_elsewhere(code: str) -> None:
    """A request answered with "not here" or "don't know" is repeated under its id on the next connection."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    first = talk.sent()
    talk.fail(code)
    assert not slot.kept
    assert talk.resume() == first
    talk.reply(talk.grant(1))
    assert slot.result.fence == 1


def test_a_silent_connection_is_parked_until_the_session_is_resumed() -> None:
    """A connection that says nothing is turned away from but not closed: closing it would cost the session."""
    talk = Talk()
    talk.open()
    _, slot = talk.ask()
    talk.wait(1.6)
    talk.carry_out()
    assert (talk.parked, talk.connected_to) == (0, NODES[0])
    talk.wait(0.9)
    talk.carry_out()
    assert (talk.parked, talk.closed) == (1, 0)
    # It may be stopped, so it is not the first to be tried again.
    assert talk.connected_to == NODES[1]
    talk.resume()
    assert talk.parked == 0
    talk.reply(talk.grant(1))
    assert slot.result.fence == 1


def test_a_leader_that_waited_for_its_journal_is_gone_back_to_at_once() -> None:
    """It was silent for a turn; another node has heard of it, and says that it leads."""
    talk = Talk(nodes=(*NODES, Endpoint("three", 3)))
    talk.open()
    _, slot = talk.ask()
    talk.wait(1.3)
    talk.greet()
    assert talk.connected_to == NODES[1]
    talk.fail("NOTLEADER this node stands by; ask one:1")
    talk.wait(0.0)
    talk.carry_out()
    assert talk.connected_to == NODES[0]
    talk.resume()
    talk.reply(talk.grant(1))
    assert slot.result.fence == 1


@pytest.mark.parametrize("answer_s", [0.0, 0.5, 1.2])
def test_a_leader_that_nobody_has_heard_of_is_asked_again_however_slow_the_others_are(answer_s: float) -> None:
    """It was silent for a turn; the others take their time to say that they do not know who leads."""
    talk = Talk(nodes=(*NODES, Endpoint("three", 3)))
    talk.open()
    talk.ask()
    talk.wait(1.3)
    silent_at = talk.now
    talk.carry_out()
    while talk.connected_to != NODES[0]:
        talk.greet()
        talk.wait(answer_s)
        talk.fail("UNAVAILABLE the leader was not heard of for a while")
        talk.carry_out()
        while talk.connected_to is None:
            talk.wait(max(0.0, talk.protocol.wake_at - talk.now))
            talk.carry_out()
    assert talk.now < silent_at + 1.0 + 2 * answer_s + 1.0


@pytest.mark.parametrize("moment_s", [0.0, 0.3, 0.7, 1.2, 1.6])
def test_silence_is_noticed_when_it_has_lasted_its_time_and_no_later(moment_s: float) -> None:
    """Whenever a node falls silent, the next one is tried when its turn of a third of the timeout is over."""
    talk = Talk()
    talk.open()
    talk.wait(moment_s)
    talk.ask()
    talk.wait(5 / 3 - 0.01)
    talk.carry_out()
    assert talk.connected_to == NODES[0]
    talk.wait(0.02)
    talk.carry_out()
    assert talk.connected_to == NODES[1]


def test_an_attempt_that_hangs_is_given_up() -> None:
    """A node that neither accepts nor refuses does not keep the client from trying the next."""
    talk = Talk()
    talk.protocol.ready(Slot(), talk.now)
    talk.carry_out()
    assert talk.connected_to == NODES[0]
    talk.wait(1.8)
    talk.carry_out()
    assert talk.connected_to == NODES[1]


@pytest.mark.guarantee("G9")
def test_a_request_that_was_never_sent_is_unavailable() -> None:
    """When no node is reached within the connect timeout, certainly nothing happened."""
    talk = Talk()
    _, slot = talk.ask()
    talk.lose_connection()
    talk.wait(4.9)
    assert not slot.kept
    talk.wait(0.2)
    assert isinstance(slot.error, Unavailable)


def test_a_refused_session_fails_whoever_waits_for_it() -> None:
    """Where trying again will not help, nobody is kept waiting, and the next request tries anew."""
    talk = Talk()
    _, slot = talk.ask()
    talk.greet()
    talk.fail("DENIED not you")
    talk.carry_out()
    assert isinstance(slot.error, PermissionDenied)
    assert talk.connected_to is None
    talk.ask()
    talk.carry_out()
    assert talk.connected_to is not None


@pytest.mark.guarantee("G6")
def test_the_end_of_a_session_takes_everything_with_it() -> None:
    """Its holds are lost and what it had queued fails; what was not answered is asked again in a new session."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    _, queued = talk.ask("queued")
    talk.reply({"queued": 1, "ahead": 0})
    _, unanswered = talk.ask("unanswered")
    talk.push("ended", 7, "expired")
    assert grant.state(talk.now) is State.LOST
    assert isinstance(queued.error, SessionExpired)
    assert not unanswered.kept
    talk.session = 8
    assert talk.greet()[1][0] == "SESSION.OPEN"
    talk.opened()
    (again,) = talk.sent()
    assert again[:2] == ["LOCK.ACQUIRE", "unanswered"]
    assert again[-4:] == ["REQUEST", "1", "ANSWERED", "0"]


def test_a_session_that_ended_meanwhile_is_followed_by_a_new_one() -> None:
    """A resume that finds no session opens another on the same connection."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.lose_connection()
    talk.wait(0.1)
    talk.greet()
    talk.fail("NOSESSION it ended")
    assert grant.state(talk.now) is State.LOST
    assert talk.sent()[0][0] == "SESSION.OPEN"
    talk.session = 8
    talk.opened()
    assert talk.hold(5).state(talk.now) is State.HELD


def test_an_end_told_of_another_session_is_not_ours() -> None:
    """A push about a session that is over already changes nothing in the next."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.push("ended", 6, "expired")
    assert grant.state(talk.now) is State.HELD


def test_closing_ends_the_session_and_all_that_waits() -> None:
    """A close is answered when the session is ended; then nothing is held, nothing wanted, nothing possible."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    _, queued = talk.ask("b")
    talk.reply({"queued": 1, "ahead": 0})
    closed = Slot()
    talk.protocol.close(closed, talk.now)
    assert talk.sent()[-1] == ["SESSION.CLOSE"]
    talk.reply("OK")
    assert closed.kept
    assert grant.state(talk.now) is State.LOST
    assert isinstance(queued.error, SessionExpired)
    talk.carry_out()
    assert talk.connected_to is None
    assert talk.protocol.wake_at > talk.now
    with pytest.raises(UsageError, match="closed"):
        talk.ask()


def test_closing_without_a_service_takes_no_longer_than_reaching_it() -> None:
    """A close gives up after the connect timeout; the session then ends by itself at the server."""
    talk = Talk()
    talk.open()
    talk.lose_connection()
    closed = Slot()
    talk.protocol.close(closed, talk.now)
    talk.wait(4.9)
    assert not closed.kept
    talk.wait(0.2)
    assert closed.kept


def test_garbage_on_the_wire_ends_the_connection_not_the_session() -> None:
    """Bytes that are no reply make the client turn to another connection."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.protocol.on_data(b"garbage\r\n", talk.now)
    assert not talk.protocol.attached
    talk.resume()
    assert grant.state(talk.now) is State.HELD


def test_a_child_process_inherits_nothing() -> None:
    """After a fork the child's copy holds nothing, asks nothing, and tells nobody."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    told: list[object] = []
    grant.on_lost = told.append
    talk.protocol.on_forked()
    assert grant.state(talk.now) is State.LOST
    assert talk.sent() == []
    assert told == []
    with pytest.raises(UsageError, match="fork"):
        talk.ask()


@pytest.mark.parametrize(("code", "parked"), [("NOTLEADER", 0), ("UNAVAILABLE stopping", 0), ("UNKNOWN lost", 1)])
def test_a_connection_that_refused_the_session_is_closed(code: str, parked: int) -> None:
    """Only a connection that may carry the session is parked; one that said no is closed at once."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.lose_connection()
    talk.wait(0.1)
    talk.greet()
    talk.fail(code)
    talk.carry_out()
    assert (talk.parked, talk.closed) == (parked, 1 - parked)
    assert grant.state(talk.now) is State.JEOPARDY


def test_a_last_word_that_nobody_asked_for_is_no_reply() -> None:
    """A server that ends the connection may say why when nothing was asked: the session is taken up elsewhere."""
    talk = Talk()
    talk.open()
    grant = talk.hold()
    talk.fail("NOSESSION session 7 was resumed by another connection")
    assert grant.state(talk.now) is State.JEOPARDY
    talk.resume()
    assert grant.state(talk.now) is State.HELD


def test_whoever_closes_a_client_that_is_being_closed_waits_with_the_first() -> None:
    """Two closes are one: both end when the session has ended, and a third ends at once."""
    talk = Talk()
    talk.open()
    closers = [Slot(), Slot(), Slot()]
    talk.protocol.close(closers[0], talk.now)
    talk.protocol.close(closers[1], talk.now)
    assert talk.sent() == [["SESSION.CLOSE"]]
    talk.reply("OK")
    talk.protocol.close(closers[2], talk.now)
    assert all(closer.kept for closer in closers)


def test_a_connection_that_is_left_as_its_session_ended_was_not_silent() -> None:
    """The reason that the log is told is the session's end."""
    talk = Talk()
    talk.open()
    talk.push("ended", talk.protocol.session.id, "expired")
    assert talk.protocol.connection.trouble == "the session was expired"
