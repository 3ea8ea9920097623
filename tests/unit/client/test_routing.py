"""Two tiers, two sources: who serves which name, and what happens when one of them is away."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

import fencehold
from fencehold import (
    CORRECTNESS,
    EFFICIENCY,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
    UsageError,
    aio,
    current_hold,
)
from fencehold.server import Config, Server
from rig.processes import free_port
from tests.unit.client.service import run, service, service_on_a_thread, until, until_true

PATIENCE_S = 0.2
"""How long a client in these tests tries to reach what is away."""
RULES = {"wallet:*": CORRECTNESS, "cache:*": EFFICIENCY}


def dead_url() -> str:
    return f"fencehold://127.0.0.1:{free_port()}"


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def test_each_tier_has_its_own_source() -> None:
    """A name in one of them does not meet the same name in the other."""
    async with aio.connect(correctness="memory://a", efficiency="memory://b") as client:
        async with client.lock("report") as hold:
            claim = await client.lock("report", tier=EFFICIENCY, timeout=0).acquire()
            assert claim is not None
            assert (hold.is_protected, claim.is_protected) == (True, True)
            assert len((await client.explain("report")).holders) == 1
            assert len((await client.explain("report", tier=EFFICIENCY)).holders) == 1
            await claim.release()
            assert not (await client.explain("report", tier=EFFICIENCY)).holders
            assert (await client.explain("report", tier=CORRECTNESS)).holders


def test_threads_are_routed_the_same_way() -> None:
    """The blocking client sends each tier to its source."""
    with fencehold.connect(correctness="memory://a", efficiency="memory://b") as client:
        with client.lock("report") as hold, client.lock("report", tier=EFFICIENCY, timeout=0) as claim:
            assert (hold.is_protected, claim.is_protected) == (True, True)
            assert current_hold() is not None
            assert client.explain("report").holders != client.explain("report", tier=EFFICIENCY).holders
        assert not client.explain("report").holders


def test_having_a_name_for_less_is_not_having_it_for_more() -> None:
    """Who may take a lock again has it in the tier it was asked for in, and in no other."""

    async def test() -> None:
        async with (
            aio.connect(correctness="memory://a", efficiency="memory://b") as client,
            client.rlock("wallet:7") as outer,
        ):
            claim = await client.rlock("wallet:7", tier=EFFICIENCY).acquire()
            assert claim is not None
            assert claim is not outer
            async with aio.connect("memory://a") as other:
                assert await other.lock("wallet:7", timeout=0).acquire() is None
            await claim.release()

    run(test())
    with (
        fencehold.connect(correctness="memory://a", efficiency="memory://b") as client,
        client.rlock("wallet:7", tier=EFFICIENCY) as claim,
        client.rlock("wallet:7") as hold,
    ):
        assert hold is not claim
        assert client.explain("wallet:7").holders[0].fence == hold.fence


def test_a_routed_service_can_be_watched() -> None:
    """The breaker around it keeps no event back; on threads neither."""

    async def test() -> None:
        async with (
            aio.connect(correctness="memory://a", efficiency="memory://b") as client,
            client.watch("wallet:", tier=CORRECTNESS) as events,
        ):
            async with client.lock("wallet:7"):
                pass
            assert (await anext(events)).names == ("wallet:7",)

    run(test())
    with (
        fencehold.connect(correctness="memory://a", efficiency="memory://b") as client,
        client.watch("report", tier=EFFICIENCY) as events,
    ):
        with client.lock("report", tier=EFFICIENCY):
            pass
        assert next(events).names == ("report",)


VERBS: dict[str, Callable[[Any, Any], object]] = {
    "lock": lambda client, tier: client.lock("report", tier=tier),
    "multi": lambda client, tier: client.multi(["report", "b"], tier=tier),
    "rwlock": lambda client, tier: client.rwlock("report", tier=tier).read(),
    "semaphore": lambda client, tier: client.semaphore("report", 2, tier=tier),
    "rlock": lambda client, tier: client.rlock("report", tier=tier)._lock,
    "election": lambda client, tier: client.election("report", tier=tier),
    "once": lambda client, tier: client.once("report", at_most=1, tier=tier),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_tier_may_be_its_name(verb: str) -> None:
    """In upper or lower case, with every verb of either client; anything else is told what there is."""

    def check(client: Any) -> None:
        for text, tier in (("efficiency", EFFICIENCY), ("CORRECTNESS", CORRECTNESS)):
            named, given = VERBS[verb](client, text), VERBS[verb](client, tier)
            assert (type(named), getattr(named, "_held", None)) == (type(given), getattr(given, "_held", None))
        _assert_refused(lambda tier: VERBS[verb](client, tier))

    async def test() -> None:
        async with aio.connect(correctness="memory://a", efficiency="memory://b") as client:
            check(client)

    run(test())
    with fencehold.connect(correctness="memory://a", efficiency="memory://b") as client:
        check(client)


def test_looking_takes_a_tier_by_its_name() -> None:
    """Where who has a name is asked for, events are watched, and a hold is broken."""
    with fencehold.connect(correctness="memory://a", efficiency="memory://b") as client:
        hold = client.lock("report", tier="Efficiency").acquire()
        assert hold is not None
        assert client.explain("report", tier="efficiency").holders
        assert not client.explain("report", tier="correctness").holders
        client.watch(tier="efficiency").close()
        assert client.break_hold("report", tier="efficiency")
        assert hold.lost.wait(10)
        _assert_refused(lambda tier: client.explain("report", tier=tier))


def _assert_refused(ask: Callable[[Any], object]) -> None:
    for wrong in ("fast", "", 1):
        known = r'tier is fencehold.EFFICIENCY \("efficiency"\) or fencehold.CORRECTNESS \("correctness"\), not '
        with pytest.raises(UsageError, match=known + repr(wrong)):
            ask(wrong)


def test_rules_outweigh_what_a_caller_says() -> None:
    """A name that is CORRECTNESS is not had for less by any verb; asking for more than a rule says is fine."""
    asks: list[Callable[[fencehold.Client], object]] = [
        lambda client: client.lock("wallet:7", tier=EFFICIENCY),
        lambda client: client.multi(["cache:1", "wallet:7"], tier=EFFICIENCY),
        lambda client: client.rwlock("wallet:7", tier=EFFICIENCY),
        lambda client: client.semaphore("wallet:7", 2, tier=EFFICIENCY),
        lambda client: client.rlock("wallet:7", tier=EFFICIENCY),
        lambda client: client.election("wallet:7", tier=EFFICIENCY),
        lambda client: client.once("wallet:7", at_most=1, tier=EFFICIENCY),
    ]
    with fencehold.connect(
        correctness="memory://a", efficiency=dead_url(), rules=RULES, on_unavailable="proceed"
    ) as client:
        for ask in asks:
            with pytest.raises(UsageError, match="'wallet:7' is always CORRECTNESS, by the rules"):
                ask(client)
        with client.lock("wallet:7") as hold, client.lock("cache:1") as more:
            assert hold.fence
            assert more.fence


def test_who_has_only_efficiency_cannot_have_more() -> None:
    """Nothing protects state by mistake."""
    with fencehold.connect(efficiency="memory://b") as client:
        with client.lock("report", tier=EFFICIENCY):
            pass
        with pytest.raises(Unsupported, match="no source for CORRECTNESS"):
            client.lock("report")


async def test_what_protects_state_fails_closed() -> None:
    """Without its source no client is made, whatever may be gone on without otherwise."""
    said: dict[str, Any] = {"connect_timeout": PATIENCE_S, "on_unavailable": "proceed"}

    with pytest.raises(Unavailable):
        await aio.connect(correctness=dead_url(), efficiency="memory://b", **said)
    with pytest.raises(Unavailable):
        fencehold.connect(correctness=dead_url(), efficiency="memory://b", **said)


async def test_what_protects_state_fails_closed_when_its_source_goes_away() -> None:
    """Acquires raise while those for EFFICIENCY are granted, and are turned away at once after some of them."""
    async with service() as alive, Server(Config(port=0)) as server:
        async with aio.connect(
            correctness=f"fencehold://127.0.0.1:{server.port}",
            efficiency=alive,
            on_unavailable="proceed",
            connect_timeout=PATIENCE_S,
        ) as client:
            async with client.lock("wallet:7"):
                pass
            await server.stop()
            await until(lambda: _is_turned_away(client.lock("wallet:7")))
            with pytest.raises(Unavailable):
                async with client.lock("wallet:7"):
                    pytest.fail("it was entered without a lock")
            async with client.lock("wallet:7", tier=EFFICIENCY) as claim:
                assert claim.is_protected


async def test_efficiency_goes_on_without_a_lock_if_told_to(caplog: pytest.LogCaptureFixture) -> None:
    """Each verb gives a claim that says so, and the log does, but not each time."""
    with caplog.at_level(logging.WARNING, "fencehold"):
        async with aio.connect(
            correctness="memory://a", efficiency=dead_url(), on_unavailable="proceed", connect_timeout=PATIENCE_S
        ) as client:
            assert not client.lock("cache:1", tier=EFFICIENCY).guarantees.linearizable
            for _ in range(3):
                async with client.lock("cache:1", tier=EFFICIENCY, timeout=0) as claim:
                    assert not claim.is_protected
                    assert not isinstance(claim, aio.Hold)
                    assert current_hold() is None
            for lock in (
                client.lock("cache:1", tier=EFFICIENCY),
                client.multi(["cache:1", "cache:2"], tier=EFFICIENCY),
                client.semaphore("cache:1", 2, tier=EFFICIENCY),
                client.rwlock("cache:1", tier=EFFICIENCY).read(),
                client.rlock("cache:1", tier=EFFICIENCY),
            ):
                async with lock as claim:
                    assert not claim.is_protected
            election = client.election("cache:1", tier=EFFICIENCY)
            term = await election.campaign()
            assert term is not None
            assert not term.is_protected
            await election.resign()
            assert await client.once("cache:1", at_most=5, at_least=5, tier=EFFICIENCY)(_work)() == 42
            async with client.lock("wallet:7") as hold:
                assert hold.is_protected
    said = [record.message for record in caplog.records]
    assert len([words for words in said if "going on without a lock on 'cache:1'" in words]) == 1
    assert any("fencehold:// cannot be reached; next try in" in words for words in said)


async def _work() -> int:
    return 42


def test_threads_go_on_without_a_lock_if_told_to() -> None:
    """The blocking client does the same, from the start on if there is nothing else to connect to."""
    with fencehold.connect(efficiency=dead_url(), on_unavailable="proceed", connect_timeout=PATIENCE_S) as client:
        lock = client.lock("cache:1", tier=EFFICIENCY, timeout=0)
        for _ in range(3):
            with lock as claim:
                assert not claim.is_protected
                assert not claim.lost.is_set()
        claimed = lock.acquire()
        assert claimed is not None
        assert lock.owned()
        lock.release()
        assert not lock.owned()
        assert client.once("cache:1", at_most=5, at_least=5, tier=EFFICIENCY)(lambda: 42)() == 42


def test_one_service_may_be_gone_on_without_for_efficiency() -> None:
    """Told so, a client with one URL goes on without it there, and fails where state is protected."""
    with service_on_a_thread() as url:
        client = fencehold.connect(url, on_unavailable="proceed", connect_timeout=PATIENCE_S)
        with client.lock("cache:1", tier=EFFICIENCY) as claim:
            assert claim.is_protected
    with client:
        with client.lock("cache:1", tier=EFFICIENCY) as claim:
            assert not claim.is_protected
        with pytest.raises(Unavailable):
            client.lock("cache:1").acquire()


def test_told_nothing_nobody_goes_on_without_a_lock() -> None:
    """By default EFFICIENCY fails, too, when its source is away."""
    with (
        fencehold.connect(correctness="memory://a", efficiency=dead_url(), connect_timeout=PATIENCE_S) as client,
        pytest.raises(Unavailable),
    ):
        client.lock("cache:1", tier=EFFICIENCY).acquire()


async def test_a_source_that_comes_back_is_found_again() -> None:
    """The breaker opens, and a probe closes it once there is a server."""
    url = dead_url()
    async with aio.connect(correctness="memory://a", efficiency=url, connect_timeout=PATIENCE_S) as client:
        lock = client.lock("cache:1", tier=EFFICIENCY, timeout=0)
        await until(lambda: _is_turned_away(lock))
        async with Server(Config(port=port_of(url))):
            await until(lambda: _is_had(lock))


async def _is_turned_away(lock: aio.Lock[aio.Claim]) -> bool:
    with pytest.raises((Unavailable, OutcomeUnknown)) as failed:
        await lock.acquire()
    return "cannot be reached; next try in" in str(failed.value)


async def _is_had(lock: aio.Lock[aio.Claim]) -> bool:
    try:
        claim = await lock.acquire()
    except Unavailable:
        return False
    assert claim is not None
    await claim.release()
    return claim.is_protected


def test_going_on_without_a_lock_ends_when_the_source_is_back() -> None:
    """On threads, too, claims are protected again, without anybody doing anything about it."""
    url = dead_url()
    with fencehold.connect(
        correctness="memory://a", efficiency=url, on_unavailable="proceed", connect_timeout=PATIENCE_S
    ) as client:
        lock = client.lock("cache:1", tier=EFFICIENCY)

        def is_protected() -> bool:
            with lock as claim:
                return claim.is_protected

        assert [is_protected() for _ in range(4)] == [False] * 4
        with service_on_a_thread(port_of(url)):
            until_true(is_protected)
