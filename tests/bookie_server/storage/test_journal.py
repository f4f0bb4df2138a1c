"""The journal on real files: preparing ahead never overwrites what is written meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bookie_server.core.records import Add, ExplicitLac, Fence, JournalRecord, MasterKey, Tombstone
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    file_ids,
    file_name,
    parse_file_header,
)
from bookie_server.storage.journal.journal_files import JournalPlace
from bookie_server.storage.journal.record import (
    MalformedBodyError,
    Roll,
    decode_records,
    encode_record,
)
from bookie_server.storage.journal.replay import ORIGIN, Replay
from bookie_server.wire.record import Run, parse_run
from bookkeeper_metadata.model import ENTRY_ID_MAX
from tests.doubles.records import records
from tests.simulation.kit.storage_model import INSTANCE, records_of, run_of


def new_journal(directory: Path, *, clock_ms: int = 5, last: GroupEnd = ORIGIN) -> Journal:
    place = JournalPlace(
        directory=str(directory),
        index=0,
        instance_id=INSTANCE,
        file_size_bytes=256 * 1024,
        zero_chunk_bytes=8192,
    )
    return Journal(RealFileSystem(), place, lambda: clock_ms, last)


def replayed(directory: Path, mark: GroupEnd = ORIGIN) -> tuple[Replay, dict[int, bytes]]:
    replay = Replay(RealFileSystem(), str(directory), 0, INSTANCE, mark)
    found: dict[int, bytes] = {}
    for group in replay.groups():
        for record in group.records:
            assert isinstance(record, Add)
            found |= records_of(record.run)
    return replay, found


@pytest.mark.slow
def test_preparing_in_another_thread_never_harms_a_group(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    stopping = threading.Event()

    def prepare() -> None:
        while not stopping.is_set():
            if not journal.prepare():
                stopping.wait(0.001)

    thread = threading.Thread(target=prepare)
    thread.start()

    expected: dict[int, bytes] = {}
    for number in range(400):
        run = run_of(1, [number], size=1 + number * 37 % 9000)
        journal.write_group([Add(run)])
        expected |= records_of(run)
    stopping.set()
    thread.join()
    journal.close()

    replay, found = replayed(tmp_path)
    assert replay.report.damage == []
    assert found == expected
    assert len(file_ids(RealFileSystem(), str(tmp_path))) > 3


@pytest.mark.slow
def test_files_given_back_in_another_thread_never_harm_a_group(tmp_path: Path) -> None:
    """Three threads as in a bookie: one writes, one prepares, one gives back what a checkpoint has passed."""
    journal, files = new_journal(tmp_path), RealFileSystem()
    stopping = threading.Event()
    mark = journal.position.end
    expected: dict[int, bytes] = {}
    failures: list[Exception] = []

    def until_stopped(work: Callable[[], bool]) -> None:
        try:
            while not stopping.is_set():
                # Who has nothing to do lets go of the lock, or the others may wait for it for long.
                if not work():
                    stopping.wait(0.001)
        except Exception as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    def retire() -> bool:
        older = [id for id in file_ids(files, str(tmp_path)) if id < mark.file_id]
        if older:
            journal.files.retire(older)
        return bool(older)

    threads = [threading.Thread(target=until_stopped, args=(w,)) for w in (journal.prepare, retire)]
    for thread in threads:
        thread.start()
    laps = 0
    for number in range(1500):
        run = run_of(1, [number], size=1 + number * 37 % 9000)
        journal.write_group([Add(run)])
        if journal.position.end.file_id != mark.file_id:
            mark, expected, laps = journal.position.end, {}, laps + 1
        else:
            expected |= records_of(run)
    stopping.set()
    for thread in threads:
        thread.join()
    journal.close()

    assert failures == []
    assert laps > 10
    replay, found = replayed(tmp_path, mark)
    assert replay.report.damage == []
    assert found == expected
    header = parse_file_header((tmp_path / file_name(mark.file_id)).read_bytes()[:BLOCK_SIZE])
    assert header is not None
    assert header.lap > 1, "some are written again"


@pytest.mark.conformance("S3")
def test_a_group_larger_than_a_file_is_written_whole(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    runs = [run_of(1, [0], size=10), run_of(1, [1], size=400_000), run_of(1, [2], size=10)]

    for run in runs:
        journal.write_group([Add(run)])
    journal.close()

    replay, found = replayed(tmp_path)
    assert replay.report.damage == []
    assert sorted(found) == [0, 1, 2]


def test_the_roll_record_has_room_in_a_file_that_is_full(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    for number in range(200):
        journal.write_group([Add(run_of(1, [number], size=10))])
    journal.close()

    replay, found = replayed(tmp_path)
    assert (replay.report.damage, len(found)) == ([], 200)
    assert [path.stat().st_size for path in tmp_path.glob("*.txn")] == [256 * 1024] * 4

    # and each file but the newest tells the loss of the next
    for lost in sorted(tmp_path.glob("*.txn"))[1:]:
        content = lost.read_bytes()
        lost.unlink()
        assert lost.name in str(replayed(tmp_path)[0].report.damage[0])
        lost.write_bytes(content)


def test_ids_grow_though_the_clock_goes_backwards(tmp_path: Path) -> None:
    """BOOKKEEPER-636: after a reboot the newest files sorted first."""
    first = new_journal(tmp_path, clock_ms=1000)
    first.close()
    new_journal(tmp_path, clock_ms=3, last=first.position.end).close()

    assert file_ids(RealFileSystem(), str(tmp_path)) == [1000, 1001]


def test_every_kind_of_record_comes_back_as_it_was() -> None:
    uniform, striped = run_of(1, range(9)), run_of(1, range(9, 60, 3))
    mixed = run_of(2, [3, 4, 9], size=1)
    facts: list[JournalRecord] = [
        MasterKey(1, bytes(20)),
        MasterKey(4, b""),
        Fence(3),
        ExplicitLac(2, b"packet"),
        Tombstone(5, 2**62),
    ]
    records: list[JournalRecord] = [Add(uniform), *facts, Add(striped), Add(mixed)]

    decoded = list(decode_records(memoryview(b"".join(map(encode_record, records)))))

    assert [record for record in decoded if not isinstance(record, Add)] == facts
    assert list(decode_records(memoryview(encode_record(Roll(2**40))))) == [Roll(2**40)]
    runs = [record.run for record in decoded if isinstance(record, Add)]
    assert entries(runs) == entries([uniform, striped, mixed])
    assert isinstance(runs[1].entry_ids, range), "a stripe stays as cheap as it came"


def test_ids_up_to_the_largest_never_make_an_entry_of_a_ledgers_state() -> None:
    """The id expected next wrapped around to the one that marks an explicit LAC."""
    first, last = (records([b"payload"], entry_id) for entry_id in (0x7FFE, ENTRY_ID_MAX))
    run, size = parse_run(first + last), len(first)
    packet = bytes(size - len(encode_record(ExplicitLac(7, b""))))
    body = b"".join([run.data, encode_record(ExplicitLac(7, packet))])

    added, lac = decode_records(memoryview(body))

    assert isinstance(added, Add)
    assert list(added.run.entry_ids) == [0x7FFE, ENTRY_ID_MAX]
    assert lac == ExplicitLac(7, packet)


def entries(runs: list[Run]) -> dict[tuple[int, int], bytes]:
    return {
        (run.ledger_id, entry_id): content
        for run in runs
        for entry_id, content in records_of(run).items()
    }


@pytest.mark.parametrize(
    "body",
    [b"\0", bytes(20), b"\xff" * 40, bytes(encode_record(Fence(1))) + bytes(7)],
    ids=["short", "zeros", "negative length", "rest"],
)
@pytest.mark.conformance("S1")
def test_bytes_that_are_no_records_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        list(decode_records(memoryview(body)))
