"""Terms of an election: campaigned for again and again, until the body or the client ends it."""

import asyncio
import threading
from contextlib import ExitStack, aclosing

import pytest

import fencehold
from fencehold import EFFICIENCY, HoldLost, NotOwner, UsageError, aio, current_hold
from fencehold.client.candidacy import Pauses, is_loss_of
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust
from tests.unit.client.service import PATIENCE_S, Cable, service, service_on_a_thread, until, until_true

# Threads.


def test_a_term_that_is_left_is_resigned_and_the_next_one_follows(any_url: str) -> None:
    """Each has a greater epoch, and between two of them another may lead."""
    with fencehold.connect(any_url) as one, fencehold.connect(any_url) as other:
        epochs = []
        for term in one.election("e").terms():
            with term:
                assert current_hold() is term
                assert other.lock("e").acquire(timeout=0) is None
                epochs.append(term.epoch)
            assert current_hold() is None
            with other.lock("e", timeout=PATIENCE_S) as between:
                epochs.append(between.fence)
            if len(epochs) == 4:
                break
        assert epochs == sorted(set(epochs))
        assert one.explain("e").holders == ()


def test_a_lost_term_does_not_end_the_loop(any_url: str) -> None:
    """The body is told by `check`, which it need not catch; a body that does not ask is told nothing."""
    with fencehold.connect(any_url, ttl=1) as one, fencehold.connect(any_url) as other:
        epochs = []
        for term in one.election("e").terms():
            with term:
                epochs.append(term.epoch)
                if len(epochs) == 3:
                    break
                other.break_hold("e")
                assert term.lost.wait(PATIENCE_S)
                if len(epochs) == 1:
                    term.check()
                    pytest.fail("it was lost")
        assert epochs == sorted(set(epochs))


def test_what_else_a_body_raises_ends_the_loop(any_url: str) -> None:
    """The term is resigned first. The loss of another lock is such a thing."""
    with fencehold.connect(any_url) as client:
        with pytest.raises(KeyError):
            for term in client.election("e").terms():
                with term:
                    raise KeyError("the body's own")
        assert client.explain("e").holders == ()
        with pytest.raises(HoldLost, match="'other'"):
            for term in client.election("e").terms():
                with term, client.lock("other", ttl=0.05) as hold:
                    assert hold.lost.wait(PATIENCE_S)
        assert client.explain("e").holders == ()


def test_a_loop_that_is_left_holds_nothing(any_url: str) -> None:
    """Also if its terms were never entered."""
    with fencehold.connect(any_url) as client:
        election = client.election("e")
        for term in election.terms():
            with term:
                break
        assert client.explain("e").holders == ()
        for term in election.terms():
            assert term.safe_for() > 0
            break
        until_true(lambda: not client.explain("e").holders)
        seen = [term.epoch for term, _ in zip(election.terms(), range(3), strict=False)]
        assert seen == sorted(set(seen))
        until_true(lambda: not client.explain("e").holders)


def test_a_body_may_resign_by_itself(any_url: str) -> None:
    """By the election, or by the term: the loop goes on."""
    with fencehold.connect(any_url) as client:
        election = client.election("e")
        terms = election.terms()
        with next(terms):
            election.resign()
        with next(terms) as term:
            term.release()
            with pytest.raises(UsageError, match="already entered"), term:
                pass
        with next(terms) as term:
            assert term.fence == term.epoch
        terms.close()


@pytest.mark.parametrize("is_leading", [True, False])
def test_the_loop_ends_when_the_client_is_closed(any_url: str, is_leading: bool) -> None:
    """Whether it leads at that moment, or campaigns."""
    led: list[bool] = []

    def lead(client: fencehold.Client) -> None:
        for term in client.election("e").terms():
            with term:
                led.append(True)
                term.lost.wait()
                led.append(term.lost.is_set())

    with fencehold.connect(any_url) as rival, ExitStack() as stack:
        if not is_leading:
            stack.enter_context(rival.lock("e"))
        with fencehold.connect(any_url) as client:
            thread = threading.Thread(target=lead, args=(client,))
            thread.start()
            until_true(lambda: bool(led if is_leading else rival.explain("e").queue))
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert led == ([True, True] if is_leading else [])


def test_a_service_that_is_away_is_waited_for() -> None:
    """Once it was reached, for longer than any one call would be."""
    with service_on_a_thread() as url:
        port = int(url.rpartition(":")[2])
        client = fencehold.connect(url, ttl=0.3, grace=0.1, connect_timeout=0.2)
    with client:
        terms = client.election("e").terms()
        with pytest.raises(fencehold.Unavailable):
            next(terms)
        epochs: list[int] = []

        def lead() -> None:
            for term in client.election("e").terms():
                with term:
                    epochs.append(term.epoch)
                    term.lost.wait()

        with service_on_a_thread(port):
            # The loop begins with a service that is there; the client may be in a pause between two tries still.
            until_true(lambda: _is_reached(client))
            thread = threading.Thread(target=lead)
            thread.start()
            until_true(lambda: len(epochs) == 1)
        # Away for long enough that campaigns have failed meanwhile.
        until_true(lambda: _raises_unavailable(client))
        with service_on_a_thread(port):
            until_true(lambda: len(epochs) == 2)
            client.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def _is_reached(client: fencehold.Client) -> bool:
    try:
        client.ready()
    except fencehold.Unavailable:
        return False
    return True


def _raises_unavailable(client: fencehold.Client) -> bool:
    try:
        client.lock("another").acquire()
    except fencehold.Unavailable:
        return True
    except fencehold.FenceholdError:
        return False
    return False


def test_terms_to_avoid_work_have_no_epoch() -> None:
    """They are claims."""
    with fencehold.connect("memory://terms") as client:
        for term in client.election("e", tier=EFFICIENCY).terms():
            with term:
                assert type(term) is (fencehold.Term if client.guarantees.fenced else fencehold.Turn)
                break


# Tasks.


async def test_losing_a_term_cancels_the_body_and_the_loop_goes_on(any_url: str) -> None:
    """The task is not cancelled by it: what follows can wait as ever."""
    async with aio.connect(any_url, ttl=1) as one, aio.connect(any_url) as other:
        epochs = []
        async for term in one.election("e").terms():
            async with term:
                epochs.append(term.epoch)
                assert current_hold() is term
                if len(epochs) == 3:
                    break
                await other.break_hold("e")
                await asyncio.Event().wait()
            await asyncio.sleep(0)
        assert epochs == sorted(set(epochs))
        assert len(epochs) == 3
        assert (await one.explain("e")).holders == ()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_body_that_ends_resigns(any_url: str) -> None:
    """And its rival leads before it does again."""
    async with aio.connect(any_url) as one, aio.connect(any_url) as other:
        epochs = []
        async for term in one.election("e").terms():
            async with term:
                epochs.append(term.epoch)
            async with other.lock("e", timeout=PATIENCE_S) as between:
                epochs.append(between.fence)
            if len(epochs) == 4:
                break
        assert epochs == sorted(set(epochs))


async def test_what_else_the_body_of_a_task_raises_ends_the_loop(any_url: str) -> None:
    """A cancellation from elsewhere, too; the term is resigned first."""
    async with aio.connect(any_url) as client:
        with pytest.raises(KeyError):
            async for term in client.election("e").terms():
                async with term:
                    raise KeyError("the body's own")
        assert (await client.explain("e")).holders == ()
        leading = asyncio.Event()

        async def lead() -> None:
            async for term in client.election("e").terms():
                async with term:
                    leading.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(lead())
        await leading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.explain("e")).holders == ()


async def test_a_term_lost_before_it_is_entered_cancels_the_body() -> None:
    """Where it first waits; and a body that waits for nothing ends as it likes."""
    async with service() as url, aio.connect(url) as client:
        seen: list[int] = []
        async for term in client.election("e").terms():
            await client.break_hold("e")
            await term.lost
            async with term:
                seen.append(term.epoch)
                if len(seen) == 2:
                    await asyncio.Event().wait()
            await asyncio.sleep(0)
            if len(seen) == 3:
                break
        assert seen == sorted(set(seen))


async def test_a_loss_that_several_tasks_tell_of_is_one() -> None:
    """A task group that fails for the loss alone does not end the loop; for more, it does."""
    async with service() as url, aio.connect(url) as client:

        async def work(term: aio.Term) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                term.check()

        seen = 0
        with pytest.raises(ExceptionGroup) as raised:
            async for term in client.election("e").terms():
                seen += 1
                async with term, asyncio.TaskGroup() as group:
                    group.create_task(work(term))
                    if seen == 2:
                        group.create_task(_fail_when_cancelled())
                    await client.break_hold("e")
                    await asyncio.Event().wait()
        assert seen == 2
        assert {type(each) for each in raised.value.exceptions} == {HoldLost, KeyError}


async def _fail_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise KeyError("another reason")


@pytest.mark.parametrize("is_leading", [True, False])
async def test_the_loop_of_a_task_ends_when_the_client_is_closed(any_url: str, is_leading: bool) -> None:
    """Whether it leads at that moment, or campaigns."""
    async with aio.connect(any_url) as rival:
        held = None if is_leading else await rival.lock("e").acquire()
        client = await aio.connect(any_url)
        leading = asyncio.Event()

        async def lead() -> str:
            async for term in client.election("e").terms():
                async with term:
                    leading.set()
                    await asyncio.Event().wait()
            return "ended"

        task = asyncio.create_task(lead())
        if is_leading:
            await leading.wait()
        else:
            await until(lambda: _is_awaited(rival))
        await client.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await task == "ended"
        if held is not None:
            await held.release()


async def _is_awaited(client: aio.Client) -> bool:
    return bool((await client.explain("e")).queue)


async def test_the_loop_of_a_task_waits_for_a_service_that_is_away() -> None:
    """Its term is lost for want of trust, campaigns fail, and it leads again when the line is whole."""
    async with service() as url, Cable(url) as cable:
        client = await aio.connect(cable.url, ttl=0.4, grace=0.1, connect_timeout=0.1)
        epochs: list[int] = []

        async def lead() -> None:
            async for term in client.election("e").terms():
                async with term:
                    epochs.append(term.epoch)
                    await asyncio.Event().wait()

        task = asyncio.create_task(lead())
        await until(lambda: len(epochs) == 1)
        cable.refuses = True
        cable.cut()
        failed = 0
        while not failed:
            try:
                await client.explain("e")
            except fencehold.Unavailable:
                failed += 1
        cable.refuses = False
        await until(lambda: len(epochs) == 2)
        await client.close()
        await task


async def test_a_loop_of_tasks_that_is_left_holds_nothing() -> None:
    """If its generator is closed, as `aclosing` does."""
    async with service() as url, aio.connect(url) as client:
        async with aclosing(client.election("e").terms()) as terms:
            async for term in terms:
                assert term.fence == term.epoch
                break
        assert (await client.explain("e")).holders == ()


async def test_a_term_that_was_resigned_is_not_entered() -> None:
    """Nothing is held: whoever enters it all the same is told so, and the loop can go on."""
    async with service() as url, aio.connect(url) as client:
        election = client.election("e")
        async with aclosing(election.terms()) as terms:
            term = await anext(terms)
            await election.resign()
            with pytest.raises(NotOwner, match="released before"):
                async with term:
                    await asyncio.sleep(PATIENCE_S)
            async with await anext(terms) as later:
                assert later.epoch > term.epoch


# Parts.


def test_only_its_own_loss_is_a_loss() -> None:
    """Not that of another fence, or of other names."""
    grant = Grant(Terms(("e",)), 7, Trust(1, 1))
    assert is_loss_of(grant, grant.why())
    assert is_loss_of(grant, ExceptionGroup("two", [grant.why(), grant.why()]))
    assert not is_loss_of(grant, HoldLost("x", names=("e",), fence=8))
    assert not is_loss_of(grant, HoldLost("x", names=("f",), fence=7))
    assert not is_loss_of(grant, ExceptionGroup("two", [grant.why(), KeyError()]))
    assert not is_loss_of(grant, None)


def test_pauses_grow_to_a_bound() -> None:
    """And begin anew after a campaign that was won."""
    pauses = Pauses()
    drawn = [pauses.next() for _ in range(8)]
    assert drawn == sorted(drawn)
    assert (drawn[0], drawn[-1]) == (0.05, 1.0)
    pauses.reset()
    assert pauses.next() == 0.05
