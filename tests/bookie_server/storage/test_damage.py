"""Damage of what is stored: never wrong bytes, and never an absence that limbo does not qualify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from bookie_server.core.presence import Presence
from bookie_server.core.records import Add, Fence, MasterKey
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.engine import Storage
from bookie_server.storage.opening import open_storage
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.storage_model import (
    READ_SIZE,
    Model,
    open_small,
    read_all,
    run_of,
    settings,
    started,
)

EVERY_KIND = pytest.mark.parametrize("suffix", [".txn", ".log", "/index"])


def test_a_journal_with_a_key_that_fits_no_index_opens_again() -> None:
    """Version 0.1 took such a key from the wire: the next checkpoint failed, and every start since."""
    model = started(directories=1)
    model.write([MasterKey(1, bytes(70_000)), Fence(1)])

    storage = open_small(model.files.after_kill(), directories=1)

    facts = storage.contents.ledgers[1]
    assert facts.is_fenced
    assert facts.master_key is None
    storage.close()


@pytest.fixture(scope="module")
def stored() -> Model:
    """Two ledgers: some entries checkpointed, some in the journal only; then the process is killed."""
    model = started(directories=1)
    model.write([MasterKey(1, bytes(range(20))), Add(run_of(1, range(6), size=300))])
    model.write([Add(run_of(2, range(0, 12, 3), size=40)), Fence(2)])
    model.checkpoint()
    model.write([Add(run_of(1, range(6, 9), size=200))])
    model.checkpoint()
    model.restart()  # a new journal file: what the checkpoints hold is in the entry logs only
    model.write([Add(run_of(1, range(9, 12), size=500))])
    model.write([Add(run_of(2, range(12, 15), size=30)), Fence(1)])
    return model


@pytest.fixture
def files(stored: Model) -> SimFileSystem:
    """What is stored, to be damaged."""
    return stored.files.copy()


def path_of(model: Model, suffix: str) -> str:
    """The file of that suffix with the most content."""
    paths = [path for path in model.files.names_now if path.endswith(suffix)]
    return max(paths, key=lambda path: len(model.files.content(path).rstrip(b"\0")))


def check(model: Model, storage: Storage, damage: str) -> None:
    """The two promises: no wrong bytes, no absence nor lost fence without limbo."""
    for ledger_id, expected in model.entries.items():
        for entry_id, content in read_all(storage, ledger_id).items():
            assert content == expected[entry_id], f"{damage}: wrong bytes of {ledger_id}/{entry_id}"
        facts = storage.contents.ledgers.get(ledger_id)
        if storage.contents.is_damaged and (facts is None or facts.is_limbo):
            continue
        plan = storage.contents.plan_read(ledger_id, 0, max(expected), size_bytes_max=READ_SIZE)
        for first, last in storage.execute(plan).of(Presence.ABSENT):
            lost = expected.keys() & set(range(first, last + 1))
            assert not lost, f"{damage}: {ledger_id} falsely lacks {sorted(lost)}"
        assert facts is not None, damage
        assert facts.is_fenced, f"{damage}: fence of {ledger_id} forgotten"


def check_damaged(model: Model, files: SimFileSystem, damage: str) -> None:
    try:
        storage = open_small(files, directories=1)
    except StorageRefusedError:
        return  # answering nothing at all is always allowed
    check(model, storage, damage)
    if not storage.recovery.damage:
        return
    # Until somebody answers it, damage is reported by every later start as well.
    storage.close()
    storage = open_small(files, directories=1)
    assert storage.contents.is_damaged, damage
    # Once it is answered, later starts still have all that could be read.
    held = {ledger_id: read_all(storage, ledger_id) for ledger_id in model.entries}
    storage.contents.set_limbo(model.entries)
    storage.checkpoint_now()
    storage.close()
    storage = open_small(files, directories=1)
    assert not storage.contents.is_damaged, damage
    assert {ledger_id: read_all(storage, ledger_id) for ledger_id in held} == held, damage


def written(content: bytearray) -> Iterator[int]:
    """Offsets of bytes that are not zero, their neighbours, and some of the zeros behind them."""
    end = len(content.rstrip(b"\0"))
    for offset in range(end):
        if any(content[max(offset - 1, 0) : offset + 2]):
            yield offset
    yield from range(end, len(content), 509)


@pytest.mark.slow
@pytest.mark.parametrize("is_every_bit", [False, pytest.param(True, marks=pytest.mark.full)])
@EVERY_KIND
@pytest.mark.conformance("S1")
def test_no_flipped_bit_makes_wrong_bytes_or_a_false_absence(
    stored: Model, suffix: str, is_every_bit: bool
) -> None:
    """One bit of every byte here; every bit in the long suite."""
    path, rng = path_of(stored, suffix), Random(suffix)
    for offset in written(stored.files.content(path)):
        for bit in range(8) if is_every_bit else (rng.randrange(8),):
            files = stored.files.copy()
            files.content(path)[offset] ^= 1 << bit
            check_damaged(stored, files, f"bit {bit} of {path}+{offset}")


@pytest.mark.slow
@EVERY_KIND
@pytest.mark.conformance("S1")
def test_no_truncation_makes_wrong_bytes_or_a_false_absence(stored: Model, suffix: str) -> None:
    path = path_of(stored, suffix)
    end = len(stored.files.content(path).rstrip(b"\0"))
    for size in [*range(0, end + 512, 7), end]:
        files = stored.files.copy()
        del files.content(path)[size:]
        check_damaged(stored, files, f"{path} cut to {size}")


@pytest.mark.parametrize("suffix", [".log", "/index"])
@pytest.mark.conformance("S1")
def test_no_zeroed_sector_makes_wrong_bytes_or_a_false_absence(stored: Model, suffix: str) -> None:
    """Of the journal's last group a zeroed sector cannot be told from an unwritten one."""
    path = path_of(stored, suffix)
    for begin in range(0, len(stored.files.content(path)) - 511, 512):
        files = stored.files.copy()
        files.content(path)[begin : begin + 512] = bytes(512)
        check_damaged(stored, files, f"sector at {begin} of {path} zeroed")


@pytest.mark.parametrize("suffix", [".txn", "/index"])
def test_a_missing_file_is_damage(stored: Model, files: SimFileSystem, suffix: str) -> None:
    files.delete(path_of(stored, suffix))

    storage = open_small(files, directories=1)

    assert storage.contents.is_damaged
    check(stored, storage, f"no {suffix}")


@pytest.mark.slow
def test_damage_is_recorded_before_a_replay_goes_past_it() -> None:
    """A checkpoint in the middle of a replay moves the mark; killed behind it, nobody would know."""
    model = started(directories=1)
    model.write([Add(run_of(1, range(3), size=300))])
    for entry_id in range(20):
        model.write([Add(run_of(2, [entry_id], size=6000))])
    files = model.files.after_kill()
    path = next(path for path in sorted(files.names_now) if b"1/0/0:" in files.content(path))
    files.content(path)[files.content(path).index(b"1/0/0:")] ^= 1
    rehearsed = files.copy()
    open_small(rehearsed, directories=1)

    for steps in range(rehearsed.steps - files.steps):
        image = files.copy()
        image.crash_at = image.steps + steps
        with suppress(SimulatedCrash):
            open_small(image, directories=1)
        storage = open_small(image.crash(Random(0), lambda _: "keep"), directories=1)
        assert storage.contents.is_damaged, steps


@pytest.mark.conformance("S6")
def test_a_missing_entry_log_makes_its_entries_unreadable_not_absent(
    stored: Model, files: SimFileSystem
) -> None:
    files.delete(path_of(stored, ".log"))

    storage = open_small(files, directories=1)

    outcome = storage.execute(storage.contents.plan_read(1, 0, 11, size_bytes_max=READ_SIZE))
    assert outcome.of(Presence.DAMAGED) == [(0, 5)]
    assert outcome.of(Presence.ABSENT) == []


@EVERY_KIND
def test_an_unreadable_file_hides_nothing(stored: Model, files: SimFileSystem, suffix: str) -> None:
    files.unreadable.add(path_of(stored, suffix))

    check(stored, open_small(files, directories=1), f"unreadable {suffix}")


@pytest.mark.conformance("S6")
def test_rows_are_rebuilt_from_footers_when_the_index_is_gone(
    stored: Model, files: SimFileSystem
) -> None:
    files.delete(path_of(stored, "/index"))

    storage = open_small(files, directories=1)

    for ledger_id, expected in stored.entries.items():
        assert read_all(storage, ledger_id) == expected
        assert storage.contents.ledgers[ledger_id].is_limbo


def test_a_failed_checksum_in_the_last_delta_is_damage_though_the_journal_has_it_all() -> None:
    model = started(directories=1)
    model.write([Add(run_of(1, range(3)))])
    model.checkpoint()
    content = model.files.content("/ledgers0/index")

    # Every sector is written, so nobody can say what else is wrong.
    content[len(content.rstrip(b"\0")) - 1] ^= 0x80
    storage = open_small(model.files.copy(), directories=1)

    assert storage.contents.is_damaged
    check(model, storage, "last delta")


def test_entries_whose_index_delta_and_journal_are_gone_are_found_by_their_log() -> None:
    model = started(directories=1)
    size = len(model.files.content("/ledgers0/index"))
    model.write([Add(run_of(1, range(8), size=300))])
    model.checkpoint()
    model.restart()

    # when the index loses everything since before it, as if nothing had been written
    del model.files.content("/ledgers0/index")[size:]
    storage = open_small(model.files.copy(), directories=1)

    assert storage.contents.is_damaged
    assert read_all(storage, 1) == model.entries[1]


def test_a_torn_delta_leaves_no_debris_behind_later_ones() -> None:
    model = started(directories=1)
    begin = len(model.files.content("/ledgers0/index"))
    model.write([Add(run_of(1, [number * number for number in range(80)]))])
    model.checkpoint()
    content = model.files.content("/ledgers0/index")
    assert len(content) - begin > 2048
    content[begin : begin + 512] = bytes(512)

    files = model.files.copy()
    assert not open_and_close(files).contents.is_damaged

    storage = open_and_close(files)
    assert storage.recovery.damage == []
    model.check(storage, "torn delta")


def open_and_close(files: SimFileSystem) -> Storage:
    storage = open_small(files, directories=1)
    storage.close()
    return storage


@pytest.mark.conformance("S6")
def test_a_log_that_no_checkpoint_completed_is_deleted_after_a_sound_replay() -> None:
    model = started(directories=1)
    model.write([Add(run_of(1, range(8)))])
    plan = model.storage.contents.begin_checkpoint()
    assert plan is not None
    model.files.crash_at = model.files.steps + 4  # create, write, sync, sync_dir
    with suppress(SimulatedCrash):
        model.storage.checkpoints.write(plan)
    image = model.files.crash(Random(0), lambda _: "keep")
    assert [name for name in image.names("/ledgers0") if name.endswith(".log")]

    storage = open_small(image, directories=1)

    # then there is one log, the one that replaced the leftover
    assert len([name for name in image.names("/ledgers0") if name.endswith(".log")]) == 1
    assert read_all(storage, 1) == model.entries[1]


@pytest.mark.conformance("S8")
def test_damage_is_answered_by_naming_the_ledgers_in_limbo(
    stored: Model, files: SimFileSystem
) -> None:
    files.content(path_of(stored, "/index"))[20] ^= 1
    storage = open_small(files, directories=1)
    assert storage.contents.is_damaged

    storage.contents.set_limbo([1, 2, 77])
    storage.checkpoint_now()
    storage.close()
    storage = open_small(files, directories=1)

    assert not storage.contents.is_damaged
    assert not storage.recovery.damage
    assert storage.contents.ledgers[77].is_limbo


def test_another_bookies_directories_are_refused(files: SimFileSystem) -> None:
    with pytest.raises(StorageRefusedError, match="another bookie"):
        open_storage(
            files,
            settings(1),
            lock_directories(files, settings(1).directories),
            instance_id=b"somebody else's!",
            clock_ms=lambda: 0,
        )


def test_directories_that_vanished_or_changed_places_are_refused() -> None:
    model = started(directories=2)
    model.write([Add(run_of(1, range(3)))])
    model.storage.close()

    with pytest.raises(StorageRefusedError, match="directories are gone"):
        open_small(model.files.copy(), directories=1)

    swapped = model.files.copy()
    swapped.rename("/ledgers0/index", "/ledgers1/index.other")
    swapped.rename("/ledgers1/index", "/ledgers0/index")
    swapped.rename("/ledgers1/index.other", "/ledgers1/index")
    with pytest.raises(StorageRefusedError, match="reordered"):
        open_small(swapped, directories=2)


def test_a_directory_may_be_added_at_the_end() -> None:
    model = started(directories=1)
    model.write([Add(run_of(1, range(3)))])
    model.storage.close()

    storage = open_small(model.files, directories=2)

    assert not storage.contents.is_damaged
    assert read_all(storage, 1) == model.entries[1]
    assert storage.contents.journal_of(99) == 1


@pytest.mark.conformance("S4")
def test_a_second_process_cannot_open_the_same_directories(files: SimFileSystem) -> None:
    first = open_small(files, directories=1)

    with pytest.raises(BlockingIOError):
        open_small(files, directories=1)

    first.close()
    open_small(files, directories=1).close()
