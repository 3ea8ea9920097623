"""What a test can see of its service."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fencehold import Client
from fencehold.testing import Held, Service
from fencehold.testing import history as histories
from fencehold.testing.history import History


def test_holders_and_waiters_are_seen(fencehold_service: Service) -> None:
    """They are told apart by the names their clients were given."""
    holder, waiter = fencehold_service.connect(name="first"), fencehold_service.connect(name="second")
    with ThreadPoolExecutor(1) as pool:
        with holder.lock("orders") as hold:
            waiting = pool.submit(waiter.lock("orders").acquire)
            fencehold_service.until(lambda: fencehold_service.waiters("orders"))
            queue = fencehold_service.waiters("orders")
            (seen,) = fencehold_service.holders("orders")
            assert (seen.party.client, seen.fence, seen.mode) == ("first", hold.fence, "X")
            assert [place.party.client for place in queue] == ["second"]
            assert "held by first" in str(fencehold_service.explain("orders"))
        granted = waiting.result(5)
    assert granted is not None
    granted.release()


def test_the_history_tells_every_hold(fencehold_service: Service, fencehold_client: Client) -> None:
    """Who had it, from when to when, and how it ended; times are those that were made to pass."""
    with fencehold_client.lock("orders"):
        fencehold_service.advance(10)
    expired = fencehold_client.lock("orders", ttl=5).acquire()
    fencehold_service.advance(6)
    assert expired is not None
    with fencehold_client.lock("orders"), fencehold_client.lock("stock"):
        released, ran_out, held = fencehold_service.history("orders")
    assert (released.ending, ran_out.ending, held.ending) == ("released", "expired", "")
    assert released.ended is not None
    assert 10 <= released.ended - released.acquired < 11
    assert released.fence < ran_out.fence < held.fence
    assert released.session == held.session
    assert released.owner.startswith("MainThread")
    assert "held still" in str(held)


def test_readers_may_overlap_and_writers_not(fencehold_service: Service, fencehold_client: Client) -> None:
    """Shared holds and the permits of a semaphore are no overlap."""
    lock = fencehold_client.rwlock("orders")
    with lock.read(), lock.read():
        pass
    with lock.write():
        pass
    permits = fencehold_client.semaphore("slots", 2)
    with permits, permits:
        pass
    fencehold_service.assert_no_overlap()
    assert [held.mode for held in fencehold_service.history("orders")] == ["S", "S", "X"]
    assert [held.mode for held in fencehold_service.history("slots")] == ["P", "P"]


def _history(*holds: tuple[int, str, float, float | None]) -> History:
    history = History()
    for fence, mode, acquired, ended in holds:
        history._held["orders", fence] = Held("orders", fence, 1, "", mode, acquired, ended, "released")
    return history


@pytest.mark.parametrize(
    ("holds", "pairs"),
    [
        ([(1, "X", 0, 1), (2, "X", 1, None)], []),
        ([(1, "X", 0, 1.5), (2, "X", 1, 2)], [(1, 2)]),
        ([(1, "X", 0, None), (2, "X", 1, 2), (3, "X", 3, 4)], [(1, 2), (1, 3)]),
        ([(1, "S", 0, 5), (2, "S", 1, 2), (3, "X", 3, 4)], [(1, 3)]),
        ([(1, "X", 0, 5), (2, "S", 5, 6), (3, "S", 5.5, None)], []),
        ([(1, "X", 0, 5), (2, "S", 4, 6)], [(1, 2)]),
    ],
)
def test_overlaps_are_found(
    holds: list[tuple[int, str, float, float | None]], pairs: list[tuple[int, int]]
) -> None:
    """An exclusive hold is alone, and any other beside it is found, however far apart their fences are."""
    assert [(one.fence, two.fence) for one, two in _history(*holds).overlaps()] == pairs


def test_an_overlap_is_said_in_words(fencehold_service: Service, fencehold_client: Client) -> None:
    """The message names the two holds."""
    with fencehold_client.lock("orders"):
        stage = fencehold_service._here()
        stage.history._held["orders", 99] = Held("orders", 99, 7, "", "X", 1e6)
        with pytest.raises(AssertionError, match=r"'orders': fence 1 of .*; fence 99 of session 7"):
            fencehold_service.assert_no_overlap()


def test_the_history_is_bounded(
    fencehold_service: Service, fencehold_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that runs for long forgets the oldest holds, not the newest."""
    monkeypatch.setattr(histories, "HOLDS_MAX", 3)
    for _ in range(5):
        with fencehold_client.lock("orders"):
            pass
    assert [held.fence for held in fencehold_service.history("orders")] == [3, 4, 5]
