"""LeaseSet that are records: trust, renewals, waiting, withdrawal; on a store that fails when it is told to."""

import asyncio

import pytest
import uvloop

from fencehold import HoldLost, OutcomeUnknown, PermissionDenied, State, Unavailable, UsageError
from fencehold.backends.lease.keeper import LeaseSet
from fencehold.backends.port import Ask, Lease
from fencehold.locks.clock import clock
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Trust
from tests.unit.backends.lease.shelf import Scene


async def until(is_true: object, seconds: float = 5.0) -> None:
    assert callable(is_true)
    async with asyncio.timeout(seconds):
        while not is_true():  # noqa: ASYNC110 - the store is looked at
            await asyncio.sleep(0.002)


async def granted(scene: Scene, name: str = "a", ttl: float | None = None) -> Lease:
    lease = await scene.backend.acquire(scene.ask(name, ttl=ttl))
    assert lease is not None
    return lease


def test_a_store_that_cannot_be_reached_is_said_at_once_and_nothing_is_withdrawn() -> None:
    async def main() -> None:
        async with Scene() as scene:
            scene.shelf.next_takes.append(Unavailable("away"))
            with pytest.raises(Unavailable, match="away"):
                await scene.backend.acquire(scene.ask())
        assert scene.shelf.left == []

    asyncio.run(main())


def test_an_unknown_outcome_is_found_out_by_asking_again() -> None:
    """The trust counts from the first asking, for that may be the one that was granted."""

    async def main() -> None:
        async with Scene(ttl=10, connect_timeout=5) as scene:

            async def slow() -> None:
                await asyncio.sleep(0.2)
                raise OutcomeUnknown("cut")

            scene.shelf.next_takes.append(slow)
            begun = clock()
            lease = await granted(scene)
            assert scene.shelf.takes == 2
            assert lease.trust.end <= begun + 10
            assert lease.trust.end < clock() + 10 - 0.2

    asyncio.run(main())


def test_an_outcome_that_stays_unknown_is_never_taken_for_a_no() -> None:
    """Also if the store is certainly not reached later on; and what may be there is withdrawn."""

    async def main() -> None:
        async with Scene(connect_timeout=0.1) as scene:
            scene.shelf.next_takes.extend([OutcomeUnknown("cut"), *[Unavailable("away")] * 50])
            ask = scene.ask()
            with pytest.raises(OutcomeUnknown):
                await scene.backend.acquire(ask)
            await until(lambda: scene.shelf.left == [ask.token])

    asyncio.run(main())


def test_a_grant_that_came_too_late_is_none() -> None:
    """It is asked for again, and counts from then."""

    async def main() -> None:
        async with Scene(ttl=0.2) as scene:
            scene.shelf.next_takes.append(lambda: asyncio.sleep(0.25))
            lease = await granted(scene)
            assert scene.shelf.takes == 2
            assert lease.state(clock()) is State.HELD

    asyncio.run(main())


def test_what_is_kept_is_renewed_many_at_once() -> None:
    async def main() -> None:
        async with Scene(ttl=0.3) as scene:
            leases = [await granted(scene, f"n{number}") for number in range(50)]
            await until(lambda: sum(scene.shelf.renewed) >= 150)
            assert max(scene.shelf.renewed) == 50
            assert all(lease.safe_for(clock()) > 0 for lease in leases)

    asyncio.run(main())


def test_a_renewal_that_fails_is_tried_again() -> None:
    async def main() -> None:
        async with Scene() as scene:
            scene.shelf.next_renewals.extend([Unavailable("away"), OutcomeUnknown("cut"), Unavailable("away")])
            lease = await granted(scene)
            end = lease.trust.end
            await until(lambda: lease.trust.end > end)
            assert not lease.ending

    asyncio.run(main())


def test_a_lease_that_is_gone_is_lost_when_that_is_seen() -> None:
    """And it is not taken anew, though nobody has it."""

    async def main() -> None:
        async with Scene() as scene:
            lease = await granted(scene)
            told: list[Lease] = []
            lease.on_lost = lambda grant: told.append(lease)
            scene.shelf.held.clear()
            await until(lambda: bool(told))
            assert scene.shelf.held == {}
            with pytest.raises(HoldLost):
                await scene.backend.release(lease)

    asyncio.run(main())


def test_a_store_that_hangs_does_not_keep_a_loss_from_being_told() -> None:
    async def main() -> None:
        async with Scene(ttl=0.3) as scene:
            scene.shelf.next_renewals.extend([asyncio.Event().wait] * 20)
            lease = await granted(scene)
            await until(lambda: lease.ending != "", 5)
            assert "renewal" in lease.ending

    asyncio.run(main())


def test_a_ttl_of_its_own_is_not_renewed() -> None:
    async def main() -> None:
        async with Scene(ttl=10) as scene:
            lease = await granted(scene, ttl=0.1)
            await until(lambda: lease.ending != "", 20)
            assert scene.shelf.renewed == []

    asyncio.run(main())


def test_a_wake_up_for_one_who_is_gone_is_handed_on() -> None:
    async def main() -> None:
        async with Scene() as scene:
            lease = await granted(scene)
            first = asyncio.create_task(scene.backend.acquire(scene.ask()))
            await until(lambda: scene.shelf.takes == 2)
            second = asyncio.create_task(scene.backend.acquire(scene.ask()))
            await until(lambda: scene.shelf.takes == 3)
            # Awake and cancelled in the same turn of the loop: it cannot try again.
            scene.shelf.held.clear()
            scene.shelf.on_wake("a", "")
            first.cancel()
            assert await asyncio.wait_for(second, 20) is not None
            lease.lose("for the test")

    asyncio.run(main())


def test_a_wake_up_by_token_is_for_that_one() -> None:
    async def main() -> None:
        async with Scene() as scene:
            lease = await granted(scene)
            asks = [scene.ask(), scene.ask()]
            waiting = []
            for number, ask in enumerate(asks):
                waiting.append(asyncio.create_task(scene.backend.acquire(ask)))
                await until(lambda: scene.shelf.takes == number + 2)  # noqa: B023
            scene.shelf.held.clear()
            scene.shelf.on_wake("a", asks[1].token)
            assert await asyncio.wait_for(waiting[1], 20) is not None
            assert not waiting[0].done()
            waiting[0].cancel()
            await asyncio.gather(waiting[0], return_exceptions=True)
            lease.lose("for the test")

    asyncio.run(main())


def test_cancelling_a_wait_withdraws_it() -> None:
    async def main() -> None:
        async with Scene() as scene:
            lease = await granted(scene)
            ask = scene.ask()
            waiting = asyncio.create_task(scene.backend.acquire(ask))
            await until(lambda: scene.shelf.takes == 2)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await until(lambda: scene.shelf.left == [ask.token])
            await scene.backend.release(lease)

    asyncio.run(main())


def test_a_release_that_is_not_answered_is_unknown_and_done_later() -> None:
    async def main() -> None:
        async with Scene() as scene:
            for failure in (Unavailable("away"), OutcomeUnknown("cut")):
                lease = await granted(scene)
                scene.shelf.next_gifts.append(failure)
                with pytest.raises(OutcomeUnknown):
                    await scene.backend.release(lease)
                await until(lambda: not scene.shelf.held)

    asyncio.run(main())


def test_an_extension_that_may_have_been_made_is_trusted_for_the_shorter() -> None:
    """Also after another that was answered: the first one may come about after it."""

    async def main() -> None:
        async with Scene(ttl=10) as scene:
            lease = await granted(scene, ttl=5)
            scene.shelf.next_renewals.append(OutcomeUnknown("cut"))
            with pytest.raises(OutcomeUnknown):
                await scene.backend.extend(lease, 1)
            assert lease.safe_for(clock()) <= 1
            scene.shelf.next_renewals.append(Unavailable("away"))
            with pytest.raises(Unavailable):
                await scene.backend.extend(lease, 0.5)
            assert lease.safe_for(clock()) > 0.5
            await scene.backend.extend(lease, 3)
            assert 0.5 < lease.safe_for(clock()) <= 1
            await scene.backend.release(lease)

    asyncio.run(main())


def test_what_may_have_been_shortened_is_not_trusted_for_longer_by_a_renewal() -> None:
    """What is kept alive is renewed after an extension that is unknown; that may come about after the renewal."""

    async def main() -> None:
        async with Scene(ttl=1.2) as scene:
            lease = await granted(scene)
            scene.shelf.next_renewals.append(OutcomeUnknown("cut"))
            with pytest.raises(OutcomeUnknown):
                await scene.backend.extend(lease, 0.5)
            renewals = len(scene.shelf.renewed)
            await until(lambda: len(scene.shelf.renewed) > renewals)
            await asyncio.sleep(0.01)
            assert 0 < lease.safe_for(clock()) <= 0.5
            await scene.backend.release(lease)

    asyncio.run(main())


def test_an_extension_that_nobody_waits_for_any_more_leaves_the_lease_kept() -> None:
    async def main() -> None:
        async with Scene(ttl=0.6) as scene:
            lease = await granted(scene)
            scene.shelf.next_renewals.append(asyncio.Event().wait)
            extending = asyncio.create_task(scene.backend.extend(lease, 5))
            await until(lambda: scene.shelf.renewed == [1])
            extending.cancel()
            await asyncio.gather(extending, return_exceptions=True)
            end = lease.trust.end
            await until(lambda: lease.trust.end > end, 20)
            await scene.backend.release(lease)

    asyncio.run(main())


def test_an_extension_that_is_refused_leaves_the_lease_as_it_was() -> None:
    async def main() -> None:
        async with Scene(ttl=10) as scene:
            lease = await granted(scene)
            end = lease.trust.end
            scene.shelf.next_renewals.append(PermissionDenied("not for you"))
            with pytest.raises(PermissionDenied):
                await scene.backend.extend(lease, 1)
            assert (lease.is_kept, lease.trust.end) == (True, end)
            await scene.backend.release(lease)

    asyncio.run(main())


def test_a_lease_that_is_lost_while_its_extension_waits_is_not_extended() -> None:
    async def main() -> None:
        async with Scene(ttl=10) as scene:
            lease, other = await granted(scene), await granted(scene, "b")
            go_on = asyncio.Event()
            scene.shelf.next_renewals.append(go_on.wait)
            first = asyncio.create_task(scene.backend.extend(other, 5))
            await until(lambda: scene.shelf.renewed == [1])
            second = asyncio.create_task(scene.backend.extend(lease, 5))
            await asyncio.sleep(0)
            lease.lose("for the test")
            go_on.set()
            await first
            with pytest.raises(HoldLost, match="for the test"):
                await second
            assert scene.shelf.renewed == [1]
            await scene.backend.release(other)

    asyncio.run(main())


def test_a_trust_that_is_over_does_not_come_back() -> None:
    """A renewal that is answered after its end, before anybody looked."""

    async def main() -> None:
        async with Scene(ttl=0.6) as scene:
            lease = await granted(scene)

            async def late() -> None:
                lease.trust.end = clock() - 1

            scene.shelf.next_renewals.append(late)
            await until(lambda: lease.ending != "", 20)
            assert "in time" in lease.ending

    asyncio.run(main())


def test_timers_of_any_loop_are_cancelled() -> None:
    async def main() -> None:
        leases = LeaseSet(clock)
        trust = Trust(30, 30)
        trust.end = clock() + 30
        lease = Lease(Ask(Terms(("a",)), "t", "task"), 1, trust, 30)
        leases.add(lease)
        timer = leases._timers[lease]
        assert timer is not None
        leases.remove(lease)
        assert timer.cancelled()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_who_waits_when_the_client_is_closed_hears_so() -> None:
    async def main() -> None:
        async with Scene() as scene:
            lease = await granted(scene)
            ask = scene.ask()
            waiting = asyncio.create_task(scene.backend.acquire(ask))
            await until(lambda: scene.shelf.takes == 2)
        with pytest.raises(UsageError, match="closed"):
            await waiting
        assert set(scene.shelf.left) == {ask.token, lease.ask.token}

    asyncio.run(main())


def test_closing_gives_back_and_distrusts() -> None:
    async def main() -> None:
        async with Scene() as scene:
            lease = await granted(scene)
        assert scene.shelf.held == {}
        assert lease.state(clock()) is State.LOST

    asyncio.run(main())


def test_a_renewal_that_fails_in_an_unforeseen_way_does_not_end_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is seen, and the next beat goes on."""

    async def main() -> None:
        async with Scene() as scene:
            scene.shelf.next_renewals.append(ZeroDivisionError("a driver's own mistake"))
            lease = await granted(scene)
            end = lease.trust.end
            await until(lambda: lease.trust.end > end)

    asyncio.run(main())
    assert "a driver's own mistake" in caplog.text


async def granted_for(scene: Scene, at_least: float, ttl: float = 60.0) -> Lease:
    lease = await scene.backend.acquire(scene.ask(ttl=ttl, at_least=at_least))
    assert lease is not None
    return lease


def test_a_release_before_its_least_time_has_the_record_run_out_then() -> None:
    """It is not deleted, and nobody is woken for it; its own client has it no more than anybody else."""

    async def main() -> None:
        async with Scene() as scene:
            lease = await granted_for(scene, 20.0)
            await scene.backend.release(lease)
            assert lease.state(clock()) is State.RELEASED
            assert scene.shelf.held == {"a": lease.ask.token}
            assert 19 < scene.shelf.lasting[lease.ask.token] <= 20
            assert await scene.backend.acquire(scene.ask(timeout=0)) is None
        assert scene.shelf.held == {"a": lease.ask.token}

    asyncio.run(main())


def test_a_release_after_its_least_time_frees_the_name() -> None:
    async def main() -> None:
        async with Scene() as scene:
            lease = await granted_for(scene, 0.01)
            await until(lambda: not lease.least_s(clock()))
            await scene.backend.release(lease)
            assert scene.shelf.held == {}

    asyncio.run(main())


def test_a_release_before_its_least_time_that_is_not_answered_is_done_later() -> None:
    """It is tried again, and still deletes nothing."""

    async def main() -> None:
        async with Scene() as scene:
            lease = await granted_for(scene, 20.0)
            scene.shelf.next_renewals.append(Unavailable("away"))
            with pytest.raises(OutcomeUnknown):
                await scene.backend.release(lease)
            await until(lambda: lease.ask.token in scene.shelf.lasting)
            assert scene.shelf.held == {"a": lease.ask.token}
            assert scene.shelf.left == []

    asyncio.run(main())


def test_a_least_time_of_what_was_taken_away_is_over() -> None:
    """A release finds that it is gone, and takes nothing anew."""

    async def main() -> None:
        async with Scene() as scene:
            lease = await granted_for(scene, 20.0)
            await scene.backend.break_hold("a", 0)
            with pytest.raises(HoldLost):
                await scene.backend.release(lease)
            assert scene.shelf.held == {}

    asyncio.run(main())


def test_closing_leaves_what_is_to_be_kept() -> None:
    """All else is given back."""

    async def main() -> None:
        async with Scene() as scene:
            kept = await granted_for(scene, 20.0)
            other = await granted(scene, "b", ttl=60.0)
        assert scene.shelf.held == {"a": kept.ask.token}
        assert 19 < scene.shelf.lasting[kept.ask.token] <= 20
        assert scene.shelf.left == [other.ask.token]

    asyncio.run(main())


def test_no_extension_and_no_renewal_lets_a_record_end_before_its_least_time() -> None:
    """The lease is trusted for as long as was asked; the record lasts for longer."""

    async def main() -> None:
        async with Scene(ttl=0.3) as scene:
            lease, other = await granted_for(scene, 20.0), await granted(scene, "b")
            await scene.backend.extend(lease, 5.0)
            assert 19 < scene.shelf.lasting[lease.ask.token] <= 20
            assert lease.safe_for(clock()) <= 5
            await scene.backend.extend(lease, None)
            lease.trust.end = clock() + 0.1
            scene.shelf.lasting.clear()
            await until(lambda: len(scene.shelf.lasting) == 2)
            assert 18 < scene.shelf.lasting[lease.ask.token] <= 20
            assert scene.shelf.lasting[other.ask.token] == 0.3

    asyncio.run(main())


def test_an_ask_that_is_withdrawn_keeps_nothing() -> None:
    """Nothing was done under a grant that nobody heard of."""

    async def main() -> None:
        async with Scene(connect_timeout=0.1) as scene:
            scene.shelf.next_takes.extend([OutcomeUnknown("cut")] * 50)
            ask = scene.ask(ttl=60.0, at_least=20.0)
            scene.shelf.held["a"] = ask.token
            with pytest.raises(OutcomeUnknown):
                await scene.backend.acquire(ask)
            await until(lambda: scene.shelf.left == [ask.token])
            assert scene.shelf.held == {}

    asyncio.run(main())
