"""The sink for Kafka, on Apache Kafka itself: killed and started again, and read back by Java's own consumer."""

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencehold.sinks.outbox import Bounds
from fencehold.sinks.port import Sink
from fencehold.sinks.registry import sink_of
from rig.event_targets import CLUSTER, Told, gap, happened, read_topic, story
from rig.kafka import Kafka, jars
from tests.unit.node.doubles import until
from tests.unit.sinks.test_contract import carrying, expected, read

QUICK = Bounds(batch_max=40, pause_s_first=0.1, pause_s_max=1.0)
PATIENCE_S = 200.0


class Topic:
    """A topic of its own on the broker."""

    def __init__(self, broker: Kafka, partitions: int) -> None:
        self.broker = broker
        self.name = f"locks-{secrets.token_hex(4)}"
        broker.make_topic(self.name, partitions)

    def sink(self) -> Sink:
        return sink_of(f"kafka://{self.broker.bootstrap}/{self.name}", CLUSTER)

    def read(self) -> list[dict[str, Any]]:
        return sorted(read_topic(self.broker.bootstrap, self.name), key=lambda event: event["sequence"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    class_path = jars(Path.home() / ".cache" / "fencehold-tests" / "kafka")
    with Kafka(tmp_path_factory.mktemp("kafka"), class_path) as running:
        yield running


@pytest.mark.parametrize("partitions", [1, 6])
async def test_a_broker_that_is_killed_gets_all_of_it_once(broker: Kafka, partitions: int) -> None:
    """Under way when it is killed, while it is away, and afterwards by another sink: all of it, in order, once."""
    topic, events = Topic(broker, partitions), [*story(300), gap(101, 120), happened(121)]
    told = Told(events[:150])
    async with carrying(topic, told, QUICK) as runner:
        await until(lambda: (runner.outbox.cursors.get(0) or (0, 0)) >= events[40].place, PATIENCE_S)
        broker.kill()
        told.add(*events[150:250])
        await until(lambda: runner.facts()["retried"] > 0, PATIENCE_S)
        broker.start()
        await until(lambda: (runner.outbox.cursors.get(0) or (0, 0)) >= events[200].place, PATIENCE_S)
    async with carrying(topic, Told(events), QUICK) as runner:
        await until(lambda: runner.outbox.cursors.get(0) == events[-1].place, PATIENCE_S)
    assert read(topic) == expected(events)


async def test_javas_consumer_reads_cloudevents(broker: Kafka) -> None:
    """Key, headers and value are as a consumer in another language expects them."""
    topic, events = Topic(broker, 1), story(5)
    async with carrying(topic, Told(events), QUICK) as runner:
        await until(lambda: runner.outbox.cursors.get(0) == events[-1].place, PATIENCE_S)
    lines = broker.consumed(topic.name, 5)
    assert len(lines) == 5
    first = lines[0].split("\t")
    headers = dict(part.split(":", 1) for part in re.split(r",(?=[a-z_-]+:)", first[0]))
    assert (headers["ce_type"], headers["ce_id"]) == ("io.fencehold.lock.acquired.v1", "test-0-1-1")
    assert (headers["ce_specversion"], headers["content-type"]) == ("1.0", "application/json")
    assert first[1] == "job:1"
