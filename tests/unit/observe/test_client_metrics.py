"""What an application counts of its own locks, if it asks for it."""

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import fencehold
from fencehold import aio
from fencehold.errors import StaleFence
from fencehold.locks import meter
from fencehold.observe.catalogue import BY_NAME
from fencehold.observe.client_metrics import ClientMetrics


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    registry, metrics = CollectorRegistry(), ClientMetrics(["order:{id}"])
    metrics.register(registry)
    yield registry
    metrics.unregister(registry)
    assert meter.meter is None


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


def test_threads_and_what_they_hold_are_counted(registry: CollectorRegistry) -> None:
    """Granted, not granted in time, held, released."""
    with fencehold.connect("memory://client-metrics") as client:
        with client.lock("order:17"):
            assert value(registry, "fencehold_client_holds") == 1
            assert client.lock("order:17").acquire(timeout=0) is None
        hold = client.lock("order:18").acquire()
        hold.release()
        with pytest.raises(fencehold.LimitExceeded):
            client.lock("x" * 5_000).acquire()
    template = {"template": "order:{id}"}
    assert value(registry, "fencehold_client_acquires_total", outcome="acquired", **template) == 2
    assert value(registry, "fencehold_client_acquires_total", outcome="not_acquired", **template) == 1
    assert value(registry, "fencehold_client_acquire_seconds_count", **template) == 2
    assert value(registry, "fencehold_client_hold_seconds_count", **template) == 2
    assert value(registry, "fencehold_client_holds") == 0


async def test_tasks_and_what_they_lose_are_counted(registry: CollectorRegistry) -> None:
    """A hold that was force-released is lost for a reason; a cancelled acquire is counted as failed."""
    async with aio.connect("memory://client-metrics-aio") as client:
        hold = await client.lock("job").acquire()
        waiting = asyncio.create_task(client.lock("job").acquire())
        while not (await client.explain("job")).queue:
            pass
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await client.break_hold("job")
        await hold.lost.wait()
    assert value(registry, "fencehold_client_losses_total", reason="broken", template="job") == 1
    assert value(registry, "fencehold_client_acquires_total", outcome="failed", template="job") == 1


def test_refused_fences_are_counted(registry: CollectorRegistry) -> None:
    """From when it was asked for."""
    before = value(registry, "fencehold_client_fences_refused_total")
    with pytest.raises(StaleFence):
        raise StaleFence(name="a", fence=1, mark=2)
    assert value(registry, "fencehold_client_fences_refused_total") == before + 1


def test_every_metric_is_of_the_catalogue(registry: CollectorRegistry) -> None:
    """With its labels, as the page says."""
    with fencehold.connect("memory://client-metrics") as client, client.lock("a"):
        pass
    assert generate_latest(registry)
    for family in registry.collect():
        known = BY_NAME.get(family.name) or BY_NAME[f"{family.name}_total"]
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(known.labels)


async def test_a_loss_is_counted_by_what_happened_not_by_words(
    registry: CollectorRegistry,
) -> None:
    """A lock called after another reason is counted as what it is."""
    async with aio.connect("memory://client-metrics-names") as client:
        hold = await client.lock("session:ttl").acquire()
        await client.break_hold("session:ttl")
        await hold.lost.wait()
    assert value(registry, "fencehold_client_losses_total", reason="broken", template="session:ttl") == 1
