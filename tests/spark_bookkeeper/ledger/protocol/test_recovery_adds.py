"""Sections of entries that are sent again fit what a bookie takes at once."""

from __future__ import annotations

import pytest

from bookie_server.wire.limits import RUN_ENTRIES_MAX
from bookie_server.wire.record import Run, parse_run
from spark_bookkeeper.ledger.protocol.recovery_adds import cut_to_size
from tests.doubles.records import records

MIB = 1024 * 1024


def run(first: int, count: int, size: int = 0) -> Run:
    return parse_run(records([bytes(size)] * count, first))


def ids(parts: list[list[Run]]) -> list[int]:
    return [entry_id for part in parts for each in part for entry_id in each.entry_ids]


@pytest.mark.parametrize(
    "counts",
    [(RUN_ENTRIES_MAX,), (RUN_ENTRIES_MAX + 1,), (10_000, 6_384, 1), (16_383, 2), (3, 50_000)],
    ids=str,
)
def test_no_section_has_more_entries_than_a_bookie_takes(counts: tuple[int, ...]) -> None:
    runs, first = [], 0
    for count in counts:
        runs.append(run(first, count))
        first += count

    parts = list(cut_to_size(runs, 8 * MIB))

    assert ids(parts) == list(range(first))
    taken = [sum(map(len, part)) for part in parts]
    assert len(taken) == -(-first // RUN_ENTRIES_MAX)
    assert set(taken[:-1]) <= {RUN_ENTRIES_MAX}
    assert taken[-1] <= RUN_ENTRIES_MAX


def test_no_section_is_larger_than_asked_for_but_of_one_entry() -> None:
    runs = [run(0, 10, 100), run(10, 1, 5_000), run(11, 10, 100)]

    parts = list(cut_to_size(runs, 1_000))

    assert ids(parts) == list(range(21))
    for part in parts:
        assert sum(each.size_bytes for each in part) <= 1_000 or sum(map(len, part)) == 1
