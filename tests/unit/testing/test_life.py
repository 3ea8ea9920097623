"""A test service comes and goes, and leaves nothing behind."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import fencehold
from fencehold.errors import SessionExpired, UsageError
from fencehold.testing import Service
from tests.forks import in_a_child


def _threads() -> set[threading.Thread]:
    """Without those that `threading` did not start: they are forgotten when their number is given again."""
    return {thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}


@contextmanager
def nothing_left() -> Iterator[None]:
    """See that neither threads nor files are left behind."""
    threads, files = _threads(), len(os.listdir("/proc/self/fd"))
    yield
    assert _threads() == threads
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_client_takes_and_releases_a_lock() -> None:
    """What works against a real server works here."""
    with nothing_left(), Service() as service, service.connect() as client:
        with client.lock("orders") as hold:
            assert [holder.fence for holder in service.holders("orders")] == [hold.fence]
        assert service.holders("orders") == ()


def test_the_application_connects_by_itself() -> None:
    """The URL is enough: clients need not be made by the service."""
    with (
        nothing_left(),
        Service() as service,
        fencehold.connect(service.url) as client,
        client.lock("orders") as hold,
    ):
        service.advance(100)
        hold.check()


def test_clients_that_were_not_closed_are_closed_with_the_service() -> None:
    """A test that forgets to close what the service made leaves nothing behind."""
    with nothing_left(), Service() as service:
        hold = service.connect().lock("orders").acquire()
        assert hold is not None


def test_closing_a_client_after_its_service_does_not_wait() -> None:
    """An application's own client is cut off when the service closes, so closing it later is quick."""
    with nothing_left():
        with Service() as service:
            client = fencehold.connect(service.url, connect_timeout=60)
        client.close()


def test_whoever_waits_when_the_service_closes_is_told() -> None:
    """A thread that waits for a lock does not wait for ever."""
    told: list[BaseException] = []

    def wait(client: fencehold.Client) -> None:
        with pytest.raises(SessionExpired) as caught:
            client.lock("orders").acquire()
        told.append(caught.value)

    with nothing_left():
        with Service() as service:
            holder, waiter = service.connect(), service.connect()
            hold = holder.lock("orders").acquire()
            thread = threading.Thread(target=wait, args=(waiter,))
            thread.start()
            service.until(lambda: service.waiters("orders"))
        thread.join()
    assert hold is not None
    assert len(told) == 1


def test_services_live_side_by_side() -> None:
    """Two services know nothing of each other's locks, but share time."""
    with nothing_left(), Service() as one, Service() as two:
        first, second = one.connect(), two.connect()
        with first.lock("orders", timeout=0) as here, second.lock("orders", timeout=0) as there:
            one.advance(60)
            two.advance(60)
            here.check()
            there.check()


def test_a_service_goes_on_when_another_closes() -> None:
    """The thread they share ends with the last of them."""
    with nothing_left(), Service() as one:
        client = one.connect()
        with Service() as two, two.connect():
            pass
        with client.lock("orders") as hold:
            one.advance(60)
            hold.check()


def test_a_service_can_be_opened_again() -> None:
    """It is a new one then: what it knew is gone."""
    service = Service()
    for _ in range(2):
        with nothing_left(), service:
            assert service.history("orders") == []
            with service.connect() as client, client.lock("orders"):
                pass


def test_a_closed_service_says_so() -> None:
    """It is no use before it is entered, and not after."""
    service = Service()
    for verb in (service.restart, lambda: service.advance(1), lambda: service.url):
        with pytest.raises(UsageError, match="not open"):
            verb()
    with service, pytest.raises(UsageError, match="open already"):
        service.open()


def test_async_clients_leave_no_task() -> None:
    """An async client that nobody closed is cut off with the service."""

    async def scene() -> None:
        async with Service() as service:
            client = await service.connect()
            hold = await client.lock("orders").acquire()
            assert hold is not None
        await client.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with nothing_left():
        asyncio.run(scene())


def test_a_blocking_verb_on_an_event_loop_is_refused() -> None:
    """It would stop the clients that live there, so it says what to do instead."""

    async def scene() -> None:
        with Service() as service:
            async with service.aio_connect() as client, client.lock("orders") as hold:
                with pytest.raises(UsageError, match=r"service\.aio"):
                    service.advance(60)
                await service.aio.advance(60)
                hold.check()

    with nothing_left():
        asyncio.run(scene())


def test_a_client_whose_loop_is_stuck_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb says what keeps it waiting."""
    monkeypatch.setattr("fencehold.testing.timeline.PATIENCE_S", 0.05)
    stuck = threading.Event()
    with Service() as service:
        client = service.connect()
        client.portal().channel.loop.call_soon_threadsafe(stuck.wait)
        with pytest.raises(TimeoutError, match="does its event loop run"):
            service.advance(1)
        stuck.set()


def test_a_child_process_may_open_a_service_of_its_own() -> None:
    """It has none of its parent's, and the parent's goes on."""

    def check() -> None:
        with Service() as own, own.connect() as other, other.lock("orders"):
            own.advance(60)

    with Service() as service, service.connect() as client, client.lock("orders") as hold:
        assert in_a_child(check) == 0
        service.advance(60)
        hold.check()


def test_a_service_that_was_inherited_says_that_it_is_closed() -> None:
    """A child that uses its parent's is told, and does not hang."""

    def check() -> None:
        with pytest.raises(UsageError, match="closed"):
            service.restart()

    with Service() as service:
        assert in_a_child(check) == 0
