"""What a head becomes: rows numbered on, sizes bounded however long the log grows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from bookkeeper_metadata.foundation.invariant import InvariantViolation
from spark_bookkeeper.log.format.columns import ColumnRange
from spark_bookkeeper.log.format.epoch import LedgerWritten
from spark_bookkeeper.log.format.model import Chunk, ChunkRef, LedgerRange, LogHead, LogSettings
from spark_bookkeeper.log.format.serde import encode_garbage, encode_head, parse_chunk, range_to_pb
from spark_bookkeeper.log.rules.chunks import (
    CHUNK_BYTES_MAX,
    FOLD,
    RANGE_BYTES_MAX,
    REFS_MAX,
    ChunkNames,
)
from spark_bookkeeper.log.rules.transitions import (
    Transition,
    append,
    deleting,
    register_open_ledger,
    replace_all,
)

EMPTY = LogHead(name="orders", settings=LogSettings())


def ledgers(first: int, count: int, columns: int = 0) -> list[LedgerWritten]:
    bounds = tuple(
        ColumnRange(f"l_column_{index}", first, first + 1000, 3) for index in range(columns)
    )
    return [
        LedgerWritten(10**12 + first + index, 40, 1000 + index % 7, 10**6, 0, bounds)
        for index in range(count)
    ]


class Tree:
    """A dumb store of chunks that applies transitions and lists everything below a head."""

    def __init__(self) -> None:
        self.head = EMPTY
        self.chunks: dict[str, bytes] = {}
        self.epoch = 0

    def apply(self, transition: Transition) -> None:
        for ref, value in transition.chunks:
            assert ref.name not in self.chunks, "a chunk name was used twice"
            self.chunks[ref.name] = value
        self.head = transition.head

    def append(self, written: list[LedgerWritten]) -> None:
        self.epoch += 1
        self.apply(append(self.head, written, ChunkNames(self.epoch), self.epoch))

    def chunk(self, ref: ChunkRef) -> Chunk:
        found = parse_chunk(ref.name, self.chunks[ref.name])
        assert found.defects(ref) == []
        return found

    def ranges(self) -> list[LedgerRange]:
        found: list[LedgerRange] = []
        for ref in self.head.chunks:
            found += self.below(ref)
        return [*found, *self.head.ranges]

    def below(self, ref: ChunkRef) -> list[LedgerRange]:
        chunk = self.chunk(ref)
        assert chunk.level == ref.level
        found = [item for lower in chunk.chunks for item in self.below(lower)]
        found += chunk.ranges
        assert (ref.first_row, ref.rows) == (found[0].first_row, sum(item.rows for item in found))
        assert (ref.ranges, ref.last_commit_ms) == (len(found), found[-1].commit_ms)
        return found


@pytest.mark.slow
def test_rows_are_numbered_on_across_commits_and_chunks() -> None:
    tree, random = Tree(), Random(1)
    written: list[LedgerWritten] = []

    for _ in range(60):
        batch = ledgers(len(written), random.randrange(0, 150), columns=2)
        written += batch
        tree.append(batch)

    ranges = tree.ranges()
    assert [item.ledger_id for item in ranges] == [item.ledger_id for item in written]
    assert ranges[0].first_row == 0
    assert all(a.next_row == b.first_row for a, b in pairwise(ranges))
    assert tree.head.next_row == sum(item.rows for item in written)
    assert tree.head.chunks


@pytest.mark.slow
@pytest.mark.parametrize(("commits", "partitions"), [(1, 10_000), (1, 100_000), (600, 50)])
def test_head_and_chunks_stay_small_with_many_ranges(commits: int, partitions: int) -> None:
    tree = Tree()

    for number in range(commits):
        tree.append(ledgers(number * partitions, partitions, columns=8))

    assert len(encode_head(tree.head)) <= CHUNK_BYTES_MAX
    assert max(map(len, tree.chunks.values())) <= CHUNK_BYTES_MAX
    listed = sum(ref.ranges for ref in tree.head.chunks) + len(tree.head.ranges)
    assert listed == commits * partitions


def test_crowded_levels_fold_and_keep_their_order() -> None:
    refs = tuple(ChunkRef(7, n, 0, n * 10, 10, 1, 100, 5) for n in range(REFS_MAX))
    head = replace(EMPTY, chunks=refs, next_row=REFS_MAX * 10, last_commit_ms=5)

    transition = append(head, ledgers(0, 4000), ChunkNames(8), 6)

    head = transition.head
    levels = [ref.level for ref in head.chunks]
    assert levels == sorted(levels, reverse=True)
    assert levels.count(1) == 1
    index_ref = head.chunks[0]
    value = next(value for ref, value in transition.chunks if ref == index_ref)
    assert parse_chunk("index", value).chunks == refs[:FOLD]
    assert index_ref.ranges == FOLD


def test_overwrite_moves_the_base_and_keeps_numbers() -> None:
    tree = Tree()
    tree.append(ledgers(0, 3))
    before = tree.head

    transition = replace_all(before, ledgers(10, 1), ChunkNames(2), 9)

    assert transition.garbage is not None
    assert transition.garbage.ranges == before.ranges
    assert transition.head.base_row == transition.head.overwritten_row == before.next_row
    assert transition.head.ranges[0].first_row == before.next_row
    assert len(encode_garbage(transition.garbage)) <= CHUNK_BYTES_MAX


def test_overwrite_of_an_empty_log_leaves_no_garbage() -> None:
    assert replace_all(EMPTY, ledgers(0, 1), ChunkNames(1), 1).garbage is None


def test_commit_times_never_go_back() -> None:
    first = append(EMPTY, ledgers(0, 1), ChunkNames(1), 100)

    second = append(first.head, ledgers(1, 1), ChunkNames(2), 50)

    assert [item.commit_ms for item in second.head.ranges] == [100, 100]


def test_bounds_that_do_not_fit_are_left_out() -> None:
    bounds = tuple(ColumnRange("c" * 200 + str(index), "x" * 500, "y" * 500) for index in range(40))
    written = LedgerWritten(1, 0, 1, 1, 0, bounds)

    made = append(EMPTY, [written], ChunkNames(1), 1)

    kept = made.head.ranges[0]
    assert 0 < len(kept.columns) < 40
    assert range_to_pb(kept).ByteSize() <= RANGE_BYTES_MAX


def test_log_under_deletion_gets_neither_rows_nor_a_writer() -> None:
    head = deleting(EMPTY)

    with pytest.raises(InvariantViolation):
        append(head, [], ChunkNames(1), 1)
    with pytest.raises(InvariantViolation):
        register_open_ledger(head, 1, 1)


def test_only_one_ledger_is_open() -> None:
    head = register_open_ledger(EMPTY, 1, 1)

    with pytest.raises(InvariantViolation):
        register_open_ledger(head, 2, 2)


def test_head_whose_ranges_have_a_gap_is_no_head() -> None:
    item = LedgerRange(1, 0, 0, 5, 10, 100, 0, 1)

    with pytest.raises(ValueError, match="follow each other"):
        replace(EMPTY, ranges=(item,), next_row=15)


def test_all_defects_of_settings_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"quorums .*payload_format .*compression .*entry_bytes"):
        LogSettings(ack_quorum=9, payload_format="csv", compression="gz", entry_bytes=0)
