"""Each kind of trouble does what its name says, and no more."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import fencehold
from fencehold import Client, HoldLost, State, Unavailable, UsageError
from fencehold.testing import Service
from fencehold.testing.clients import driver_of


def session_of(client: Client) -> int:
    return driver_of(client).protocol.session.id


def test_an_expired_hold_is_lost(fencehold_service: Service, fencehold_client: Client) -> None:
    """Its holder is told at once, and the name is free."""
    hold = fencehold_client.lock("orders").acquire()
    assert hold is not None
    fencehold_service.expire(hold)
    assert hold.lost.is_set()
    assert "expired" in hold.lost.reason
    with pytest.raises(HoldLost):
        hold.check()
    assert [held.ending for held in fencehold_service.history("orders")] == ["expired"]
    with pytest.raises(UsageError, match="is not held with fence"):
        fencehold_service.expire(hold)


def test_a_hold_of_several_names_expires_whole(fencehold_service: Service, fencehold_client: Client) -> None:
    """One of its names is not left behind."""
    hold = fencehold_client.multi(["orders", "stock"]).acquire()
    assert hold is not None
    fencehold_service.expire(hold)
    assert hold.lost.is_set()
    assert fencehold_service.holders("orders") == fencehold_service.holders("stock") == ()


def test_a_broken_hold_is_lost(fencehold_service: Service, fencehold_client: Client) -> None:
    """An operator takes the name, and gets a fence above the holder's."""
    hold = fencehold_client.lock("orders").acquire()
    assert hold is not None
    assert fencehold_service.break_hold("orders") > hold.fence
    assert "force-released" in hold.lost.reason


def test_a_paused_client_loses_its_session(fencehold_service: Service) -> None:
    """It wakes up to find its hold lost, and works on with a new session."""
    sleeper, other = fencehold_service.connect(), fencehold_service.connect()
    hold = sleeper.lock("orders").acquire()
    assert hold is not None
    with fencehold_service.pause(sleeper):
        fencehold_service.advance(40)
        assert not hold.lost.is_set(), "a stopped process notices nothing"
        with other.lock("orders", timeout=0) as next_one:
            assert next_one.fence > hold.fence
    assert hold.lost.is_set()
    with sleeper.lock("orders", timeout=0) as again:
        assert again.fence > next_one.fence
    fencehold_service.assert_no_overlap()


def test_a_paused_client_is_woken_after_some_seconds(fencehold_service: Service, fencehold_client: Client) -> None:
    """A pause shorter than the ttl costs nothing, a longer one the session."""
    hold = fencehold_client.lock("orders").acquire()
    assert hold is not None
    fencehold_service.pause(fencehold_client, for_=15)
    assert hold.state is State.HELD
    fencehold_service.pause(fencehold_client, for_=40)
    assert hold.lost.is_set()


def test_what_is_asked_of_a_paused_client_waits(fencehold_service: Service, fencehold_client: Client) -> None:
    """Nothing goes out while it is stopped."""
    with ThreadPoolExecutor(1) as pool:
        with fencehold_service.pause(fencehold_client):
            asked = pool.submit(fencehold_client.lock("orders").acquire)
            fencehold_service.advance(1)
            assert not asked.done()
            assert fencehold_service.holders("orders") == ()
        hold = asked.result(5)
    assert hold is not None
    hold.release()


def test_only_the_client_that_was_named_is_paused(fencehold_service: Service) -> None:
    """A client that the application made is found by its name."""
    with (
        fencehold.connect(fencehold_service.url, name="sleeper") as sleeper,
        fencehold.connect(fencehold_service.url, name="other") as other,
    ):
        lost = sleeper.lock("orders").acquire()
        assert lost is not None
        with other.lock("stock") as kept:
            fencehold_service.pause("sleeper", for_=40)
            kept.check()
        assert lost.state is State.LOST
        with pytest.raises(UsageError, match="0 clients"):
            fencehold_service.pause("nobody")


def test_a_partition_is_noticed_by_the_client_first(fencehold_service: Service) -> None:
    """A holder that is cut off lets go before the name is given to another."""
    cut_off, other = fencehold_service.connect(), fencehold_service.connect()
    hold = cut_off.lock("orders").acquire()
    assert hold is not None
    with fencehold_service.partition(cut_off):
        fencehold_service.advance(20)
        assert hold.state is State.JEOPARDY
        assert other.lock("orders").acquire(timeout=0) is None
        fencehold_service.advance(20)
        assert hold.lost.is_set()
        with other.lock("orders", timeout=0):
            pass
    with cut_off.lock("orders", timeout=0):
        pass
    fencehold_service.assert_no_overlap()


def test_a_short_partition_costs_nothing(fencehold_service: Service, fencehold_client: Client) -> None:
    """The session is taken up again when the network is back, however often the client tried meanwhile."""
    session = session_of(fencehold_client)
    with fencehold_client.lock("orders") as hold:
        with fencehold_service.partition():
            fencehold_service.advance(19)
            hold.check()
        assert hold.state is State.HELD
        assert session_of(fencehold_client) == session


def test_nobody_is_reached_in_a_partition_of_all(fencehold_service: Service) -> None:
    """New clients, too, find nobody."""
    with fencehold_service.partition(), pytest.raises(Unavailable):
        fencehold.connect(fencehold_service.url, connect_timeout=0.05)


def _drop(service: Service, client: Client) -> None:
    service.drop_connections(client)


def _drop_all(service: Service, _: Client) -> None:
    service.drop_connections()


def _restart(service: Service, _: Client) -> None:
    service.restart()


@pytest.mark.parametrize("trouble", [_drop, _drop_all, _restart])
def test_a_blip_or_a_restart_loses_nothing(
    fencehold_service: Service, fencehold_client: Client, trouble: Callable[[Service, Client], None]
) -> None:
    """The session is resumed: holds stay held, and whoever waits keeps its place."""
    waiter = fencehold_service.connect()
    session = session_of(fencehold_client)
    with ThreadPoolExecutor(1) as pool:
        with fencehold_client.lock("orders") as hold:
            waiting = pool.submit(waiter.lock("orders").acquire)
            fencehold_service.until(lambda: fencehold_service.waiters("orders"))
            trouble(fencehold_service, fencehold_client)
            assert hold.state is State.HELD
            assert session_of(fencehold_client) == session
            assert len(fencehold_service.waiters("orders")) == 1
        granted = waiting.result(5)
    assert granted is not None
    granted.release()
    assert [held.ending for held in fencehold_service.history("orders")] == ["released", "released"]


def test_fences_grow_across_a_restart(fencehold_service: Service, fencehold_client: Client) -> None:
    """The journal outlives the server."""
    with fencehold_client.lock("orders") as before:
        pass
    fencehold_service.restart()
    with fencehold_client.lock("orders") as after:
        assert after.fence > before.fence


def test_what_a_killed_client_held_is_free_after_its_grace(fencehold_service: Service) -> None:
    """Not at once: it might have been a blip; but long before its ttl is over."""
    victim, heir = fencehold_service.connect(grace=2), fencehold_service.connect()
    hold = victim.lock("orders").acquire()
    assert hold is not None
    fencehold_service.kill(victim)
    fencehold_service.advance(1.5)
    assert heir.lock("orders").acquire(timeout=0) is None
    fencehold_service.advance(1)
    with heir.lock("orders", timeout=0) as next_one:
        assert next_one.fence > hold.fence
    with pytest.raises(UsageError):
        victim.lock("orders").acquire()


def test_trouble_can_be_nested(fencehold_service: Service) -> None:
    """A client is reached again when the last of what keeps it away is over."""
    client = fencehold_service.connect()
    hold = client.lock("orders").acquire()
    assert hold is not None
    with fencehold_service.partition():
        with fencehold_service.pause(client):
            fencehold_service.restart()
        fencehold_service.advance(40)
    assert hold.lost.is_set()
    with client.lock("orders", timeout=0):
        pass
