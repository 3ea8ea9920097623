"""Other kinds of locks: given, or refused before anything happens."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

import pytest

import fencehold
from fencehold import Unsupported, UsageError, aio
from tests.behaviour.asking import blocking, connect
from tests.behaviour.ground import Ground

BEST = {"timeout": 10}


def test_what_is_not_declared_is_refused_first(ground: Ground, new_name: Callable[[], str]) -> None:
    """In both clients, with an error that names it; and what is declared is not refused."""
    given = ground.expected
    one, two = new_name(), new_name()
    with blocking(ground) as client:
        asked: dict[str, Callable[[], object]] = {
            "multi": lambda: client.multi([one, two], tier=ground.tier),
            "shared": lambda: client.lock(one, shared=True, tier=ground.tier),
            "semaphores": lambda: client.semaphore(one, 2, tier=ground.tier),
            "delays": lambda: client.lock(one, delay=1, tier=ground.tier),
            "at_least": lambda: client.once(one, at_most=2, at_least=1, tier=ground.tier),
            "watches": lambda: client.watch(one, tier=ground.tier),
        }
        for feature, ask in asked.items():
            if getattr(given, feature):
                ask()
            else:
                with pytest.raises(Unsupported):
                    ask()
        if not given.shared:
            with pytest.raises(Unsupported):
                client.rwlock(one, tier=ground.tier)
        assert not client.lock(one, tier=ground.tier).locked()


async def test_a_semaphore_has_so_many_permits(ground: Ground, name: str) -> None:
    """Never more holders than permits; and all come to their turn."""
    if not ground.expected.semaphores:
        return

    inside = most = done = 0

    async def work(client: aio.Client) -> None:
        nonlocal inside, most, done
        async with client.semaphore(name, 3, tier=ground.tier, timeout=60):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1
            done += 1

    async with connect(ground) as one, connect(ground) as other:
        await asyncio.gather(*(work((one, other)[each % 2]) for each in range(12)))
        assert (most <= 3, done) == (True, 12)
        permits = [await one.semaphore(name, 3, tier=ground.tier, timeout=10).acquire() for _ in range(3)]
        assert await other.semaphore(name, 3, tier=ground.tier, timeout=0).acquire() is None
        with pytest.raises(UsageError):
            await other.semaphore(name, 4, tier=ground.tier, timeout=0).acquire()
        for permit in permits:
            assert permit is not None
            await permit.release()


async def test_readers_share_and_a_writer_does_not(ground: Ground, name: str) -> None:
    """Where shared locks are declared."""
    if not ground.expected.shared:
        return

    async with connect(ground) as one, connect(ground) as other:
        first, second = one.rwlock(name, tier=ground.tier), other.rwlock(name, tier=ground.tier)
        async with first.read(), second.read():
            assert await second.write().acquire(timeout=0) is None
        async with second.write():
            assert await first.read().acquire(timeout=0) is None
        async with first.read():
            pass


async def test_an_election_has_one_leader(ground: Ground, name: str) -> None:
    """Others see who it is, and one of them follows when it resigns."""
    async with connect(ground, name="first") as one, connect(ground, name="second") as other:
        election, rival = one.election(name, tier=ground.tier), other.election(name, tier=ground.tier)
        term = await election.campaign()
        assert term is not None
        assert await rival.campaign(timeout=0.1) is None
        leader = await rival.leader()
        assert leader is not None
        assert (leader.party.client, leader.party.pid) == ("first", os.getpid())
        observing = rival.observe()
        seen = await anext(observing)
        assert seen is not None
        campaigning = asyncio.create_task(rival.campaign(timeout=30))
        await election.resign()
        next_term = await campaigning
        assert next_term is not None
        async with asyncio.timeout(20):
            async for seen in observing:
                if seen is not None and seen.party.client == "second":
                    break
        await observing.aclose()
        await rival.resign()


def test_a_blocking_election_has_one_leader(ground: Ground, name: str) -> None:
    """The same for threads."""
    with blocking(ground, name="first") as one, blocking(ground, name="second") as other:
        election, rival = one.election(name, tier=ground.tier), other.election(name, tier=ground.tier)
        assert election.campaign() is not None
        assert rival.campaign(timeout=0.1) is None
        observing = rival.observe()
        seen = next(observing)
        assert seen is not None
        election.resign()
        assert rival.campaign(timeout=30) is not None
        assert any(seen is not None and seen.party.client == "second" for seen in observing)
        observing.close()
        rival.resign()


async def test_a_candidate_campaigns_again(ground: Ground, name: str) -> None:
    """After it has left its term, and after it has lost it; a rival leads between."""
    async with connect(ground, ttl=3) as one, connect(ground) as other:
        led = 0
        async for term in one.election(name, tier=ground.tier).terms():
            async with term:
                led += 1
                if led == 2:
                    with suppress(Unsupported):
                        await other.break_hold(name, tier=ground.tier)
                        await asyncio.Event().wait()
            async with other.lock(name, tier=ground.tier, timeout=30):
                assert term.safe_for() == 0
            if led == 3:
                break
        assert not await other.lock(name, tier=ground.tier).locked()


def test_a_candidate_on_a_thread_campaigns_again(ground: Ground, name: str) -> None:
    """The same for threads."""
    with blocking(ground) as one, blocking(ground) as other:
        led = 0
        for term in one.election(name, tier=ground.tier).terms():
            with term:
                term.check()
                led += 1
            with other.lock(name, tier=ground.tier, timeout=30):
                assert term.safe_for() == 0
            if led == 2:
                break
        assert not other.lock(name, tier=ground.tier).locked()


def test_a_lock_may_be_taken_again_by_who_has_it(ground: Ground, name: str) -> None:
    """By an `rlock`, and by nothing else."""
    with blocking(ground) as client:
        lock = client.rlock(name, tier=ground.tier)
        with lock, lock:
            assert client.lock(name, tier=ground.tier).acquire(timeout=0) is None
        assert not lock.locked()


async def test_many_names_are_as_many_locks(ground: Ground, name: str) -> None:
    """However much they look alike; all are held at the same time."""
    odd = [
        "",
        " ",
        "A",
        "a",
        "ä",
        "a%",
        "a_",
        "a'",
        'a"',
        "a\\",
        "a/",
        "a:",
        "a*",
        "a\x01",
        "日本",
        "😀",
        "a" * 180,
    ]

    count = ground.names_at_once
    names = [f"{name}/{each}" for each in odd] + [f"{name}.{each}" for each in range(count - len(odd))]
    async with connect(ground, ttl=120) as client, connect(ground) as other:
        gate = asyncio.Semaphore(64)

        async def take(each: str) -> aio.Claim | None:
            async with gate:
                return await client.lock(each, tier=ground.tier, timeout=0).acquire()

        held = await asyncio.gather(*(take(each) for each in names))
        assert [each for each, hold in zip(names, held, strict=True) if hold is None] == []
        assert await other.lock(names[7], tier=ground.tier, timeout=0).acquire() is None
        for hold in held:
            assert hold is not None
            hold._grant.on_lost = None


def test_a_child_process_inherits_no_hold(ground: Ground, name: str) -> None:
    """It may use the client, as a stranger; and what it does changes nothing for its parent."""
    with blocking(ground) as client:
        lock = client.lock(name, tier=ground.tier)
        with lock as hold:
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    # In memory a child has a service of its own, with nothing held in it.
                    alone = ground.expected.backend == "memory"
                    found = lock.acquire(timeout=0)
                    code = 0 if (found is not None) == alone else 2
                    if found is not None:
                        found.release()
                    client.close()
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert hold.safe_for() > 0
            assert client.lock(name, tier=ground.tier).acquire(timeout=0) is None
        assert not lock.locked()


def test_a_lazy_client_connects_in_the_process_that_uses_it(ground: Ground, name: str) -> None:
    """A child that inherits one that was never used, and its parent after that."""
    with blocking(ground, lazy=True) as client:
        lock = client.lock(name, tier=ground.tier, timeout=30)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with lock as hold:
                    hold.check()
                client.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with lock as hold:
            hold.check()


def test_what_cannot_be_a_name_is_refused(ground: Ground) -> None:
    """Before anything happens."""
    with blocking(ground) as client, pytest.raises(UsageError):
        client.lock("", tier=ground.tier)


async def test_a_job_runs_once(ground: Ground, name: str) -> None:
    """Who comes while it runs does nothing."""
    ran: list[int] = []

    async with connect(ground) as one, connect(ground) as other:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def job() -> int:
            ran.append(1)
            begun.set()
            await go_on.wait()
            return 7

        first = one.once(name, at_most=30, tier=ground.tier)(job)
        second = other.once(name, at_most=30, tier=ground.tier)(job)
        running = asyncio.create_task(first())
        await begun.wait()
        assert await second() is None
        go_on.set()
        assert await running == 7
    assert ran == [1]
    assert fencehold.current_hold() is None
