"""Time that is made to pass is like time that passes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fencehold import EFFICIENCY, Client, HoldLost, LockTimeout, State
from fencehold.testing import Service
from fencehold.testing.clients import driver_of


def sessions(client: Client) -> int:
    return driver_of(client).protocol.session.id


@pytest.mark.parametrize("ttl", [0.5, 3, 30])
def test_a_healthy_client_keeps_its_session(fencehold_service: Service, ttl: float) -> None:
    """However much time passes, keep-alives are sent in time, whatever the ttl."""
    client = fencehold_service.connect(ttl=ttl, grace=0.1)
    with client.lock("orders") as hold:
        fencehold_service.advance(10 * ttl)
        assert hold.state is State.HELD
        assert fencehold_service.holders("orders")[0].held_for >= 10 * ttl


def test_a_hold_with_a_ttl_runs_out(fencehold_service: Service, fencehold_client: Client) -> None:
    """Its holder is told, and the name is free, when time has come and not before."""
    hold = fencehold_client.lock("orders", ttl=5).acquire()
    assert hold is not None
    fencehold_service.advance(4)
    hold.check()
    fencehold_service.advance(2)
    assert hold.lost.is_set()
    assert fencehold_service.holders("orders") == ()


def test_an_extended_hold_lives_longer(fencehold_service: Service, fencehold_client: Client) -> None:
    """Extending counts from the time that was made to pass."""
    with fencehold_client.lock("orders", ttl=5) as hold:
        fencehold_service.advance(4)
        hold.extend(5)
        fencehold_service.advance(4)
        hold.check()


def test_a_wait_times_out(fencehold_service: Service) -> None:
    """A minute's wait is over in no time."""
    holder, waiter = fencehold_service.connect(), fencehold_service.connect()
    with holder.lock("orders") as hold, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.lock("orders", timeout=60).__enter__)
        fencehold_service.until(lambda: fencehold_service.waiters("orders"))
        fencehold_service.advance(59)
        assert not waiting.done()
        fencehold_service.advance(1)
        with pytest.raises(LockTimeout):
            waiting.result(5)
        hold.check()


def test_things_happen_in_their_order(fencehold_service: Service) -> None:
    """A name that becomes free before a wait is over is granted, though one call passes both instants."""
    holder, waiter = fencehold_service.connect(), fencehold_service.connect()
    first = holder.lock("orders", ttl=1).acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.lock("orders", timeout=2).acquire)
        fencehold_service.until(lambda: fencehold_service.waiters("orders"))
        fencehold_service.advance(10)
        second = waiting.result(5)
    assert first is not None
    assert second is not None
    assert first.state is State.LOST
    second.release()
    fencehold_service.assert_no_overlap()


def test_a_lock_delay_passes(fencehold_service: Service) -> None:
    """After an unclean end the name is ungranted for its delay, and then is not."""
    one, two = fencehold_service.connect(), fencehold_service.connect()
    hold = one.lock("orders", delay=10).acquire()
    assert hold is not None
    fencehold_service.expire(hold)
    assert two.lock("orders").acquire(timeout=0) is None
    fencehold_service.advance(10)
    with two.lock("orders", timeout=0):
        pass


def test_a_plain_redis_client_keeps_its_lock(fencehold_service: Service) -> None:
    """What is kept alive by its connection is so at any speed."""
    port = int(fencehold_service.url.rpartition(":")[2])
    with redis.Redis(port=port, protocol=3) as plain:
        plain.execute_command("LOCK.ACQUIRE", "orders")
        fencehold_service.advance(300)
        assert len(fencehold_service.holders("orders")) == 1


def test_the_body_is_told_at_its_end(fencehold_service: Service, fencehold_client: Client) -> None:
    """A blocking body that never asks learns of the loss when it leaves."""
    lock = fencehold_client.lock("orders", ttl=5)
    with pytest.raises(HoldLost), lock:
        fencehold_service.advance(6)


def test_a_day_passes_at_once_when_nobody_is_there(fencehold_service: Service) -> None:
    """Without sessions nothing is due, and one step is enough."""
    fencehold_service.advance(86_400)
    with fencehold_service.connect() as client, client.lock("orders", timeout=0):
        pass


def test_no_session_is_replaced_on_the_way(fencehold_service: Service) -> None:
    """Clients with different ttls share the time, and each keeps the session it began with."""
    clients = [fencehold_service.connect(ttl=ttl) for ttl in (1, 7, 30)]
    before = [sessions(client) for client in clients]
    fencehold_service.advance(31)
    assert [sessions(client) for client in clients] == before


def test_clients_come_and_go_while_time_passes(fencehold_service: Service) -> None:
    """Connecting, acquiring and releasing take no virtual time, so nothing is timed out that answers."""
    done = threading.Event()

    def work() -> int:
        rounds = 0
        while not done.is_set():
            with fencehold_service.connect(ttl=5) as client, client.lock("orders", timeout=3600) as hold:
                hold.check()
            rounds += 1
        return rounds

    with ThreadPoolExecutor(3) as pool:
        working = [pool.submit(work) for _ in range(3)]
        try:
            for _ in range(3):
                fencehold_service.advance(20)
        finally:
            done.set()
        assert all(work.result(10) for work in working)
    fencehold_service.assert_no_overlap()


def test_what_never_becomes_true_is_said_to_be_so(
    fencehold_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for the test's own threads has a bound."""
    monkeypatch.setattr("fencehold.testing.service.PATIENCE_S", 0.01)
    with pytest.raises(TimeoutError, match="not true"):
        fencehold_service.until(lambda: False)


DAY_S = 86_400


def test_a_day_passes_with_every_session_kept(fencehold_service: Service) -> None:
    """Both tiers, short and long ttls, a plain connection: they are renewed once for each ttl, and not asked."""
    quick, slow = fencehold_service.connect(ttl=10), fencehold_service.connect(ttl=60)
    with (
        redis.Redis.from_url(fencehold_service.url.replace("fencehold", "redis")) as plain,
        quick.lock("quick") as hold,
        slow.lock("slow") as other,
        slow.lock("cache", tier=EFFICIENCY) as claim,
    ):
        plain.execute_command("LOCK.ACQUIRE", "plain")
        sessions_before = [sessions(quick), sessions(slow)]
        fencehold_service.advance(DAY_S)
        for held in (hold, other, claim):
            held.check()
        assert [sessions(quick), sessions(slow)] == sessions_before
        assert fencehold_service.holders("slow")[0].held_for >= DAY_S
        assert len(fencehold_service.holders("plain")) == 1
        # By steps of a sixth of the ttl it would have taken five times as many.
        assert fencehold_service._here()._server.node.position < DAY_S / 10 * 1.5


def test_what_falls_due_within_a_day_happens_at_its_time(fencehold_service: Service) -> None:
    """A hold with a ttl of hours ends after those hours, and the one who waits for it is granted it then."""
    holder, waiter = fencehold_service.connect(), fencehold_service.connect()
    hold = holder.lock("orders", ttl=7_200).acquire()
    assert hold is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.lock("orders", timeout=10_000).acquire)
        fencehold_service.until(lambda: fencehold_service.waiters("orders"))
        fencehold_service.advance(DAY_S)
        later = waiting.result(5)
    assert later is not None
    later.release()
    first, second = fencehold_service.history("orders")
    assert first.ending == "expired"
    assert first.ended is not None
    assert 7_200 <= first.ended - first.acquired < 7_210
    assert second.acquired == first.ended


def test_a_restart_after_a_day_finds_the_same_sessions(
    fencehold_service: Service, fencehold_client: Client
) -> None:
    """What was leapt over is in the journal like any other time."""
    with fencehold_client.lock("orders") as hold:
        fencehold_service.advance(DAY_S)
        fencehold_service.restart()
        hold.check()
        assert fencehold_service.holders("orders")[0].held_for >= DAY_S


def test_a_client_that_is_paused_for_a_day_loses_its_hold(
    fencehold_service: Service, fencehold_client: Client
) -> None:
    """Its session is not kept alive by the leaps of the others."""
    other = fencehold_service.connect()
    hold = fencehold_client.lock("orders").acquire()
    assert hold is not None
    with fencehold_service.pause(fencehold_client):
        fencehold_service.advance(120)
        with other.lock("orders", timeout=0):
            pass
    with pytest.raises(HoldLost):
        hold.check()
