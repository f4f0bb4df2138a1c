"""Origins of a rewritten ledger's rows: stored small, read exactly, and never believed unchecked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookkeeper_metadata.errors import MetadataCorruptError
from spark_bookkeeper.log.format import runs as runs_format
from spark_bookkeeper.log.format.runs import Run, encode_runs, merged, parse_runs

RUNS = [
    Run(3, 1_000, 1_000, "q1", 0),
    Run(5, 2_000, 2_000, "q1", 1),
    Run(1, 2_000, 1_500),
    Run(2, 3_000, 3_000, None, None),
    Run(4, 9_000, 9_000, "q2", 17),
]


def stored(runs: list[Run]) -> bytes:
    value = encode_runs(runs)
    assert value is not None
    return value


def test_runs_are_read_as_they_were_written() -> None:
    found = parse_runs(7, stored(RUNS))

    assert list(found.runs) == RUNS
    assert found.rows == 15
    assert found.between(0, 15) == RUNS
    assert found.between(2, 9) == [replace(RUNS[0], rows=1), RUNS[1], RUNS[2]]
    assert found.between(9, 9) == []
    times = {0: 0, 1_000: 0, 1_001: 3, 2_000: 3, 2_001: 9, 3_001: 11, 9_001: 15}
    assert {at: found.first_row_since(at) for at in times} == times
    assert merged([RUNS[0], RUNS[0], RUNS[1]]) == [replace(RUNS[0], rows=6), RUNS[1]]


def test_micro_batches_take_few_bytes_a_run() -> None:
    runs = [Run(1_000 + n % 7, n * 10_003, n * 10_003, "q" * 36, n) for n in range(4_000)]

    assert len(stored(runs)) < 6 * len(runs)


@pytest.mark.parametrize("value", [b"", b"\x02abc", b"\x01abc", stored(RUNS)[:-3], stored([])])
def test_runs_that_are_none_are_damage(value: bytes) -> None:
    with pytest.raises(MetadataCorruptError, match="ledger 7, sparkRuns"):
        parse_runs(7, value)


def test_runs_are_no_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    value = stored(RUNS * 1_000)
    monkeypatch.setattr(runs_format, "_DECODED_BYTES_MAX", 100)

    with pytest.raises(MetadataCorruptError):
        parse_runs(7, value)


def test_what_a_reader_would_not_take_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two million runs of one commit time fit into 10 KiB, and no reader unpacked them again."""
    assert encode_runs(RUNS, 40) is None
    monkeypatch.setattr(runs_format, "_DECODED_BYTES_MAX", 100)

    assert encode_runs([Run(1, 5, 5, "q", number) for number in range(1_000)]) is None
