"""What the tables of a comparison show, and in which words."""

from __future__ import annotations

import pytest

from benchmarks.peers.rounds import Comparison, Measure, Range
from benchmarks.peers.table import Row, lines, markdown, number

RATE = Comparison(
    Measure("per_s", "", "/s", is_rate=True),
    Range(70_123, 65_000, 84_000),
    Range(50_000, 44_000, 75_000),
    1.44,
    1.12,
)
CPU = Comparison(
    Measure("client_ms_per_mib", "client's CPU", "ms/MiB"),
    Range(5.94, 5.5, 6.1),
    Range(9.4, 9, 10),
    0.63,
    0.7,
)
ROW = Row("1 KiB `append_many`, 1,000 in flight", (RATE,), (CPU,))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234, "0.123"), (5.94, "5.94"), (12.34, "12.3"), (1234.5, "1234"), (70_123, "70 k")],
)
def test_a_number_has_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


def test_the_document_has_a_table_of_speed_and_one_of_cost() -> None:
    text = markdown([ROW], {"cores": "2"}, rounds=5)

    assert "Median of 5 alternated rounds" in text
    assert "cores 2." in text
    assert (
        "| 1 KiB `append_many`, 1,000 in flight | 70 k (65 k-84 k) /s | 50 k (44 k-75 k) /s | 1.44 (1.12) |"
        in text
    )
    assert (
        "| 1 KiB `append_many`, 1,000 in flight, client's CPU "
        "| 5.94 (5.5-6.1) ms/MiB | 9.4 (9-10) ms/MiB | 0.63 (0.70) |" in text
    )


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    text = markdown([ROW, ROW], {}, rounds=1)

    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {5}


def test_a_line_says_which_way_is_better() -> None:
    title, rate, cpu = lines(ROW)

    assert title == ROW.title
    assert rate.endswith("ratio 1.44 (1.12), more is better")
    assert cpu.endswith("ratio 0.63 (0.70), less is better")
