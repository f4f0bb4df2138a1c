"""Any one file that is gone, or an older copy of itself: noticed, or nothing that matters is missing.

At every moment of a varied history each file in turn is taken away, or put back to what it was at an
earlier moment. The one exception is stated here and in ``storage.journal.journal``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from random import Random

import pytest

from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, ExplicitLac, Fence, MasterKey, Tombstone
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.engine import Storage
from bookie_server.storage.journal.journal_file import file_name
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import READ_SIZE, Model, open_small, read_all, run_of

DIRECTORIES = 2
KEY = bytes(range(20))


@dataclass
class Moment:
    """What the disks hold, and what was acknowledged by then."""

    files: SimFileSystem
    expected: Model
    marks: dict[int, GroupEnd]
    """Per journal: what the indexes say needs no replay."""


def rolls(model: Model) -> None:
    """Several journal files beyond the mark, in both journals."""
    first = max(model.entries[1]) + 1
    for number in range(first, first + 9):
        model.write([Add(run_of(1, [number], size=15_000))])
        model.write([Add(run_of(2, [number], size=15_000))])


HISTORY: tuple[Callable[[Model], None], ...] = (
    lambda model: model.write([MasterKey(1, KEY), Add(run_of(1, range(3), size=600))]),
    lambda model: model.write([MasterKey(2, KEY), Add(run_of(2, range(3), size=600))]),
    rolls,
    Model.checkpoint,
    lambda model: model.write([Fence(1), ExplicitLac(2, bytes(15) + b"\x04" + bytes(4))]),
    lambda model: model.write([MasterKey(3, KEY), Add(run_of(3, range(0, 40, 2), size=900))]),
    Model.checkpoint,
    Model.restart,
    lambda model: model.write([Fence(2), Tombstone(7, 9)]),
    lambda model: model.write([Add(run_of(1, range(100, 103), size=600))]),
    Model.checkpoint,
    lambda model: model.write([Add(run_of(1, range(103, 106)))]),
    lambda model: model.write([Add(run_of(2, range(103, 106)))]),
    lambda model: model.write([Add(run_of(3, range(1, 40, 2), size=2900))]),
    rolls,
    lambda model: model.write([Fence(3)]),
    rolls,
    Model.restart,
    rolls,
)


def moments() -> Iterator[Moment]:
    """The state after each step of the history."""
    model = Model(SimFileSystem(), DIRECTORIES)
    model.start()
    for step in HISTORY:
        step(model)
        expected = Model(SimFileSystem(), DIRECTORIES)
        expected.entries = deepcopy(model.entries)
        expected.keys, expected.fenced = dict(model.keys), set(model.fenced)
        expected.tombstones = set(model.tombstones)
        indexes = model.storage.checkpoints._indexes
        marks = {
            number: min(index.marks[number] for index in indexes) for number in range(DIRECTORIES)
        }
        yield Moment(model.files.copy(), expected, marks)


@pytest.fixture(scope="module")
def history() -> list[Moment]:
    return list(moments())


def opened(files: SimFileSystem) -> Storage | None:
    """The storage, or ``None`` where the bookie refuses to start."""
    try:
        return open_small(files, DIRECTORIES)
    except StorageRefusedError:
        return None


def missing(moment: Moment, storage: Storage | None) -> list[str]:
    """What was acknowledged and is denied now; nothing may have other bytes."""
    if storage is None:
        return []
    lost: list[str] = []
    contents, expected = storage.contents, moment.expected
    for ledger_id, entries in expected.entries.items():
        for entry_id, content in read_all(storage, ledger_id).items():
            assert content == entries[entry_id], f"wrong bytes of {ledger_id}/{entry_id}"
    if contents.is_damaged:
        return []
    for ledger_id, entries in expected.entries.items():
        handle = contents.ledgers.get(ledger_id)
        if handle is None or handle.master_key != KEY:
            lost.append(f"key of {ledger_id}")
        if ledger_id in expected.fenced and not (handle is not None and handle.is_fenced):
            lost.append(f"fence of {ledger_id}")
        plan = contents.plan_read(ledger_id, 0, max(entries), size_bytes_max=READ_SIZE)
        for first, last in storage.execute(plan).of(Presence.ABSENT):
            lost += [f"{ledger_id}/{entry}" for entry in entries if first <= entry <= last]
    return lost + [f"tombstone {id}" for id in expected.tombstones if id not in contents.tombstones]


def test_no_single_lost_file_is_denied(history: list[Moment]) -> None:
    """The newest of several journal files beyond the mark vanished without a word."""
    rolled = 0
    for number, moment in enumerate(history):
        for path in moment.files.names_now:
            files = moment.files.copy()
            files.delete(path)

            lost = missing(moment, opened(files))

            assert lost == [], f"step {number}: {path} is gone"
        rolled += sum(path.endswith(".txn") for path in moment.files.names_now) > DIRECTORIES
    assert rolled > 3, "there was more than one file behind a mark"


def is_behind_the_mark(moment: Moment, path: str, old: bytes) -> bool:
    """The exception: the newest file of a journal, as it was once the marks' groups were in it."""
    directory, _, name = path.rpartition("/")
    newest = max((n for n in moment.files.names(directory) if n.endswith(".txn")), default="")
    if name != newest:
        return False
    mark = moment.marks[int(directory.removeprefix("/journal"))]
    # A newer file than the mark's was begun, and named, since the mark was made.
    covered = mark.offset if file_name(mark.file_id) == name else 4096
    return old[:covered] == moment.files.content(path)[:covered]


@pytest.mark.slow
@pytest.mark.parametrize("copies", [3, pytest.param(99, marks=pytest.mark.full)])
def test_no_single_file_rolled_back_is_denied_but_for_a_journals_end(
    history: list[Moment], copies: int
) -> None:
    rng, excepted = Random(5), 0
    for number, moment in enumerate(history):
        for path in moment.files.names_now:
            now = bytes(moment.files.content(path))
            olds = {
                bytes(earlier.files.content(path))
                for earlier in history[:number]
                if path in earlier.files.names_now
            } - {now}
            for old in rng.sample(sorted(olds), min(copies, len(olds))):
                files = moment.files.copy()
                files.content(path)[:] = old

                lost = missing(moment, opened(files))

                if lost and is_behind_the_mark(moment, path, old):
                    excepted += 1
                    continue
                assert lost == [], f"step {number}: {path} is an older copy"
    assert excepted, "the exception is one"
