"""The guard in front of a Redis, by a real one."""

import asyncio
import queue
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis
from redis import asyncio as aioredis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

import fencehold
from fencehold.errors import Damaged, LimitExceeded, OutcomeUnknown, StaleFence, Unavailable, UsageError
from fencehold.guards import Offer
from fencehold.guards.offer import FENCE_MAX
from fencehold.guards.redis import PREFIX, AsyncGuard, Guard
from rig.processes import await_true, free_port
from rig.redis import Redis
from tests.threads import at_once

NAME = "wallet:7"
WRITERS, WRITES = 32, 10_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with Redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def store(server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        client.flushall()
        yield client


@pytest.fixture
def guard(store: redis.Redis) -> Guard:
    return Guard(store)


def offer(fence: int) -> Offer:
    return Offer(NAME, fence)


def mark(store: redis.Redis) -> bytes | str | None:
    return store.get(PREFIX + NAME)


def test_commands_run_together_and_give_their_results_in_order(guard: Guard, store: redis.Redis) -> None:
    """A transaction sends nothing before its block is over, then everything in one step."""
    with guard.transaction(offer(5)) as t:
        t.set("balance", 10, ex=100)
        t.hincrby("wallet", "payments", 2)
        t.get("nothing")
        t.rpush("log", "a", b"b")
        t.lrange("log", 0, -1)
        assert store.keys("*") == []
    assert t.results == [b"OK", 2, None, 2, [b"a", b"b"]]
    assert (store.get("balance"), mark(store)) == (b"10", b"5")
    assert 0 < store.ttl("balance") <= 100


def test_run_takes_commands_as_they_are_written(guard: Guard, store: redis.Redis) -> None:
    """For those who have them as words."""
    assert guard.run(offer(5), [("SET", "k", "v"), ("append", "k", b"w")]) == [b"OK", 2]
    assert store.get("k") == b"vw"


def test_a_holder_writes_twice_and_a_stale_one_never(guard: Guard, store: redis.Redis) -> None:
    """An equal fence is the same holder's; a smaller one is refused with all that is known, and writes nothing."""
    guard.run(offer(34), [("SET", "k", "one")])
    guard.run(offer(34), [("SET", "k", "two")])
    with pytest.raises(StaleFence) as refused, guard.transaction(offer(33)) as t:
        t.set("k", "stale")
    assert (refused.value.name, refused.value.fence, refused.value.mark) == (NAME, 33, 34)
    assert (store.get("k"), t.results) == (b"two", [])
    for call in (guard.enter, guard.check):
        with pytest.raises(StaleFence):
            call(offer(33))


def test_without_enter_an_old_write_slips_in_between(guard: Guard, store: redis.Redis) -> None:
    """The gap: 34 has read already, and 33's write, on its way since before, is still accepted."""
    store.set("k", "old")
    seen = store.get("k")
    guard.run(offer(33), [("SET", "k", "late")])
    assert store.get("k") != seen


def test_after_enter_what_was_read_stays_true(guard: Guard, store: redis.Redis) -> None:
    """34 raises the mark before it reads: 33's late write is refused."""
    store.set("k", "old")
    guard.enter(offer(34))
    seen = store.get("k")
    with pytest.raises(StaleFence):
        guard.run(offer(33), [("SET", "k", "late")])
    assert store.get("k") == seen


@pytest.mark.parametrize(
    ("fence", "seen"),
    [(2**53, 2**53 + 1), (FENCE_MAX - 1, FENCE_MAX), (9, 10), (99, 100), (123, 1234), (2**62, 2**62 + 1)],
)
def test_fences_beyond_what_a_double_holds_are_told_apart(guard: Guard, fence: int, seen: int) -> None:
    """Lua would take 2^53 and 2^53 + 1 for the same, and text alone 9 for more than 10."""
    guard.enter(offer(fence))
    guard.enter(offer(seen))
    with pytest.raises(StaleFence) as refused:
        guard.enter(offer(fence))
    assert refused.value.mark == seen


def test_a_strict_guard_knows_its_names(store: redis.Redis) -> None:
    """A name without a mark is an error until it is registered; to register it again changes nothing."""
    strict = Guard(store, strict=True)
    with pytest.raises(UsageError, match="has no mark"):
        strict.run(offer(5), [("SET", "k", "v")])
    assert store.keys("*") == []
    strict.register(NAME)
    strict.enter(offer(5))
    strict.register(NAME)
    assert mark(store) == b"5"


def test_marks_never_expire(guard: Guard, store: redis.Redis) -> None:
    """There is no time after which a stale write is right."""
    guard.enter(offer(5))
    assert store.ttl(PREFIX + NAME) == -1


@pytest.mark.parametrize("odd", ["", "abc", "-1", "1.5", "007", "9e3"])
def test_a_mark_that_is_no_number_is_never_taken_for_none(guard: Guard, store: redis.Redis, odd: str) -> None:
    """Somebody has written over it: who was before is not known any more."""
    store.set(PREFIX + NAME, odd)
    with pytest.raises(Damaged):
        guard.run(offer(5), [("SET", "k", "v")])
    assert store.get("k") is None


def test_a_block_that_raises_sends_nothing(guard: Guard, store: redis.Redis) -> None:
    """Not even the mark is raised."""

    def body() -> None:
        with guard.transaction(offer(5)) as t:
            t.set("k", "v")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        body()
    assert store.keys("*") == []


def test_a_command_that_fails_leaves_those_before_it_done(guard: Guard, store: redis.Redis) -> None:
    """As in every script of Redis: a fence is not atomicity."""
    store.set("text", "abc")
    with pytest.raises(redis.exceptions.ResponseError):
        guard.run(offer(5), [("SET", "before", 1), ("INCR", "text"), ("SET", "after", 1)])
    assert (store.get("before"), store.get("after"), mark(store)) == (b"1", None, b"5")


@pytest.mark.parametrize(
    "words",
    [
        ("BLPOP", "k", 0),
        ("FLUSHALL",),
        ("EVAL", "return 1", 0),
        (),
        ("SET", "k"),
        ("HINCRBY", "k", "f"),
        ("SET", "k", None),
        ("SET", "k", True),
        ("SET", PREFIX + NAME, 99),
        ("MSET", "a", 1, PREFIX + "other", 2),
        ("RENAME", "a", PREFIX + "other"),
        ("DEL", "a", "b", PREFIX + NAME),
    ],
)
def test_what_cannot_run_behind_a_fence_is_refused_before_anything_is_sent(
    guard: Guard, store: redis.Redis, words: tuple[object, ...]
) -> None:
    """Unknown commands, too few words, words that are none, and the marks themselves."""
    with pytest.raises(UsageError):
        guard.run(offer(5), [("SET", "k", "v"), words])
    assert store.keys("*") == []


def test_transactions_are_bounded(guard: Guard, store: redis.Redis) -> None:
    """Redis serves nobody else while a script runs."""
    assert len(guard.run(offer(5), [("INCR", "n")] * 1_000)) == 1_000
    assert guard.run(offer(5), [("RPUSH", "l", *range(3_000))]) == [3_000]
    with pytest.raises(LimitExceeded):
        guard.run(offer(5), [("INCR", "n")] * 1_001)
    with pytest.raises(LimitExceeded):
        guard.run(offer(5), [("RPUSH", "l", *range(4_000))])
    assert store.get("n") == b"1000"


def test_what_is_no_fence_of_the_name_is_refused(guard: Guard, store: redis.Redis) -> None:
    """Claims, other names, no fence, clients of the other kind: never silently."""
    for wrong in (Offer(NAME, 0), Offer("", 5), None, 5, NAME):
        with pytest.raises(UsageError):
            guard.enter(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not of 'other'"):
        guard.run(offer(5), [("SET", "k", "v")], name="other")
    with pytest.raises(UsageError, match="AsyncGuard"):
        Guard(aioredis.Redis())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there is Guard"):
        AsyncGuard(store)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        Guard(store.pipeline())
    with pytest.raises(UsageError):
        Guard(store, prefix="")
    assert store.keys("*") == []


def test_real_holds_are_taken_and_claims_are_not(server: Redis, guard: Guard, store: redis.Redis) -> None:
    """The next holder has a greater fence; a claim has none."""
    with fencehold.connect("memory://") as client:
        with client.lock(NAME) as first:
            guard.enter(first)
        with client.lock(NAME) as second, guard.transaction(second) as t:
            t.set("k", "second")
        with pytest.raises(StaleFence), guard.transaction(first) as t:
            t.set("k", "first")
    with (
        fencehold.connect(server.url) as client,
        client.lock("other", tier=fencehold.EFFICIENCY) as claim,
        pytest.raises(UsageError, match="is a claim"),
    ):
        guard.enter(claim)  # type: ignore[arg-type]
    assert store.get("k") == b"second"


def test_decoded_answers_and_a_forgotten_script_do_not_matter(server: Redis, store: redis.Redis) -> None:
    """A client that decodes has text for results; a server that lost the script is given it again."""
    with redis.Redis(port=server.port, decode_responses=True) as client:
        guard = Guard(client)
        guard.enter(offer(5))
        store.script_flush()
        assert guard.run(offer(6), [("SET", "k", "é"), ("GET", "k")]) == ["OK", "é"]
        with pytest.raises(StaleFence):
            guard.enter(offer(5))


def test_a_redis_that_does_not_answer_leaves_it_open(tmp_path: Path) -> None:
    """What was sent may be done: `OutcomeUnknown`, never a no."""
    with Redis(tmp_path) as own, redis.Redis(port=own.port, socket_timeout=0.2) as client:
        guard = Guard(client)
        guard.enter(offer(5))
        own.pause()
        with pytest.raises(OutcomeUnknown):
            guard.run(offer(6), [("INCR", "n")])
        own.resume()
        with pytest.raises(StaleFence):
            guard.enter(offer(5))
        assert client.get("n") == b"1"


async def test_a_cancelled_call_leaves_no_answer_for_the_next(tmp_path: Path) -> None:
    """Its connection is closed: whoever comes next hears its own answer."""
    with Redis(tmp_path) as own:
        async with aioredis.Redis(port=own.port, max_connections=1) as client:
            guard = AsyncGuard(client)
            await guard.enter(offer(5))
            own.pause()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await guard.run(offer(6), [("SET", "k", "v")])
            own.resume()
            assert await client.echo("hello") == b"hello"
            assert await guard.run(offer(7), [("GET", "k")]) in ([b"v"], [None])


async def test_a_redis_that_is_not_there_did_nothing() -> None:
    """It was not reached: that is certain."""
    port = free_port()
    with redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as client, pytest.raises(Unavailable):
        Guard(client).enter(offer(5))

    async def scene() -> None:
        async with aioredis.Redis(port=port, retry=AsyncRetry(NoBackoff(), 0)) as client:
            with pytest.raises(Unavailable):
                await AsyncGuard(client).enter(offer(5))

    await scene()


@contextmanager
def breaking(port: int) -> Iterator[int]:
    """A way to a Redis on which answers to scripts are lost, and the connections with them."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_redis, to_redis = await asyncio.open_connection("127.0.0.1", port)
        try:
            while asked := await reader.read(65536):
                to_redis.write(asked)
                answer = await from_redis.read(65536)
                if b"EVAL" in asked and not answer.startswith(b"-NOSCRIPT"):
                    return
                writer.write(answer)
        finally:
            for each in (writer, to_redis):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
            opened.put((listening.sockets[0].getsockname()[1], asyncio.get_running_loop(), over))
            await over.wait()

    opened: queue.Queue[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()
    over = asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    at, loop, event = opened.get()
    yield at
    loop.call_soon_threadsafe(event.set)
    thread.join()


def test_what_was_sent_is_not_sent_again(server: Redis, store: redis.Redis) -> None:
    """redis-py would: whoever counts by it counts up to four times. Here it is once, and said to be open."""

    async def scene(port: int) -> None:
        async with aioredis.Redis(port=port) as client:
            with pytest.raises(OutcomeUnknown):
                await AsyncGuard(client).run(offer(5), [("INCR", "n")])

    with breaking(server.port) as port:
        with redis.Redis(port=port, retry=Retry(NoBackoff(), 3)) as client:
            with pytest.raises(OutcomeUnknown):
                Guard(client).run(offer(5), [("INCR", "n")])
            assert store.get("n") == b"1"
            with pytest.raises(redis.exceptions.ConnectionError):
                client.eval("return redis.call('INCR', 'm')", 0)
        asyncio.run(scene(port))
    assert store.get("n") == b"2"
    assert int(store.get("m") or 0) > 1


async def test_on_a_loop_it_is_the_same(server: Redis, store: redis.Redis) -> None:
    """One Redis, one mark, whoever asks."""
    async with aioredis.Redis(port=server.port) as client:
        guard = AsyncGuard(client, strict=True)
        with pytest.raises(UsageError, match="has no mark"):
            await guard.enter(offer(4))
        await guard.register(NAME)
        await guard.enter(offer(4))
        async with guard.transaction(offer(5)) as t:
            t.set("k", "five")
            t.incr("n")
        assert t.results == [b"OK", 1]
        await guard.check(offer(5))
        assert await guard.run(offer(5), [("GET", "k")]) == [b"five"]
        with pytest.raises(StaleFence) as refused:
            async with guard.transaction(offer(4)) as t:
                t.set("k", "four")
        assert (refused.value.name, refused.value.fence, refused.value.mark) == (NAME, 4, 5)
    with pytest.raises(StaleFence):
        Guard(store).enter(offer(4))
    assert store.get("k") == b"five"


def test_the_rights_on_the_page_are_enough(server: Redis, store: redis.Redis) -> None:
    """A user with them may write behind a fence, and nothing else."""
    rights = ["+eval", "+evalsha", "+get", "+set", "+hincrby", f"~{PREFIX}*", "~wallet:*"]
    server.ask("ACL", "SETUSER", "guarded", "reset", "on", ">secret", *rights)
    with redis.Redis(port=server.port, username="guarded", password="secret") as client:
        guard = Guard(client, strict=True)
        guard.register(NAME)
        guard.enter(offer(5))
        assert guard.run(offer(5), [("SET", "wallet:7:balance", 1), ("HINCRBY", "wallet:7", "n", 1)]) == [b"OK", 1]
        with pytest.raises(redis.exceptions.ResponseError):
            guard.run(offer(6), [("SET", "elsewhere", 1)])
        with pytest.raises(redis.exceptions.ResponseError):
            guard.run(offer(6), [("RPUSH", "wallet:8", 1)])
    assert store.get("elsewhere") is None


def test_in_a_cluster_a_hash_tag_keeps_mark_and_keys_together(tmp_path: Path) -> None:
    """Without one, redis-py refuses before anything is sent."""
    # By default the cluster's own port is 10 000 above the other, where anybody may be.
    with Redis(tmp_path, flags=("--cluster-enabled", "yes", "--cluster-port", str(free_port()))) as node:
        node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await_true(lambda: "cluster_state:ok" in str(node.ask("CLUSTER", "INFO")), "the cluster serves")
        with redis.RedisCluster(host="127.0.0.1", port=node.port) as client:
            guard = Guard(client)
            tagged = Offer("wallet:{7}", 5)
            guard.enter(tagged)
            assert guard.run(tagged, [("SET", "{7}:balance", 1), ("INCR", "count:{7}")]) == [b"OK", 1]
            with pytest.raises(StaleFence):
                guard.enter(Offer("wallet:{7}", 4))
            with pytest.raises(redis.exceptions.RedisClusterException):
                guard.run(tagged, [("SET", "elsewhere", 1)])
            assert client.get("elsewhere") is None


def nearly_sorted(count: int, seed: int) -> Iterator[int]:
    """Fences as they come when writers overtake one another."""
    chance = random.Random(seed)
    fences = sorted(range(1, count + 1), key=lambda fence: fence + chance.uniform(0, 64))
    return iter(fences)


def test_of_many_writers_the_accepted_never_go_back_and_none_is_lost(server: Redis, store: redis.Redis) -> None:
    """32 writers, 10 000 writes: the log in Redis is sorted, and has just what was accepted."""
    fences, turn = nearly_sorted(WRITES, 7), threading.Lock()
    accepted: list[int] = []

    def write() -> None:
        with redis.Redis(port=server.port) as client:
            guard = Guard(client)
            while True:
                with turn:
                    fence = next(fences, None)
                if fence is None:
                    return
                try:
                    guard.run(offer(fence), [("RPUSH", "log", fence), ("INCR", "count")])
                except StaleFence as refused:
                    assert refused.mark > fence  # noqa: PT017
                else:
                    accepted.append(fence)

    at_once(WRITERS, write)
    log = [int(fence) for fence in store.lrange("log", 0, -1)]
    assert log == sorted(log)
    assert log == sorted(accepted)
    assert 100 < len(log) < WRITES
    assert store.get("count") == str(len(log)).encode()
    assert mark(store) == str(WRITES).encode()
