"""Counting, and what a scrape makes of it."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bookkeeper_metadata.foundation import families
from bookkeeper_metadata.foundation.measures import Durations, Operation


def shown(*metrics: Metric) -> list[str]:
    class Once(Collector):
        def collect(self) -> tuple[Metric, ...]:
            return metrics

    registry = CollectorRegistry()
    registry.register(Once())
    return generate_latest(registry).decode().splitlines()


def test_durations_are_counted_by_their_bounds() -> None:
    taken = Durations()
    for seconds in (0.0004, 0.0005, 0.0006, 3.0, 60.0):
        taken.add(seconds)

    by_bound = dict(taken.cumulative)
    assert taken.count == 5
    assert taken.sum_ms == pytest.approx(63_001.5)
    assert by_bound[0.5] == 2
    assert by_bound[1] == 3
    assert by_bound[5_000] == 4
    assert by_bound[float("inf")] == 5


def test_a_histogram_is_one_to_prometheus() -> None:
    taken = Durations()
    taken.add(0.003)

    lines = shown(families.durations("add_latency", "Adds", [({"success": "true"}, taken)]))

    assert "# TYPE add_latency histogram" in lines
    assert 'add_latency_bucket{le="2",success="true"} 0.0' in lines
    assert 'add_latency_bucket{le="5",success="true"} 1.0' in lines
    assert 'add_latency_bucket{le="+Inf",success="true"} 1.0' in lines
    assert 'add_latency_count{success="true"} 1.0' in lines
    assert 'add_latency_sum{success="true"} 3.0' in lines


def test_a_counter_of_apaches_keeps_its_name_and_ours_has_the_customary_end() -> None:
    lines = shown(
        families.apache_counter("bookie_WRITE_BYTES", "Bytes", 3),
        families.counter("bookie_scrubbed_bytes", "Bytes", 4),
    )

    assert "bookie_WRITE_BYTES 3.0" in lines
    assert "bookie_scrubbed_bytes_total 4.0" in lines


def test_refusals_are_told_apart() -> None:
    adds = Operation()
    adds.add(0.001)
    adds.add(0.001, "FENCED")
    adds.add(0.001, "FENCED")

    lines = shown(*families.operation("ADD_ENTRY", "Adds", adds))

    assert 'ADD_ENTRY_latency_count{success="true"} 1.0' in lines
    assert 'ADD_ENTRY_latency_count{success="false"} 2.0' in lines
    assert 'ADD_ENTRY_REJECTED{status="FENCED"} 2.0' in lines
