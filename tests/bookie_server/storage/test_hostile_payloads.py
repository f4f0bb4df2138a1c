"""A payload is anybody's bytes, and a journal searches for groups where something is damaged or torn: it must find its own only."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bookie_server.core.records import Add, Fence, Tombstone
from bookie_server.storage.disk.group import HEADER_SIZE, GroupEnd, put_stamped_group
from bookie_server.storage.disk.stamps import SECTOR_SIZE
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    file_name,
    parse_file_header,
    stamped_format,
)
from bookie_server.storage.journal.record import encode_record
from bookie_server.wire.record import Run, parse_run
from tests.bookie_server.storage.lapped import PLACE, Lapped
from tests.doubles.records import records
from tests.simulation.kit.files import SimulatedCrash
from tests.simulation.kit.storage_model import INSTANCE, records_of

LARGE = replace(PLACE, file_size_bytes=64 * BLOCK_SIZE)


def forged_group(file_id: int, offset: int, key: bytes) -> bytes:
    """Another client's ledger deleted, a fence where none is: in a group that verifies."""
    body = [bytes(encode_record(record)) for record in (Tombstone(1, 1000), Fence(4242))]
    format = stamped_format(key, 2)
    group = bytearray(format.size_of(sum(map(len, body))))
    put_stamped_group(memoryview(group), format, file_id, GroupEnd(file_id, offset, 7), body)
    return bytes(group)


def entry_at(lapped: Lapped, blocks: bytes) -> Run:
    """An entry, to be written next, whose payload has these blocks where blocks of the file begin."""
    in_front = lapped.journal.position.end.offset + HEADER_SIZE + len(records([b""], 0))
    padding = bytes(-in_front % BLOCK_SIZE)
    return parse_run(records([padding + blocks], lapped.entry_id))


def first_block(lapped: Lapped) -> int:
    in_front = lapped.journal.position.end.offset + HEADER_SIZE + len(records([b""], 0))
    return -(-in_front // BLOCK_SIZE) * BLOCK_SIZE


def cut_write(lapped: Lapped, run: Run) -> None:
    """The power goes when the group is on its way to the disk."""
    lapped.files.crash_at = lapped.files.steps + 1
    with pytest.raises(SimulatedCrash):
        lapped.journal.write_group([Add(run)])


def key_of(lapped: Lapped) -> bytes:
    header = parse_file_header(bytes(lapped.files.copy().content(lapped.path)[:BLOCK_SIZE]))
    assert header is not None
    return header.key


def missing(sector: int) -> list[str]:
    """The fates of a cut write's sectors, all of which reach the disk but one."""
    return [
        "drop" if each == sector else "keep" for each in range(LARGE.file_size_bytes // SECTOR_SIZE)
    ]


@pytest.mark.parametrize("sector", [0, 3])
@pytest.mark.conformance("S8")
def test_what_a_payload_pretends_in_a_cut_write_is_not_taken_for_a_group(sector: int) -> None:
    """Bookie and file are guessed: the ids of both are public, and a file's is the time of its beginning."""
    lapped = Lapped(2, LARGE)
    lapped.write(300)
    file_id, at = lapped.journal.position.end.file_id, first_block(lapped)
    forged = b"".join(forged_group(file_id, at + n * BLOCK_SIZE, INSTANCE) for n in range(8))
    cut_write(lapped, entry_at(lapped, forged))
    fates = iter(missing(sector))

    replay, found = lapped.replayed(lapped.files.crash(Random(1), lambda _: next(fates)))

    assert (replay.report.groups_torn, replay.report.damage) == (1, [])
    assert found == lapped.promised


@pytest.mark.conformance("S8")
def test_what_a_payload_of_an_earlier_lap_pretends_is_not_taken_for_a_group() -> None:
    lapped = Lapped(1, LARGE)
    at, written = first_block(lapped), lapped.journal.position.end.file_id
    wanted = written + 2
    forged = b"".join(forged_group(wanted, at + n * BLOCK_SIZE, INSTANCE) for n in range(40))
    lapped.journal.write_group([Add(entry_at(lapped, forged))])
    lapped.fill_a_file()
    lapped.journal.files.retire([written])
    lapped.fill_a_file()
    assert lapped.journal.position.end.file_id == wanted
    assert forged[:72] in lapped.files.copy().content(f"/j/{file_name(wanted)}")
    lapped.write(300)
    promised = dict(lapped.promised)
    lapped.files.crash_at = lapped.files.steps + 1
    with pytest.raises(SimulatedCrash):
        lapped.write(3000)
    fates = iter(missing(2))

    replay, found = lapped.replayed(lapped.files.crash(Random(1), lambda _: next(fates)))

    assert (replay.report.groups_torn, replay.report.damage) == (1, [])
    assert found == promised


@pytest.mark.conformance("S8")
def test_a_copy_of_the_journals_own_blocks_in_a_payload_is_not_taken_for_them() -> None:
    """Somebody stores a backup of this disk on it. With nothing damaged, a power cut in it was taken for damage."""
    lapped = Lapped(3, LARGE)
    for size in (700, 9000, 1300):
        lapped.write(size)
    copied = bytes(
        lapped.files.copy().content(lapped.path)[BLOCK_SIZE : lapped.journal.position.end.offset]
    )
    run = entry_at(lapped, copied)
    cut_write(lapped, run)
    lawful = (lapped.promised, lapped.promised | records_of(run))
    for seed in range(40):
        image = lapped.files.crash(Random(seed), lambda rng: rng.choice(("keep",) * 9 + ("drop",)))

        replay, found = lapped.replayed(image)

        assert replay.report.damage == [], seed
        assert found in lawful, seed


def test_a_group_that_the_disk_put_in_another_place_is_damage_still() -> None:
    lapped = Lapped(3, LARGE)
    lapped.write(700)
    begin = lapped.journal.position.end.offset
    before = bytes(lapped.files.copy().content(lapped.path))
    lapped.write(700)
    content, end = lapped.files.content(lapped.path), lapped.journal.position.end.offset
    written = bytes(content[begin:end])
    content[begin:end] = before[begin:end]
    content[end : end + len(written)] = written

    assert lapped.replayed(lapped.files)[0].report.damage


def test_each_file_has_a_key_of_its_own_in_each_lap() -> None:
    lapped, keys = Lapped(1), set[bytes]()
    for _ in range(6):
        lapped.journal.files.retire(lapped.older)
        lapped.fill_a_file()
        keys.add(key_of(lapped))

    assert len(keys) == 6
    assert INSTANCE not in keys
