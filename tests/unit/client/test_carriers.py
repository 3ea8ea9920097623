"""A carrier with a breaker, and one that lets callers go on: what is handed on, and what is not."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from fencehold.client.aio.carriers import BreakerCarrier, ProceedCarrier
from fencehold.client.aio.hold import Claim
from fencehold.client.aio.lock import Lock
from fencehold.client.circuit import CircuitBreaker, Pace
from fencehold.errors import (
    Deadlock,
    NotOwner,
    OutcomeUnknown,
    Overloaded,
    PermissionDenied,
    Unavailable,
    UsageError,
)
from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import Answer, AtOnce, Carrier, current_task
from fencehold.locks.identity import Owners, Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, State, Trust
from fencehold.locks.views import Explanation
from tests.unit.client.service import run, until

TERMS = Terms(("report",))
AWAY = Unavailable("nobody answers")
BUSY = Overloaded("too much to do", retry_after_s=0.1)


class Scripted:
    """A carrier to a backend that does as it is told."""

    guarantees = Guarantees("fake", True, True, True, True, True, 30.0, "none")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = 1000.0
        self.owners = Owners()
        self.calls: list[str] = []
        self.outcome: BaseException | None = None
        self.is_had = False
        """Whether somebody else has the name."""
        self.going_on = asyncio.Event()
        self.going_on.set()
        self.at_once: AtOnce | None = None

    def clock(self) -> float:
        return self.now

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        await self._do("acquire")
        return None if self.is_had else granted(terms)

    def release(self, grant: Grant) -> Awaitable[None]:
        self.calls.append("release")
        grant.ending = "released"
        done = self.loop.create_future()
        done.set_result(None)
        return done

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        self.calls.append("extend")

    async def explain(self, name: str, *, stale: bool = False, limit: int | None = None) -> Explanation:
        await self._do("explain")
        return Explanation(name, (), (), 0.0)

    async def break_hold(self, name: str, fence: int) -> int:
        self.calls.append("break")
        return 0

    def changes(self, name: str) -> AbstractAsyncContextManager[AsyncIterator[object]]:
        raise NotImplementedError

    async def ready(self) -> None:
        await self._do("ready")

    async def close(self) -> None:
        self.calls.append("close")

    async def _do(self, call: str) -> None:
        self.calls.append(call)
        await self.going_on.wait()
        if self.outcome is not None:
            raise self.outcome


class Thread:
    """A thread's own way to the backend."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls: list[str] = []

    def acquire(self, terms: Terms, who: Who) -> Answer:
        self.calls.append("acquire")
        return self.answer

    def release(self, grant: Grant) -> bool:
        self.calls.append("release")
        return True

    def release_unclaimed(self, grant: Grant) -> None:
        self.calls.append("release_unclaimed")


def granted(terms: Terms) -> Grant:
    trust = Trust(30.0, 1.0)
    trust.end, trust.attached = 2000.0, True
    return Grant(terms, 7, trust)


def way_of(carrier: Carrier) -> AtOnce | None:
    """The way for threads, at this moment."""
    return carrier.at_once


def breaking(inner: Carrier) -> BreakerCarrier:
    return BreakerCarrier(
        inner, CircuitBreaker(lambda: 0.0, Pace(failures_max=2, pause_s=10, pause_s_max=60)), probe_s=1.0
    )


async def ask(carrier: Carrier) -> Grant | None:
    return await carrier.acquire(TERMS, current_task())


async def opened(inner: Scripted, carrier: Carrier) -> None:
    """Let a breaker open, and forget the calls that took."""
    inner.outcome = AWAY
    for _ in range(2):
        with pytest.raises(Unavailable, match="nobody answers"):
            await ask(carrier)
    inner.calls.clear()


def case(test: Callable[[Scripted, BreakerCarrier], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        inner = Scripted()
        await test(inner, breaking(inner))

    run(main())


def test_a_backend_that_is_busy_is_not_away() -> None:
    """It said so itself: no breaker opens, and everybody is told that it is busy, however often."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        inner.outcome = BUSY
        for _ in range(5):
            with pytest.raises(Overloaded, match="too much to do"):
                await ask(carrier)
        assert inner.calls == ["acquire"] * 5

    case(test)


def test_a_probe_that_is_told_busy_closes_the_breaker() -> None:
    """The backend is there again; what it says to the acquire is another matter."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        await opened(inner, carrier)
        inner.outcome = BUSY
        inner.now += 60.0
        with pytest.raises(Overloaded):
            await ask(carrier)
        assert inner.calls == ["explain", "acquire"]

    case(test)


def test_what_is_away_is_not_asked_while_the_breaker_is_open() -> None:
    """It fails at once, and says when it will be tried again, and why it is not."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        await opened(inner, carrier)
        with pytest.raises(Unavailable, match=r"fake:// cannot be reached; next try in 10.0 s: nobody answers"):
            await ask(carrier)
        with pytest.raises(Unavailable, match=r"next try in 10\.0 s"):
            await carrier.explain("report")
        assert inner.calls == []

    case(test)


def test_what_is_had_is_given_back_while_the_breaker_is_open() -> None:
    """Nothing that only concerns what was granted before is kept from its backend."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        grant = await ask(carrier)
        assert grant is not None
        await opened(inner, carrier)
        await carrier.extend(grant, 5.0)
        await carrier.release(grant)
        await carrier.break_hold("report", 0)
        await carrier.close()
        assert inner.calls == ["extend", "release", "break", "close"]

    case(test)


def test_a_probe_is_a_question_and_then_the_caller_goes_on() -> None:
    """Who comes when the pause is over looks first, and then gets what was asked for."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        await opened(inner, carrier)
        inner.now += 10.0
        inner.outcome = None
        assert await ask(carrier) is not None
        assert inner.calls == ["explain", "acquire"]
        inner.calls.clear()
        assert await ask(carrier) is not None
        assert inner.calls == ["acquire"]

    case(test)


def test_a_probe_that_fails_costs_one_question() -> None:
    """Its caller is told what was said, and it is open again."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        await opened(inner, carrier)
        inner.now += 10.0
        with pytest.raises(Unavailable, match="nobody answers"):
            await ask(carrier)
        with pytest.raises(Unavailable, match=r"next try in 20.0 s"):
            await ask(carrier)
        assert inner.calls == ["explain"]

    case(test)


def test_a_probe_that_hangs_ends() -> None:
    """It has as long as it takes to connect."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        await opened(inner, carrier)
        inner.now += 10.0
        inner.going_on.clear()
        carrier._probe_s = 0.01
        with pytest.raises(Unavailable, match=r"did not answer in 0.01 s"):
            await ask(carrier)

    case(test)


def test_one_probes_and_the_others_are_turned_away() -> None:
    """A backend that comes back is not met by all who missed it; a probe that is cancelled is another's."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        await opened(inner, carrier)
        inner.now += 10.0
        inner.outcome = None
        inner.going_on.clear()
        probing = asyncio.create_task(ask(carrier))
        await until(lambda: inner.calls == ["explain"])
        with pytest.raises(Unavailable):
            await ask(carrier)
        probing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probing
        inner.going_on.set()
        assert await ask(carrier) is not None
        assert inner.calls == ["explain", "explain", "acquire"]

    case(test)


@pytest.mark.parametrize("refusal", [Deadlock("a circle"), UsageError("no"), PermissionDenied("not you"), None])
def test_a_refusal_is_an_answer(refusal: BaseException | None) -> None:
    """Whoever says no is there: it ends the count of failures, and a probe that is refused has found somebody."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        inner.is_had = True
        for _ in range(3):
            inner.outcome = AWAY
            with pytest.raises(Unavailable):
                await ask(carrier)
            inner.outcome = refusal
            if refusal is None:
                assert await ask(carrier) is None
            else:
                with pytest.raises(type(refusal)):
                    await ask(carrier)
        await opened(inner, carrier)
        inner.now += 10.0
        inner.outcome = PermissionDenied("not this question")
        with pytest.raises(PermissionDenied):
            await ask(carrier)
        assert inner.calls == ["explain", "acquire"]

    case(test)


def test_an_unknown_outcome_is_silence() -> None:
    """Nothing was heard, so it counts as a failure; and it is told as what it is."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        inner.outcome = OutcomeUnknown("no answer")
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                await ask(carrier)
        with pytest.raises(Unavailable, match="no answer"):
            await ask(carrier)

    case(test)


def test_a_thread_asks_by_itself_while_the_breaker_is_closed() -> None:
    """What it hears ends the count of failures; while it is open, no thread finds out for itself."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        assert way_of(carrier) is None
        inner.at_once = thread = Thread(Answer(None, is_known=True))
        inner.outcome = AWAY
        for _ in range(3):
            with pytest.raises(Unavailable):
                await ask(carrier)
            way = way_of(carrier)
            assert way is not None
            assert way.acquire(TERMS, current_task()).is_known
            assert way.release(granted(TERMS))
        thread.answer = Answer(None, is_known=False)
        assert way is not None
        assert not way.acquire(TERMS, current_task()).is_known
        await opened(inner, carrier)
        assert way_of(carrier) is None
        assert thread.calls == ["acquire", "release"] * 3 + ["acquire"]

    case(test)


def test_a_thread_that_is_interrupted_when_it_was_granted_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if that is just when the breaker is told."""

    def interrupt(_: CircuitBreaker) -> None:
        raise KeyboardInterrupt

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        inner.at_once = thread = Thread(Answer(granted(TERMS), is_known=True))
        way = way_of(carrier)
        assert way is not None
        monkeypatch.setattr(CircuitBreaker, "on_heard", interrupt)
        with pytest.raises(KeyboardInterrupt):
            way.acquire(TERMS, current_task())
        assert thread.calls == ["acquire", "release_unclaimed"]

    case(test)


def test_opening_and_closing_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Once each, whatever is asked meanwhile."""

    async def test(inner: Scripted, carrier: BreakerCarrier) -> None:
        await opened(inner, carrier)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await ask(carrier)
        inner.now += 10.0
        inner.outcome = None
        await ask(carrier)

    with caplog.at_level(logging.INFO, "fencehold"):
        case(test)
    assert [record.message for record in caplog.records] == [
        "fake:// cannot be reached; next try in 10.0 s: nobody answers",
        "fake:// can be reached again",
    ]


def proceeding(test: Callable[[Scripted, ProceedCarrier], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        inner = Scripted()
        await test(inner, ProceedCarrier(inner, ttl=30.0))

    run(main())


@pytest.mark.parametrize("outcome", [AWAY, OutcomeUnknown("no answer")])
def test_who_may_goes_on_without_a_lock(outcome: BaseException) -> None:
    """The claim says so, is never lost, and giving it back asks nobody."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        inner.outcome = outcome
        claim = await Lock(carrier, TERMS, Claim).acquire()
        assert claim is not None
        assert not claim.is_protected
        assert repr(claim) == "<Claim 'report' unprotected held>"
        inner.now += 1e6
        assert (claim.state, claim.safe_for(), claim.lost.is_set()) == (State.HELD, 30.0, False)
        claim.check()
        await claim.extend(5.0)
        await claim.release()
        assert claim.state is State.RELEASED
        with pytest.raises(NotOwner):
            await claim.release()
        assert inner.calls == ["acquire"]

    proceeding(test)


def test_what_is_granted_is_protected_and_given_back() -> None:
    """While the backend is there, all is as ever."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        async with Lock(carrier, TERMS, Claim) as claim:
            assert claim.is_protected
            await claim.extend(5.0)
        assert inner.calls == ["acquire", "extend", "release"]

    proceeding(test)


def test_a_claim_without_a_lock_is_left_like_any_other() -> None:
    """Whichever way its body ends. Forgotten, it gives no warning: nothing is kept from anybody."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        inner.outcome = AWAY
        async with Lock(carrier, TERMS, Claim) as claim:
            pass
        assert claim.state is State.RELEASED
        with pytest.raises(KeyError):
            async with Lock(carrier, TERMS, Claim) as claim:
                raise KeyError
        kept = await Lock(carrier, TERMS, Claim).acquire()
        assert kept is not None
        await kept._leave(None)
        assert kept.state is State.RELEASED
        assert await Lock(carrier, TERMS, Claim).acquire() is not None
        assert "release" not in inner.calls

    proceeding(test)


def test_a_thread_that_goes_on_without_a_lock_has_nothing_to_give_back() -> None:
    """By its own way it gives back what is protected; the rest is for the loop, which asks nobody either."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        assert way_of(carrier) is None
        inner.at_once = thread = Thread(Answer(granted(TERMS), is_known=True))
        inner.outcome = AWAY
        way, unprotected = way_of(carrier), await ask(carrier)
        assert way is not None
        assert unprotected is not None
        assert not way.release(unprotected)
        protected = way.acquire(TERMS, current_task()).grant
        assert protected is not None
        assert way.release(protected)
        assert thread.calls == ["acquire", "release"]

    proceeding(test)


def test_a_refusal_is_not_gone_on_without() -> None:
    """Whoever is told that another has the name, or that the call is wrong, does not go on."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        inner.is_had = True
        assert await ask(carrier) is None
        inner.outcome = Deadlock("a circle")
        with pytest.raises(Deadlock):
            await ask(carrier)

    proceeding(test)


def test_questions_do_not_go_on_without_an_answer() -> None:
    """Nobody knows who has a name whose backend is away."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        inner.outcome = AWAY
        with pytest.raises(Unavailable):
            await carrier.explain("report")

    proceeding(test)


def test_the_guarantees_of_who_may_go_on_are_less() -> None:
    """One holder, a fence and an order of grants are not promised, whatever the backend gives."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        given = carrier.guarantees
        assert (given.linearizable, given.fenced, given.fence_survives_failover, given.fair) == (False,) * 4
        assert given.survives_failover

    proceeding(test)


def test_busy_is_gone_on_without() -> None:
    """Whoever was told so for as long as it asked has heard nothing of the name."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        inner.outcome = BUSY
        grant = await ask(carrier)
        assert grant is not None
        assert not grant.is_protected

    proceeding(test)


def test_going_on_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """With how often it happened; at the start, too."""

    async def test(inner: Scripted, carrier: ProceedCarrier) -> None:
        inner.outcome = AWAY
        await carrier.ready()
        for _ in range(5):
            await ask(carrier)
        inner.now += 10.0
        await ask(carrier)

    proceeding(test)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "beginning without fake:// (1 times since the last warning): nobody answers"),
        ("WARNING", "going on without a lock on 'report' (6 times since the last warning): nobody answers"),
    ]
