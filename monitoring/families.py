"""Samples as Prometheus's metric families, for the exporter and the Pushgateway alike."""

import time
from collections.abc import Iterator
from itertools import accumulate, groupby
from threading import Event

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from .metrics import METRICS, Metric
from .sink import Distribution, Sample, Samples


class LatestSamples(Collector):
    """Turns the latest samples into Prometheus's families whenever they are read.

    Attributes:
      samples: makes what is shown; replaced as a whole.
      read: set after each reading.
    """

    def __init__(self) -> None:
        self.samples: Samples = tuple
        self.read = Event()

    def collect(self) -> Iterator[Family]:
        order = {metric.name: place for place, metric in enumerate(METRICS)}
        samples = sorted(self.samples(), key=lambda sample: order[sample.metric.name])
        now = time.time()
        for metric, group in groupby(samples, key=lambda sample: sample.metric):
            yield _family(metric, group, now)
        self.read.set()


def _family(metric: Metric, samples: Iterator[Sample], now: float) -> Family:
    if metric.buckets:
        return _histogram(metric, samples)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for sample in samples:
        assert isinstance(sample.value, float | int)
        family.add_metric(sample.labels, now - sample.value if metric.age else sample.value)
    return family


def _histogram(metric: Metric, samples: Iterator[Sample]) -> Family:
    kind = HistogramMetricFamily if metric.kind == "histogram" else GaugeHistogramMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    bounds = [*(str(bound) for bound in metric.buckets), "+Inf"]
    for sample in samples:
        assert isinstance(sample.value, Distribution)
        cumulative = accumulate(sample.value.counts)
        buckets = list(zip(bounds, map(float, cumulative), strict=True))
        family.add_metric(sample.labels, buckets, sample.value.total)
    return family
