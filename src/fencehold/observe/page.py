"""The page that Prometheus reads, made of figures and the catalogue by `prometheus_client`."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from fencehold.observe import catalogue

MEDIA_TYPE = CONTENT_TYPE_LATEST

Figures = Mapping[str, list[list[Any]]]
"""By metric: the values of its labels and a number; of a histogram its counts, not accumulated, and their sum."""


def page(figures: Figures) -> bytes:
    """The figures as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Shown(figures, catalogue.SERVER))
    return generate_latest(registry)


class Shown(Collector):
    """Figures, for a registry."""

    def __init__(self, figures: Figures, metrics: Iterable[catalogue.Metric]) -> None:
        self._figures = figures
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics:
            rows = self._figures.get(metric.name)
            if rows:
                yield family(metric, rows)


def family(metric: catalogue.Metric, rows: list[list[Any]]) -> Metric:
    """One metric with all its labels."""
    words = metric.words.replace("`", "")
    if metric.kind == catalogue.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, words, labels=metric.labels)
        for labels, counts, total in rows:
            histogram.add_metric(labels, _buckets(metric.buckets, counts), total)
        return histogram
    kind = CounterMetricFamily if metric.kind == catalogue.COUNTER else GaugeMetricFamily
    found = kind(metric.name, words, labels=metric.labels)
    for labels, value in rows:
        found.add_metric(labels, value)
    return found


def _buckets(bounds: tuple[float, ...], counts: list[int]) -> list[tuple[str, float]]:
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))
