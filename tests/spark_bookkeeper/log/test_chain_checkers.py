"""Each checker of logs refuses the history it is there for, and lets a sound one pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark_bookkeeper.log import chain_checkers as checkers

ROWS = [b"a-0", b"a-1", b"b-0"]


@pytest.mark.parametrize(
    "found",
    [
        checkers.c1_all_nonempty_listed({1, 4}, [1, 2, 4]),
        checkers.c2_listed_in_order([1, 2, 4]),
        checkers.c3_one_open(["/ledgers/L4"]),
        checkers.acknowledged_in_place({b"a-1": 1}, ROWS),
        checkers.nothing_twice(ROWS),
        checkers.writers_in_order(ROWS),
    ],
)
def test_a_sound_history_passes(found: Iterator[str]) -> None:
    assert list(found) == []


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (checkers.c1_all_nonempty_listed({1, 3}, [1, 2]), "ledger 3 has entries"),
        (checkers.c2_listed_in_order([1, 4, 2]), "ledger 2 follows ledger 4"),
        (checkers.c3_one_open(["/ledgers/L4", "/ledgers/L5"]), "open at once"),
        (checkers.acknowledged_in_place({b"a-1": 2}, ROWS), "b'a-1' is not row 2"),
        (checkers.acknowledged_in_place({b"a-9": 9}, ROWS), "b'a-9' is not row 9"),
        (checkers.nothing_twice([*ROWS, b"a-0"]), "b'a-0' is there twice"),
        (checkers.writers_in_order([b"a-1", b"b-0", b"a-0"]), "follows number 1"),
    ],
)
def test_each_checker_refuses_what_it_is_there_for(found: Iterator[str], complaint: str) -> None:
    (violation,) = found
    assert complaint in violation
