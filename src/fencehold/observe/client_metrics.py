"""Metrics of the SDK, for an application that has a page of Prometheus metrics already.

```python
from fencehold.observe.client_metrics import ClientMetrics

metrics = ClientMetrics(templates=["order:{id}"])
metrics.register()
```

Names of locks appear by their template, so a million of them make no more series than a few.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from fencehold.errors import StaleFence
from fencehold.locks.loss_reasons import loss_kind
from fencehold.locks.meter import set_meter
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.observe.catalogue import CLIENT, SECONDS
from fencehold.observe.histogram import Histogram
from fencehold.observe.page import Shown
from fencehold.observe.templates import Templates

_HELD_MAX = 100_000
"""Holds whose beginning is remembered; of others it is not measured how long they last."""


class ClientMetrics(Collector):
    """Counts what all clients of this process do, from `register` on."""

    def __init__(self, templates: Iterable[str] = ()) -> None:
        """`templates`: patterns of names, such as ``order:{id}``; others are found."""
        self._templates = Templates(templates)
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {}
        self._histograms: dict[tuple[str, ...], Histogram] = {}
        self._held: dict[int, tuple[Grant, float]] = {}
        """Since when; by identity, for a grant that is alive."""
        self._stale_before = StaleFence.count

    def register(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Count from here on, and be shown by a registry."""
        registry.register(self)
        set_meter(self)

    def unregister(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Count no more."""
        set_meter(None)
        registry.unregister(self)

    # What it is told.

    def now(self) -> float:
        return time.monotonic()

    def on_answered(self, terms: Terms, grant: Grant | None, began_at: float) -> None:
        template, now = self._templates.of(terms.names[0]), self.now()
        with self._lock:
            if grant is None:
                self._count("fencehold_client_acquires_total", "not_acquired", template)
                return
            self._count("fencehold_client_acquires_total", "acquired", template)
            self._measure("fencehold_client_acquire_seconds", template, now - began_at)
            if len(self._held) < _HELD_MAX:
                self._held[id(grant)] = grant, now

    def on_failed(self, terms: Terms) -> None:
        with self._lock:
            self._count("fencehold_client_acquires_total", "failed", self._templates.of(terms.names[0]))

    def on_released(self, grant: Grant) -> None:
        now = self.now()
        with self._lock:
            known = self._held.pop(id(grant), None)
            if known is not None:
                template = self._templates.of(grant.terms.names[0])
                self._measure("fencehold_client_hold_seconds", template, now - known[1])

    def on_lost(self, grant: Grant) -> None:
        with self._lock:
            self._held.pop(id(grant), None)
            template = self._templates.of(grant.terms.names[0])
            self._count("fencehold_client_losses_total", loss_kind(grant.ending), template)

    def on_disconnected(self) -> None:
        with self._lock:
            self._count("fencehold_client_disconnects_total")

    # What it shows.

    def figures(self) -> dict[str, list[list[Any]]]:
        """By metric: the values of labels, and a number or a histogram."""
        found: dict[str, list[list[Any]]] = {
            "fencehold_client_fences_refused_total": [[[], StaleFence.count - self._stale_before]]
        }
        with self._lock:
            found["fencehold_client_holds"] = [[[], len(self._held)]]
            for (name, *labels), count in self._counts.items():
                found.setdefault(name, []).append([labels, count])
            for (name, *labels), histogram in self._histograms.items():
                found.setdefault(name, []).append([labels, list(histogram.counts), histogram.total])
        return found

    def collect(self) -> Iterator[Metric]:
        return Shown(self.figures(), CLIENT).collect()

    def _count(self, *key: str) -> None:
        self._counts[key] = self._counts.get(key, 0) + 1

    def _measure(self, name: str, template: str, seconds: float) -> None:
        histogram = self._histograms.get((name, template))
        if histogram is None:
            histogram = self._histograms[name, template] = Histogram(SECONDS)
        histogram.add(seconds)
