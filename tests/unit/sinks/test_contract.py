"""Every sink keeps the port's promises: all of it, in order, over restarts and failures; once, if it says so."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from fencehold.locks.views import Event
from fencehold.sinks.cloudevents import record_of
from fencehold.sinks.follower import Follower
from fencehold.sinks.json_lines import JsonLines
from fencehold.sinks.kafka import KafkaTopic
from fencehold.sinks.nats_jetstream import NatsJetStream
from fencehold.sinks.outbox import Bounds
from fencehold.sinks.port import Delivery
from fencehold.sinks.redis_stream import RedisStream
from fencehold.sinks.runner import Runner
from fencehold.sinks.sql import PostgresRows, SqliteRows
from fencehold.sinks.webhook import Webhook
from rig.event_targets import (
    CLUSTER,
    File,
    KafkaTarget,
    NatsTarget,
    PostgresTarget,
    Receiver,
    RedisTarget,
    Sqlite,
    Told,
    gap,
    happened,
    story,
)
from tests.unit.node.doubles import until

SERVERS = {"redis": RedisTarget, "nats": NatsTarget, "webhook": Receiver}
ALL = ("jsonl", "sqlite", "postgres", "kafka", *SERVERS)
KINDS = (JsonLines, SqliteRows, PostgresRows, RedisStream, NatsJetStream, KafkaTopic, Webhook)
QUICK = Bounds(batch_max=40, pause_s_first=0.01, pause_s_max=0.1)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The servers, started when the first test needs each."""
    found: dict[str, Any] = {"folder": tmp_path_factory.mktemp("servers")}
    yield found
    for name, target in found.items():
        if name != "folder":
            target.stop()


@pytest.fixture
def target(request: pytest.FixtureRequest, standing: dict[str, Any], tmp_path: Path) -> Any:
    """A target that has nothing yet."""
    name: str = request.param
    if name == "jsonl":
        return File(tmp_path)
    if name == "sqlite":
        return Sqlite(tmp_path)
    if name not in standing:
        made = {"postgres": PostgresTarget, "kafka": KafkaTarget}.get(name)
        standing[name] = made() if made is not None else SERVERS[name](standing["folder"])
    standing[name].fresh()
    return standing[name]


@asynccontextmanager
async def carrying(target: Any, told: Told, bounds: Bounds = QUICK) -> AsyncIterator[Runner]:
    """A sink at work."""
    runner = Runner(cast("Follower", told), target.sink(), cluster=CLUSTER, bounds=bounds)
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def expected(events: list[Event]) -> list[tuple[str, str]]:
    """What should be there, by ids and types."""
    records = [record_of(event, CLUSTER) for event in events]
    return [(record.id, record.type) for record in records]


def read(target: Any) -> list[tuple[str, str]]:
    """What is there."""
    return [(event["id"], event["type"]) for event in target.read()]


async def _is_there(target: Any, events: list[Event], runner: Runner) -> None:
    await until(lambda: runner.outbox.cursors.get(0) == record_of(events[-1], CLUSTER).cursor)
    assert read(target) == expected(events)


async def _got_to(runner: Runner, place: tuple[int, int]) -> None:
    await until(lambda: runner.outbox.cursors.get(0, (0, 0)) >= place)


@pytest.mark.parametrize("target", ALL, indirect=True)
async def test_all_of_it_arrives_in_order_gaps_too(target: Any) -> None:
    """What is told is there, in the order of places, each once; a gap with the positions that are missing."""
    events = [*story(300), gap(101, 140), happened(141), happened(142, 2, "session_ended")]
    async with carrying(target, Told(events)) as runner:
        await _is_there(target, events, runner)
        assert (runner.facts()["delivered"], runner.facts()["gaps"], len(runner.outbox)) == (303, 1, 0)
    [missing] = [event["data"] for event in target.read() if event["type"] == "io.fencehold.stream.gap.v1"]
    assert (missing["from"], missing["to"]) == (101, 140)
    first = target.read()[0]
    assert (first["source"], first["subject"], first["authid"]) == ("/fencehold/test/0", "job:1", "ann")


@pytest.mark.parametrize("target", ALL, indirect=True)
async def test_a_sink_that_is_started_again_goes_on_where_the_target_is(target: Any) -> None:
    """However often and wherever it is stopped: nothing is missing, and nothing is there twice."""
    events, chance = story(240), random.Random(7)
    for stop_at in sorted(chance.sample(range(1, 240), 3)):
        async with carrying(target, Told(events), QUICK._replace(batch_max=17)) as runner:
            await _got_to(runner, events[stop_at].place)
    async with carrying(target, Told(events)) as runner:
        await _is_there(target, events, runner)


@pytest.mark.parametrize("target", ALL, indirect=True)
async def test_what_was_delivered_and_not_heard_of_is_not_there_twice(target: Any) -> None:
    """Another one that was told less, and delivers the same again, adds what is missing alone."""
    events = story(60)
    records = [record_of(event, CLUSTER) for event in events]
    first, second = target.sink(), target.sink()
    assert await first.open() == {}
    await first.deliver(records[:20])
    await first.deliver(records[20:40])
    await first.close()
    cursor = (await second.open())[0]
    # Of a target with partitions it is known only what was there before the last batch.
    assert records[19].cursor <= cursor <= records[39].cursor
    await second.deliver([record for record in records if record.cursor > cursor])
    await second.close()
    assert read(target) == expected(events)


def of_shards(count: int) -> list[Event]:
    """Events of three shards as they arrive; the last shard is quiet after its first one."""
    events = [replace(event, shard=at % 2) for at, event in enumerate(story(count))]
    return [replace(happened(1), shard=2), *events, replace(gap(900, 950), shard=1)]


@pytest.mark.parametrize("target", ALL, indirect=True)
async def test_each_shard_has_a_cursor_of_its_own(target: Any) -> None:
    """Started again, each goes on where the target is, a quiet one too; a gap is of one shard."""
    events = of_shards(240)

    def last_of(shard: int) -> tuple[int, int]:
        return [record_of(event, CLUSTER).cursor for event in events if event.shard == shard][-1]

    for stop_at in (40, 150):
        async with carrying(target, Told(events), QUICK._replace(batch_max=17)) as runner:
            at = events[stop_at]
            await until(lambda: runner.outbox.cursors.get(at.shard, (0, 0)) >= at.place)  # noqa: B023
    async with carrying(target, Told(events)) as runner:
        await until(lambda: runner.outbox.cursors == {shard: last_of(shard) for shard in range(3)})
        facts = runner.facts()
        assert (facts["shards"], facts["cursors"]["2"]) == (3, list(last_of(2)))
    found = [(event["source"], event["sequence"], event["id"]) for event in target.read()]
    wanted = [(f"/fencehold/test/{event.shard}", record_of(event, CLUSTER).id) for event in events]
    assert sorted((source, id_) for source, _, id_ in found) == sorted(wanted)
    [missing] = [event for event in target.read() if event["type"] == "io.fencehold.stream.gap.v1"]
    assert (missing["source"], missing["data"]["from"]) == ("/fencehold/test/1", 900)
    if not isinstance(target, KafkaTarget):
        for shard in range(3):
            own = [sequence for source, sequence, _ in found if source.endswith(f"/{shard}")]
            assert own == sorted(own)


@pytest.mark.parametrize("target", ["postgres", "kafka", *SERVERS], indirect=True)
async def test_a_target_that_is_killed_gets_all_of_it_when_it_is_back(target: Any) -> None:
    """It is tried again; nothing is dropped, and where it says so nothing is there twice."""
    events = story(60)
    told = Told(events[:20])
    async with carrying(target, told) as runner:
        await _is_there(target, events[:20], runner)
        target.down()
        told.add(*events[20:])
        await until(lambda: runner.facts()["retried"] > 0)
        assert runner.facts()["error"]
        assert len(runner.outbox) == 40
        target.up()
        await _is_there(target, events, runner)
        facts = runner.facts()
    assert (facts["delivered"], facts["dropped"], facts["gaps"]) == (60, 0, 0)


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
async def test_events_that_come_one_by_one_travel_together(target: Any) -> None:
    """A delivery costs the target, and the processor, as much for one event as for many."""
    events = story(60)
    told = Told(events[:1])
    async with carrying(target, told, QUICK._replace(batch_max=500, gather_s=0.3)) as runner:
        for event in events[1:]:
            told.add(event)
            await asyncio.sleep(0)
        await _is_there(target, events, runner)
        assert runner.outbox.counters.batches < 10


@pytest.mark.parametrize("target", ["redis"], indirect=True)
async def test_a_target_that_has_lost_something_gets_it_again(target: Any) -> None:
    """It says that it has less than before: so it is read again, as far as the service has it."""
    events = story(50)
    told = Told(events[:40])
    async with carrying(target, told) as runner:
        await _is_there(target, events[:40], runner)
        target.down()
        told.add(*events[40:])
        await until(lambda: runner.facts()["retried"] > 0)
        target.up()
        target.forget()
        await until(lambda: runner.outbox.cursors.get(0) == events[-1].place and len(read(target)) == 50)
        assert read(target) == expected(events)


@pytest.mark.parametrize("target", ["webhook"], indirect=True)
async def test_what_is_wrong_for_ever_is_dropped_and_counted(target: Any) -> None:
    """One event whose content is refused holds up no other; what is refused for a while is tried again."""
    events = story(30)
    target.poison = expected(events)[11][0]
    target.answers = [503, 404, 429]
    async with carrying(target, Told(events)) as runner:
        await until(lambda: len(read(target)) == 29)
        await until(lambda: not len(runner.outbox))
        assert (runner.facts()["dropped"], runner.facts()["retried"]) == (1, 90)
    target.poison = ""
    assert read(target) == [each for at, each in enumerate(expected(events)) if at != 11]


async def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    """What a crash left of a line is no event; a file of something else is not written into."""
    target, events = File(tmp_path), story(9)
    records = [record_of(event, CLUSTER) for event in events]
    sink = target.sink()
    await sink.open()
    await sink.deliver(records[:5])
    await sink.close()
    with target.path.open("ab") as file:
        file.write(records[5].body[:70])
    sink = target.sink()
    assert await sink.open() == {0: records[4].cursor}
    await sink.deliver(records[5:])
    await sink.close()
    assert read(target) == expected(events)


def test_every_sink_says_what_it_promises() -> None:
    """All but a URL, which cannot be asked what it has, are exactly once."""
    declared = {kind.declared.name: kind.declared.delivery for kind in KINDS}
    assert [name for name, delivery in declared.items() if delivery is Delivery.AT_LEAST_ONCE] == ["webhook"]
