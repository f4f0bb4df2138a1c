"""How many bytes bookies have taken and given since their start, as their metrics say."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_TIMEOUT_S = 1.0
_AT_ONCE = 16
_COUNTERS = {"bookie_WRITE_BYTES": "written_bytes", "bookie_READ_BYTES": "read_bytes"}

# Straight to the bookie: a proxy of the environment is meant for something else.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def bytes_so_far(addresses: Sequence[str]) -> list[dict[str, int | None]]:
    """``written_bytes`` and ``read_bytes`` by bookie; ``None`` where one shows no metrics, or says nothing."""
    if not any(addresses):
        return [_nothing() for _ in addresses]
    with ThreadPoolExecutor(_AT_ONCE, "bookie-metrics") as threads:
        return list(threads.map(_ask, addresses))


def _ask(address: str) -> dict[str, int | None]:
    found = _nothing()
    if not address:
        return found
    try:
        with _OPENER.open(f"http://{address}/metrics", timeout=_TIMEOUT_S) as answer:
            text = answer.read().decode()
        for sample in _samples(text):
            if sample.name in _COUNTERS:
                found[_COUNTERS[sample.name]] = int(sample.value)
    except (OSError, ValueError):
        return _nothing()
    return found


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _nothing() -> dict[str, int | None]:
    return dict.fromkeys(_COUNTERS.values())
