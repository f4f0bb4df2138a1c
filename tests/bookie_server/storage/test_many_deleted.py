"""Deleting and moving very much keeps the event loop for short steps only, and dead space is found for what it is."""

from __future__ import annotations

from random import Random

import pytest

from bookie_server.collection.rules import Comparison, Gone
from bookie_server.core.ledger_ranges import IdsBetween, within
from bookie_server.core.records import Add, Replace, Tombstone
from bookie_server.storage.compaction.rules import choose_logs, steps_of
from bookie_server.storage.logs.entry_log import log_ids
from tests.simulation.kit.storage_model import run_of, started


class CountedIds(dict[int, None]):
    """Counts how often somebody goes through all of them."""

    walks = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.walks += 1
        return super().__iter__()


def test_many_wide_ranges_are_looked_up_in_one_walk() -> None:
    known = CountedIds((number, None) for number in range(0, 30_000, 7))
    between = IdsBetween(known)
    random = Random(1)
    for _ in range(300):
        first = random.randrange(30_000)
        last = first + random.choice((0, 3, 63, 64, 500, 40_000))
        assert between(first, last) == within(first, last, dict.fromkeys(sorted(known)))
        if random.random() < 0.5 and (found := between(first, last)):
            del known[found[0]]
    known.walks = 0
    for first in range(0, 30_000, 100):
        between(first, first + 99)
    assert known.walks == 0


def test_a_group_of_tombstones_and_late_adds_leaves_what_comes_behind() -> None:
    model = started(directories=1)
    for ledger in range(0, 400, 2):
        model.write([Add(run_of(ledger, [0]))])
    model.write([Tombstone(0, 149), Tombstone(200, 299)])
    assert sorted(model.storage.contents.ledgers) == [*range(150, 200, 2), *range(300, 400, 2)]
    # One that came between two tombstones is among the known ones of the second.
    model.write([Tombstone(150, 151), Add(run_of(161, [0])), Tombstone(152, 299)])
    assert sorted(model.storage.contents.ledgers) == list(range(300, 400, 2))
    model.check(model.storage, "deleted")


@pytest.mark.parametrize("seed", range(20))
def test_gone_ledgers_are_found_in_stretches(seed: int) -> None:
    """Against the dumb twin: one by one, in order."""
    random = Random(seed)
    ids = range(200)
    held, listed, pending = (sorted(random.sample(ids, random.randrange(120))) for _ in range(3))
    comparison = Comparison(held, pending)
    for ledger_id in listed:
        comparison.see(ledger_id)
    expected, is_next = list[Gone](), False
    for ledger_id in ids:
        if ledger_id in listed or ledger_id in pending:
            is_next = False
        elif ledger_id in held:
            expected.append(Gone(ledger_id, is_next))
            is_next = True

    assert comparison.finish() == expected


def test_rows_are_moved_in_steps_of_bounded_size() -> None:
    assert list(steps_of([])) == []
    assert list(steps_of([1] * 250)) == [slice(0, 100), slice(100, 200), slice(200, 250)]
    assert list(steps_of([15_000, 6_000, 14_000, 1])) == [slice(0, 1), slice(1, 3), slice(3, 4)]
    assert list(steps_of([1_000_000, 5])) == [slice(0, 1), slice(1, 2)]


def test_a_log_that_is_mostly_dead_is_sparse_though_its_ledger_interleaves() -> None:
    """As where a bookie gets another stripe of a ledger that it has one of."""
    model = started(directories=1)
    model.write([Add(run_of(1, range(0, 200, 2)))])
    model.write([Add(run_of(2, range(400), size=100))])
    model.checkpoint()
    model.write([Add(run_of(1, range(1, 200, 2)))])
    model.checkpoint()
    model.write([Tombstone(2, 2)])
    model.bury()

    assert 1 in choose_logs(model.storage.checkpoints.survey(0), 80, 8)


def test_a_pinned_log_goes_once_its_damaged_block_is_replaced() -> None:
    model = started(directories=1)
    for number in range(4):
        model.write([Add(run_of(1, [number]))])
        model.write([Add(run_of(2, [number]))])
        model.checkpoint()
    (index,) = model.storage.checkpoints._indexes
    broken = next(row for row in index.rows[1] if row.pattern.start == 2).block
    model.files.content(f"/ledgers0/{broken.log_id:016x}.log")[broken.offset] ^= 1
    contents, checkpoints = model.storage.contents, model.storage.checkpoints
    model.show(checkpoints.compact(0, log_ids(model.files, "/ledgers0")))
    burial = contents.begin_burial()
    assert burial is not None
    contents.finish_burial(checkpoints.bury(burial))
    assert broken.log_id in log_ids(model.files, "/ledgers0")

    model.write([Replace(run_of(1, [2]))])
    model.checkpoint()
    model.bury()

    assert broken.log_id not in log_ids(model.files, "/ledgers0")
