"""The rule by which a duplicate is OK or a conflict, against a dumb twin that compares entry by entry."""

from __future__ import annotations

from itertools import product

from bookie_server.core.same_entries import conflicts_with_any, same_entries, without_ids_of
from bookie_server.wire.record import Run, parse_run
from tests.doubles.records import CRC32C, records

Entry = tuple[int, bytes, int]
"""Length of what lies before it, payload, LAC."""
Entries = dict[int, Entry]

SOME: Entry = (0, b"aa", -1)
PACKAGED_ANEW: Entry = (0, b"aa", 7)
BEGINS_LIKE_IT: Entry = (1, b"a", -1)
"""Of the same cumulative length, too."""
OTHER_PAYLOAD: Entry = (0, b"ab", -1)
OTHER_LENGTH: Entry = (5, b"aa", -1)

AT_ENDS = (None, SOME, BEGINS_LIKE_IT)
INSIDE = (*AT_ENDS, PACKAGED_ANEW, OTHER_PAYLOAD, OTHER_LENGTH)


def run_of(entries: Entries) -> Run:
    parts = [
        records([payload], entry_id, length_before=before, lac=lac)
        for entry_id, (before, payload, lac) in entries.items()
    ]
    return parse_run(b"".join(parts))


ALL = [
    {entry_id: entry for entry_id, entry in enumerate(chosen) if entry is not None}
    for chosen in product(AT_ENDS, INSIDE, AT_ENDS)
    if any(chosen)
]
RUNS = [run_of(entries) for entries in ALL]


def is_same(one: Entries, other: Entries) -> bool:
    """What readers see of an entry: its cumulative length and its payload."""
    seen = [
        {
            entry_id: (before + len(payload), payload)
            for entry_id, (before, payload, _) in each.items()
        }
        for each in (one, other)
    ]
    return all(seen[0][entry_id] == seen[1][entry_id] for entry_id in one.keys() & other.keys())


def test_entries_are_the_same_if_each_has_one_length_and_one_payload() -> None:
    for (one, run), (other, stored) in product(zip(ALL, RUNS, strict=True), repeat=2):
        assert same_entries(run, stored, CRC32C.size) is is_same(one, other), (one, other)


def test_each_of_the_others_counts() -> None:
    for run_at, first, second in product(range(0, len(ALL), 5), range(len(ALL)), (0, 7, 30)):
        run, others = RUNS[run_at], [RUNS[first], RUNS[second]]
        is_conflict = not all(is_same(ALL[run_at], ALL[each]) for each in (first, second))
        left = [entry_id for part in without_ids_of(run, others) for entry_id in part.entry_ids]

        assert conflicts_with_any(run, others, CRC32C.size) is is_conflict
        assert left == sorted(ALL[run_at].keys() - ALL[first].keys() - ALL[second].keys())
