"""What a type checker says: a `Claim` has no fence, so it is refused wherever one is needed; a `Hold` has. And
`acquire` and `campaign` return None only where a time to wait was given, by the call or by the lock.

And an `async def` with a blocking lock around it, whose body would run without the lock, cannot be called.

One run of mypy looks at a sample. Each line of it that ends in `# refused: CODE` gives that error, and no other
line gives any.
"""

import re
from pathlib import Path

import pytest
from mypy import api

SAMPLE = """
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from typing import NoReturn, assert_type

import fencehold
from fencehold.client.aio.client import Connecting
from fencehold import CORRECTNESS, EFFICIENCY, Claim, Duration, Hold, Holding, Leadership, Tier, aio


def guard(hold: Holding) -> int:
    return hold.fence


def guarded_by_threads(hold: Hold) -> None: ...


def guarded_by_tasks(hold: aio.Hold) -> None: ...


def threads(client: fencehold.Client, tier: Tier, seconds: Duration | None, blocking: bool) -> None:
    with client.lock("x") as hold:
        assert_type(hold, Hold)
        guard(hold)
        guarded_by_threads(hold)
        guarded_by_tasks(hold)  # refused: arg-type
    with client.lock("x", tier=CORRECTNESS) as hold:
        guard(hold)
    with client.lock("x", tier=EFFICIENCY) as claim:
        assert_type(claim, Claim)
        claim.fence  # refused: attr-defined
        guard(claim)  # refused: arg-type
        guarded_by_threads(claim)  # refused: arg-type
        claim.check()
        print(claim.is_protected)
    with client.lock("x", tier=tier) as claim:
        claim.fence  # refused: attr-defined
    with client.lock("x", tier="correctness") as hold, client.lock("x", tier="efficiency") as claim:
        guard(hold)
        guard(claim)  # refused: arg-type

    assert_type(client.lock("x").acquire(), Hold)
    assert_type(client.lock("x", ttl="30s", meta="m").acquire(blocking=True), Hold)
    assert_type(client.lock("x").acquire(timeout=None), Hold)
    assert_type(client.lock("x", timeout=None).acquire(timeout=-1), Hold)
    assert_type(client.lock("x").acquire(timeout=5), Hold | None)
    assert_type(client.lock("x").acquire(timeout=seconds), Hold | None)
    assert_type(client.lock("x").acquire(blocking=False), Hold | None)
    assert_type(client.lock("x").acquire(blocking=blocking), Hold | None)
    assert_type(client.lock("x", timeout=5).acquire(), Hold | None)
    assert_type(client.lock("x", timeout="5s").acquire(timeout=None), Hold)
    assert_type(client.lock("x", timeout=seconds).acquire(), Hold | None)
    assert_type(client.lock("x", tier=EFFICIENCY).acquire(), Claim)
    assert_type(client.lock("x", tier=tier, timeout=0).acquire(), Claim | None)
    assert_type(client.multi(["x"]).acquire(), Hold)
    assert_type(client.multi(["x"], timeout=1).acquire(), Hold | None)
    assert_type(client.semaphore("x", 2).acquire(), Hold)
    assert_type(client.semaphore("x", 2, timeout=1).acquire(), Hold | None)
    assert_type(client.rlock("x").acquire(), Hold)
    assert_type(client.rlock("x").acquire(timeout=1), Hold | None)
    assert_type(client.rlock("x", timeout=1).acquire(), Hold | None)
    assert_type(client.rwlock("x").read().acquire(), Hold)
    assert_type(client.rwlock("x", tier=EFFICIENCY).write().acquire(), Claim)
    assert_type(client.rwlock("x", timeout=1).write().acquire(), Hold | None)
    passed_on: fencehold.Lock[Hold] = client.lock("x")
    assert_type(passed_on.acquire(), Hold | None)
    untimed: fencehold.UntimedLock[Hold] = client.lock("x", timeout=5)  # refused: assignment
    guard(client.lock("x", timeout=1).acquire())  # refused: arg-type
    guard(client.lock("x", tier=EFFICIENCY).acquire())  # refused: arg-type
    client.lock("x", shard=True)  # refused: call-overload

    with client.multi(["x", "y"]) as hold, client.multi(["x", "y"], tier=EFFICIENCY) as claim:
        guard(hold)
        guard(claim)  # refused: arg-type
    with client.semaphore("x", 2) as hold, client.semaphore("x", 2, tier=EFFICIENCY) as claim:
        guard(hold)
        guard(claim)  # refused: arg-type
    with client.rlock("x") as hold, client.rlock("x", tier=EFFICIENCY) as claim:
        guard(hold)
        guard(claim)  # refused: arg-type
    with client.rwlock("x").read() as hold, client.rwlock("x", tier=EFFICIENCY).read() as claim:
        guard(hold)
        guard(claim)  # refused: arg-type
    with client.rwlock("x").write() as hold, client.rwlock("x", tier=EFFICIENCY).write() as claim:
        guard(hold)
        guard(claim)  # refused: arg-type

    term = client.election("x").campaign()
    assert_type(term, Leadership)
    guard(term)
    print(term.epoch)
    assert_type(client.election("x").campaign(timeout=5), Leadership | None)
    assert_type(client.election("x").campaign(timeout=seconds), Leadership | None)
    turn = client.election("x", tier=EFFICIENCY).campaign()
    assert_type(turn, Claim)
    guard(turn)  # refused: arg-type
    print(turn.epoch)  # refused: attr-defined

    for term in client.election("x").terms():
        assert_type(term, fencehold.Term)
        with term as entered:
            guard(entered)
            print(entered.epoch)
    for turn in client.election("x", tier=EFFICIENCY).terms():
        assert_type(turn, fencehold.Turn)
        guard(turn)  # refused: arg-type

    anything: fencehold.Lock[Claim] = client.lock("x")
    protected: fencehold.Lock[Hold] = client.lock("x", tier=EFFICIENCY)  # refused: assignment


assert_type(fencehold.connect(lazy=True), fencehold.Client)
assert_type(aio.connect(lazy=True), aio.Client)
assert_type(aio.connect("memory://", ttl="1m"), Connecting)
aio.connect(lazzy=True)  # refused: call-overload


async def tasks(client: aio.Client, tier: Tier, seconds: Duration | None, blocking: bool) -> None:
    async with client.lock("x") as hold:
        assert_type(hold, aio.Hold)
        guard(hold)
        guarded_by_tasks(hold)
        guarded_by_threads(hold)  # refused: arg-type
    async with client.lock("x", tier=CORRECTNESS) as hold:
        guard(hold)
    async with client.lock("x", tier=EFFICIENCY) as claim:
        assert_type(claim, aio.Claim)
        claim.fence  # refused: attr-defined
        guard(claim)  # refused: arg-type
        guarded_by_tasks(claim)  # refused: arg-type
        print(claim.is_protected)
    async with client.lock("x", tier=tier) as claim:
        claim.fence  # refused: attr-defined

    assert_type(await client.lock("x").acquire(), aio.Hold)
    assert_type(await client.lock("x", ttl="30s", meta="m").acquire(blocking=True), aio.Hold)
    assert_type(await client.lock("x").acquire(timeout=None), aio.Hold)
    assert_type(await client.lock("x", timeout=None).acquire(timeout=-1), aio.Hold)
    assert_type(await client.lock("x").acquire(timeout=5), aio.Hold | None)
    assert_type(await client.lock("x").acquire(timeout=seconds), aio.Hold | None)
    assert_type(await client.lock("x").acquire(blocking=False), aio.Hold | None)
    assert_type(await client.lock("x").acquire(blocking=blocking), aio.Hold | None)
    assert_type(await client.lock("x", timeout=5).acquire(), aio.Hold | None)
    assert_type(await client.lock("x", timeout="5s").acquire(timeout=None), aio.Hold)
    assert_type(await client.lock("x", timeout=seconds).acquire(), aio.Hold | None)
    assert_type(await client.lock("x", tier=EFFICIENCY).acquire(), aio.Claim)
    assert_type(await client.lock("x", tier=tier, timeout=0).acquire(), aio.Claim | None)
    assert_type(await client.multi(["x"]).acquire(), aio.Hold)
    assert_type(await client.multi(["x"], timeout=1).acquire(), aio.Hold | None)
    assert_type(await client.semaphore("x", 2).acquire(), aio.Hold)
    assert_type(await client.semaphore("x", 2, timeout=1).acquire(), aio.Hold | None)
    assert_type(await client.rlock("x").acquire(), aio.Hold)
    assert_type(await client.rlock("x").acquire(timeout=1), aio.Hold | None)
    assert_type(await client.rlock("x", timeout=1).acquire(), aio.Hold | None)
    assert_type(await client.rwlock("x").read().acquire(), aio.Hold)
    assert_type(await client.rwlock("x", tier=EFFICIENCY).write().acquire(), aio.Claim)
    assert_type(await client.rwlock("x", timeout=1).write().acquire(), aio.Hold | None)
    passed_on: aio.Lock[aio.Hold] = client.lock("x")
    assert_type(await passed_on.acquire(), aio.Hold | None)
    untimed: aio.UntimedLock[aio.Hold] = client.lock("x", timeout=5)  # refused: assignment
    guard(await client.lock("x", timeout=1).acquire())  # refused: arg-type
    guard(await client.lock("x", tier=EFFICIENCY).acquire())  # refused: arg-type
    client.lock("x", shard=True)  # refused: call-overload

    async with client.multi(["x", "y"]) as hold, client.multi(["x", "y"], tier=EFFICIENCY) as claim:
        guard(hold)
        guard(claim)  # refused: arg-type
    async with client.semaphore("x", 2) as hold, client.semaphore("x", 2, tier=EFFICIENCY) as claim:
        guard(hold)
        guard(claim)  # refused: arg-type
    async with client.rlock("x") as hold, client.rlock("x", tier=EFFICIENCY) as claim:
        guard(hold)
        guard(claim)  # refused: arg-type
    async with client.rwlock("x").read() as hold, client.rwlock("x", tier=EFFICIENCY).read() as claim:
        guard(hold)
        guard(claim)  # refused: arg-type
    async with client.rwlock("x").write() as hold, client.rwlock("x", tier=EFFICIENCY).write() as claim:
        guard(hold)
        guard(claim)  # refused: arg-type

    term = await client.election("x").campaign()
    assert_type(term, aio.Leadership)
    guard(term)
    print(term.epoch)
    assert_type(await client.election("x").campaign(timeout=5), aio.Leadership | None)
    assert_type(await client.election("x").campaign(timeout=seconds), aio.Leadership | None)
    turn = await client.election("x", tier=EFFICIENCY).campaign()
    assert_type(turn, aio.Claim)
    guard(turn)  # refused: arg-type
    print(turn.epoch)  # refused: attr-defined

    async for term in client.election("x").terms():
        assert_type(term, aio.Term)
        async with term as entered:
            guard(entered)
            print(entered.epoch)
    async for turn in client.election("x", tier=EFFICIENCY).terms():
        assert_type(turn, aio.Turn)
        guard(turn)  # refused: arg-type

    anything: aio.Lock[aio.Claim] = client.lock("x")
    protected: aio.Lock[aio.Hold] = client.lock("x", tier=EFFICIENCY)  # refused: assignment


async def charge(amount: int) -> int:
    return amount


def plain(amount: int) -> int:
    return amount


def rows(amount: int) -> Generator[int, None, None]:
    yield amount


async def streamed(amount: int) -> AsyncIterator[int]:
    yield amount


def stop(amount: int) -> NoReturn:
    raise KeyError


def decorated_by_threads(client: fencehold.Client, run: Callable[[Callable[[int], object]], None]) -> None:
    for lock in (client.lock("x"), client.multi(["x"]), client.rwlock("x").read()):
        assert_type(lock(plain)(1), int)
        lock(plain)("1")  # refused: arg-type
        lock(charge)(1)  # refused: operator
        lock(partial(charge, 1))()  # refused: operator
        lock(rows)(1)  # refused: operator
        lock(streamed)(1)  # refused: operator
        run(lock(charge))  # refused: arg-type
        stopped: Callable[[int], NoReturn] = lock(stop)
    once = client.once("x", at_most=1)
    assert_type(once(plain)(1), int | None)
    once(charge)(1)  # refused: operator
    once(rows)(1)  # refused: operator
    once(streamed)(1)  # refused: operator
    assert_type(once(stop)(1), None)


async def decorated_by_tasks(client: aio.Client) -> None:
    lock, once = client.lock("x"), client.once("x", at_most=1)
    assert_type(await lock(charge)(1), int)
    assert_type(await once(charge)(1), int | None)
    lock(plain)  # refused: arg-type
    once(plain)  # refused: arg-type
    lock(streamed)  # refused: arg-type
    once(rows)  # refused: arg-type
"""

_REFUSED = re.compile(r"# refused: ([\w-]+)$")
_ERROR = re.compile(r":(\d+): error: .*\[([\w-]+)\]$")


@pytest.mark.slow
def test_a_claim_is_refused_where_a_fence_is_needed(tmp_path: Path) -> None:
    """By every verb of both clients; and a hold is taken."""
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    said, failed, _ = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(sample)])
    assert failed == ""
    found = {(int(match[1]), match[2]) for match in map(_ERROR.search, said.splitlines()) if match}
    wanted = {
        (at, match[1])
        for at, line in enumerate(SAMPLE.splitlines(), 1)
        if (match := _REFUSED.search(line)) is not None
    }
    assert found == wanted, said
    assert len(wanted) == 51
