"""Families of metrics, as ``prometheus_client`` shows them, made of what was counted.

Apache's names are kept to the letter where it has the same: a counter among them is shown without a type,
since the library would put ``_total`` behind its name, and Apache's dashboards would find nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.metrics_core import Metric

from bookkeeper_metadata.foundation.measures import Durations, Operation

Labelled = Iterable[tuple[Mapping[str, str], float]]


def counter(name: str, help_text: str, value: float) -> Metric:
    """One that only grows; its name is ours, and ends in ``_total``."""
    return CounterMetricFamily(name, help_text, value=value)


def apache_counter(name: str, help_text: str, value: float) -> Metric:
    """One that only grows, under Apache's name."""
    return UnknownMetricFamily(name, help_text, value=value)


def gauge(name: str, help_text: str, value: float) -> Metric:
    """What is so now."""
    return GaugeMetricFamily(name, help_text, value=value)


def gauges(name: str, help_text: str, values: Labelled) -> Metric:
    """The same for several things, by label."""
    return _labelled(GaugeMetricFamily(name, help_text), values)


def apache_counters(name: str, help_text: str, values: Labelled) -> Metric:
    """Some that only grow, under one of Apache's names."""
    return _labelled(UnknownMetricFamily(name, help_text), values)


def _labelled(family: Metric, values: Labelled) -> Metric:
    for labels, value in values:
        family.add_sample(family.name, dict(labels), value)
    return family


def durations(
    name: str, help_text: str, found: Iterable[tuple[Mapping[str, str], Durations]]
) -> Metric:
    """A histogram in milliseconds."""
    family = HistogramMetricFamily(name, f"{help_text}; milliseconds")
    for labels, taken in found:
        own = dict(labels)
        counts = taken.cumulative
        for bound, count in counts:
            family.add_sample(f"{name}_bucket", {**own, "le": _bound_text(bound)}, count)
        # Not asked for again: it is changed meanwhile.
        family.add_sample(f"{name}_count", own, counts[-1][1])
        family.add_sample(f"{name}_sum", own, taken.sum_ms)
    return family


def operation(
    name: str, help_text: str, found: Operation, reasons: Iterable[str] = ()
) -> list[Metric]:
    """The latency of a kind of request, and how often it was refused for which reason.

    ``reasons`` are shown also while they have not come up: a counter's first step is seen only from there.
    """
    counts = {**dict.fromkeys(reasons, 0), **found.refusals}
    taken = [({"success": "true"}, found.granted), ({"success": "false"}, found.failed)]
    refusals = [({"status": status}, count) for status, count in counts.items()]
    return [
        durations(f"{name}_latency", help_text, taken),
        apache_counters(f"{name}_REJECTED", f"{help_text}: refused, by status", refusals),
    ]


def _bound_text(bound: float) -> str:
    return "+Inf" if bound == float("inf") else f"{bound:g}"
