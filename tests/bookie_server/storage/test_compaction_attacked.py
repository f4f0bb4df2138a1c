"""What outsiders found by attacking compaction and burial: each schedule once, as they wrote it down."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from bookie_server.compaction_loop import CompactionLoop
from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, Replace, Tombstone
from bookie_server.core.space import Disk, Space
from bookie_server.observing.measures import BookieMeasures
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.descriptors import RESERVE
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.logs.entry_log import log_ids
from tests.simulation.kit.storage_model import READ_SIZE, Model, run_of, started

_LEDGERS = "/ledgers0"


def trickled(checkpoints: int = 10, size: int = 10) -> Model:
    model = started(directories=1)
    for number in range(checkpoints):
        model.write([Add(run_of(1, [number], size=size))])
        model.checkpoint()
    return model


def test_a_block_that_is_read_twice_and_once_in_vain_is_not_moved() -> None:
    model = started(directories=1)
    model.write([Add(run_of(1, [0, 1, 2, 3, 4, 6, 7, 8, 9]))])
    model.checkpoint()
    model.write([Add(run_of(1, [5]))])  # late: the rows of log 1 stand on both sides of it
    model.checkpoint()
    reads, genuine = [0], model.files.read_step

    def flaky(path: str) -> None:
        if path.endswith(f"{1:016x}.log"):
            reads[0] += 1
            if reads[0] == 2:
                raise OSError(errno.EIO, "a sector that is read now and then", path)
        genuine(path)

    model.files.read_step = flaky  # type: ignore[method-assign]
    result = model.storage.checkpoints.compact(0, [1, 2])
    model.files.read_step = genuine  # type: ignore[method-assign]
    model.show(result)

    plan = model.storage.contents.plan_read(1, 0, 9, size_bytes_max=READ_SIZE)
    outcome = model.storage.execute(plan)
    assert outcome.of(Presence.ABSENT) == []
    model.restart()
    model.check(model.storage, "restarted")


class Inline:
    """Workers that do everything at once."""

    def _do(self, work: Callable[[], object]) -> asyncio.Future[object]:
        async def later() -> object:
            return work()

        return asyncio.ensure_future(later())

    read = checkpoint = _do


def loop_of(model: Model, space: Space, settings: BookieSettings) -> CompactionLoop:
    return CompactionLoop(model.storage, settings, Inline(), space, BookieMeasures())  # type: ignore[arg-type]


SETTINGS = BookieSettings(journal_directories=("/journal0",), ledger_directories=(_LEDGERS,))


def look(space: Space, beyond_reserve: int) -> None:
    free = SETTINGS.read_only_below_bytes + beyond_reserve
    noted = space.begin_look(unjournalled_bytes=0, unlogged_bytes=0)
    space.on_look(noted, [Disk(free, True, True)])


async def test_merging_ends_where_only_one_of_the_logs_has_room() -> None:
    model = trickled(8, size=100_000)
    space = Space(SETTINGS)
    compaction = loop_of(model, space, SETTINGS)
    copies = 0
    for _ in range(30):
        look(space, 400_000)
        before = log_ids(model.files, _LEDGERS)
        await compaction.step()
        model.bury()
        assert len(log_ids(model.files, _LEDGERS)) <= 8
        copies += log_ids(model.files, _LEDGERS) != before
    assert copies < 8, f"{copies} rewrites of one log each, into one just like it"


async def test_a_large_sparse_log_without_room_does_not_keep_small_ones_from_it() -> None:
    model = started(directories=1)
    # Log 1: 900 KB live of 6 MB; logs 2..4: 10 KB live of 300 KB.
    model.write([Add(run_of(1, range(9), size=100_000))])
    model.write([Add(run_of(2, range(51), size=100_000))])
    model.checkpoint()
    for number in range(3):
        model.write([Add(run_of(10 + number, [0], size=10_000))])
        model.write([Add(run_of(20 + number, range(3), size=100_000))])
        model.checkpoint()
    for dead in (2, 20, 21, 22):
        model.write([Tombstone(dead, dead)])
    model.bury()
    assert log_ids(model.files, _LEDGERS) == [1, 2, 3, 4]
    space = Space(SETTINGS)
    compaction = loop_of(model, space, SETTINGS)
    for _ in range(5):
        look(space, 400_000)
        await compaction.step()
        model.bury()
    left = log_ids(model.files, _LEDGERS)
    assert not {2, 3, 4} & set(left), left


def test_a_log_that_cannot_be_read_does_not_keep_all_others_from_compaction() -> None:
    model = trickled(10)
    model.files.unreadable.add(f"{_LEDGERS}/{3:016x}.log")
    assert len(model.storage.checkpoints.survey(0)) >= 9


def test_compaction_opens_no_more_files_than_are_kept_for_storage() -> None:
    model = trickled(200)
    is_open, most, genuine = 0, 0, model.files.open

    def counted(path: str, *, writable: bool = False):  # type: ignore[no-untyped-def]
        nonlocal is_open, most
        file = genuine(path, writable=writable)
        is_open, most = is_open + 1, max(most, is_open + 1)
        close = file.close

        def closed() -> None:
            nonlocal is_open
            is_open -= 1
            close()

        file.close = closed  # type: ignore[method-assign]
        return file

    model.files.open = counted  # type: ignore[method-assign]
    from bookie_server.storage.compaction.rules import choose_logs

    model.compact(0, choose_logs(model.storage.checkpoints.survey(0), 20, 8))
    assert most <= RESERVE, most


def test_a_log_of_ledgers_deleted_before_and_after_an_index_was_damaged_goes() -> None:
    model = started(directories=2)
    for ledger_id in range(1, 5):
        model.write([Add(run_of(ledger_id, range(3)))])
    model.checkpoint()
    (log,) = log_ids(model.files, "/ledgers1")
    in_second = [i for i, h in model.storage.contents.ledgers.items() if h.directory_index == 1]
    assert len(in_second) == 2
    model.write([Tombstone(in_second[0], in_second[0])])
    model.bury()
    assert log_ids(model.files, "/ledgers1") == [log]
    model.restart()  # the journal with the tombstone goes
    model.storage.close()
    model.files.content("/ledgers1/index")[3] ^= 1
    model.storage = model.open(model.files)
    assert in_second[0] in model.storage.contents.tombstones, "the other directory has it"
    model.storage.contents.set_limbo(model.storage.contents.ledgers)
    model.storage.checkpoint_now()

    model.write([Tombstone(in_second[1], in_second[1])])
    plan = model.storage.contents.begin_burial()
    assert plan is not None
    model.storage.contents.finish_burial(model.storage.checkpoints.bury(plan))
    model.storage.checkpoint_now()
    model.storage.close()
    model.storage = model.open(model.files)

    assert log_ids(model.files, "/ledgers1") == []


def test_a_tombstone_reaches_an_index_that_lost_it() -> None:
    """Else it is gone with the one disk that still has it."""
    model = started(directories=2)
    for ledger_id in range(1, 5):
        model.write([Add(run_of(ledger_id, range(3)))])
    model.checkpoint()
    model.write([Tombstone(1, 1)])
    model.bury()
    model.restart()  # the journal with the tombstone goes
    model.storage.close()
    model.files.content("/ledgers1/index")[3] ^= 1
    model.storage = model.open(model.files)
    model.storage.contents.set_limbo(model.storage.contents.ledgers)
    model.storage.checkpoint_now()
    assert all(1 in index.tombstones for index in model.storage.checkpoints._indexes)


def test_a_log_whose_entries_were_replaced_goes_with_its_ledger() -> None:
    model = started(directories=1)
    model.write([Add(run_of(1, range(3)))])
    model.checkpoint()
    model.write([Replace(run_of(1, range(3)))])
    model.checkpoint()
    model.bury()
    assert log_ids(model.files, _LEDGERS) == [1, 2]
    model.write([Tombstone(1, 1)])
    model.bury()
    assert log_ids(model.files, _LEDGERS) == []


def test_a_shortage_of_descriptors_pins_nothing() -> None:
    model = trickled(10)
    genuine = model.files.open

    def short(path: str, *, writable: bool = False):  # type: ignore[no-untyped-def]
        if path.endswith(".log"):
            raise OSError(errno.EMFILE, "too many open files", path)
        return genuine(path, writable=writable)

    model.files.open = short  # type: ignore[method-assign]
    with pytest.raises(NoRoomError):  # and the step is made again later
        model.storage.checkpoints.compact(0, log_ids(model.files, _LEDGERS))
    model.files.open = genuine  # type: ignore[method-assign]
    model.compact(0, log_ids(model.files, _LEDGERS))
    assert len(log_ids(model.files, _LEDGERS)) == 1


def test_a_compacted_log_stays_that_may_hold_what_damage_took() -> None:
    """As a burial keeps it."""
    model = started(directories=1)
    model.write([Add(run_of(1, range(3)))])
    model.write([Add(run_of(2, range(3)))])
    model.checkpoint()
    (index,) = model.storage.checkpoints._indexes
    model.storage.contents.set_limbo([1, 2])  # damage took the snapshot's group with ledger 2 ...
    index.log_use.remove(index.rows.pop(2).log_ids())
    model.files.content(f"{_LEDGERS}/{1:016x}.log")[-20] ^= 1  # ... and the footer of log 1
    result = model.storage.checkpoints.compact(0, [1])
    model.show(result)
    plan = model.storage.contents.begin_burial()
    if plan is not None:
        model.storage.checkpoints.bury(plan)
    assert 1 in log_ids(model.files, _LEDGERS)
