"""Explanations of names with very many holders or waiters: some are listed, all are counted."""

import pytest

import fencehold
from fencehold import aio
from fencehold.client.info_pages import InfoPages
from fencehold.core.commands import Acquire, Mode, OpenSession
from fencehold.core.limits import Limits
from fencehold.drivers.resp.wire import command
from fencehold.errors import LockTimeout, UsageError
from fencehold.locks.views import A_FEW, Explanation, Holder, Waiting, limited, party
from tests.unit.doors.box import Box, serving
from tests.unit.doors.test_pages import submit

WHO = party(1, "", None)


async def _crowded(box: Box) -> None:
    """`read` with 2 500 holders, and `busy` with one and 2 500 waiters."""
    await submit(box, OpenSession(60_000, meta='{"client":"crowd"}'))
    await submit(
        box,
        *(Acquire(1, ("read",), mode=Mode.SHARED) for _ in range(2_500)),
        Acquire(1, ("busy",)),
        *(Acquire(1, ("busy",), 1 + number, wait_ms=-1) for number in range(2_500)),
    )


async def test_an_explanation_lists_some_and_counts_all() -> None:
    """A hundred of each unless it is told otherwise; with a limit of None all of them, page by page."""
    async with serving(limits=Limits(waiters_per_name_max=10_000)) as box:
        await _crowded(box)
        async with aio.connect(f"fencehold://127.0.0.1:{box.server.port}") as client:
            seen = await client.explain("busy")
            assert (len(seen.queue), seen.more_waiters, seen.waiter_count) == (100, 2_400, 2_500)
            assert (len(seen.holders), seen.more_holders, seen.holder_count) == (1, 0, 1)
            assert str(seen).endswith("with fence 2501; 2500 wait")
            for limit, listed in ((1, 1), (1_500, 1_500), (None, 2_500), (9_999, 2_500)):
                seen = await client.explain("busy", limit=limit)
                assert [waiting.position for waiting in seen.queue] == list(range(listed))
                assert seen.waiter_count == 2_500
                seen = await client.explain("read", limit=limit)
                assert [holder.fence for holder in seen.holders] == list(range(1, listed + 1))
                assert seen.holder_count == 2_500
            assert "and 2499 more; no waiters" in str(await client.explain("read"))
            assert (await client.explain("free", limit=None)).holder_count == 0
            with pytest.raises(LockTimeout, match="2500 wait") as caught:
                async with client.lock("busy", timeout=0):
                    pass
            assert isinstance(caught.value.explanation, Explanation)
            assert len(caught.value.explanation.queue) == A_FEW
            with pytest.raises(
                UsageError, match="limit must be a whole number of 1 or more, or None for all, not 0"
            ):
                await client.explain("busy", limit=0)


def test_a_backend_lists_some_too() -> None:
    """`limit` means the same wherever a client has its locks."""
    with fencehold.connect("memory://") as client, client.lock("a"):
        assert len(client.explain("a", limit=1).holders) == 1
        with pytest.raises(UsageError, match="limit"):
            client.explain("a", limit=-1)
    holders = tuple(Holder(WHO, fence, "S", 0, 0.0, None, None) for fence in range(1, 6))
    queue = tuple(Waiting(place, WHO, "X", ("a",), 0.0, None) for place in range(3))
    seen = limited(Explanation("a", holders, queue, 0.0), 2)
    assert (seen.holders, seen.more_holders, seen.queue, seen.more_waiters) == (holders[:2], 3, queue[:2], 1)
    assert (seen.holder_count, seen.waiter_count) == (5, 3)
    assert limited(limited(seen, 1), None).holder_count == 5


def test_a_reading_ends_though_others_come() -> None:
    """It reads as many as there were when it began: a queue may grow as fast as it is read."""
    pages = InfoPages("a", None, stale=True)
    assert pages.words() == command("LOCK.INFO", "a", "COUNT", 1_000, "STALE")
    asked = 0
    while pages.words() is not None:
        asked += 1
        assert asked <= 3
        waiters = [_waiter(asked * 10 + place) for place in range(10)]
        counts = {
            b"hold_count": 0,
            b"waiter_count": 25 * asked,
            b"holds_cursor": 0,
            b"waiters_cursor": asked * 10 + 9,
        }
        pages.take({b"name": b"a", b"holds": [], b"waiters": waiters, b"delayed_ms": 0, **counts})
    assert len(pages.explanation().queue) == 30
    assert pages.explanation().more_waiters == 0


def _waiter(ticket: int) -> dict[bytes, object]:
    return {
        b"session": 1,
        b"owner": b"",
        b"ticket": ticket,
        b"mode": b"X",
        b"names": [b"a"],
        b"waited_ms": 0,
        b"left_ms": -1,
        b"session_meta": b"",
    }
