"""Checks of decoders that neither the fuzzers nor any other test missed when they were taken out.

What they keep out passes every other check: a file that somebody changed, or bytes that a peer made.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.records import Add, Replace
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.identity.cookie_file import (
    STARTS_NAME,
    DirectoryCookie,
    DirectorySet,
    Member,
    Start,
    read_cookie,
    read_start,
    write_cookie,
    write_start,
)
from bookie_server.storage.index.delta import MalformedDeltaError, _ids_of
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    KEY_SIZE,
    JournalFileHeader,
    encode_file_header,
    parse_file_header,
)
from bookie_server.storage.journal.record import MalformedBodyError, decode_records, encode_record
from bookie_server.storage.logs.entry_log import (
    TRAILER_SIZE,
    file_name,
    read_footer,
    write_entry_log,
)
from bookie_server.storage.logs.id_pattern import IdPattern
from bookie_server.wire import limits
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.record import (
    MalformedRecordsError,
    encode_lac_packet,
    parse_lac_packet,
    parse_run,
)
from bookie_server.wire.rpc import messages, v2
from bookie_server.wire.rpc.incoming import Incoming, RpcSection
from bookkeeper_metadata.cookies import parse_counter
from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import ENTRY_ID_MAX
from tests.doubles.records import KEY, records
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import INSTANCE


def test_a_journals_header_is_signed() -> None:
    header = JournalFileHeader(
        FORMAT_VERSION,
        0,
        7,
        8 * BLOCK_SIZE,
        INSTANCE,
        GroupEnd(6, BLOCK_SIZE, 3),
        2,
        b"k" * KEY_SIZE,
    )
    encoded = encode_file_header(header)
    assert parse_file_header(encoded) == header
    for changed in (replace(header, lap=3), replace(header, size_bytes=BLOCK_SIZE)):
        fields = encode_file_header(changed)
        # All of the other header, under the signature of this one.
        signature_at = max(at for at in range(BLOCK_SIZE) if encoded[at]) - 3
        forged = fields[:signature_at] + encoded[signature_at:]
        assert parse_file_header(forged) is None


def test_an_entry_logs_footer_has_a_checksum() -> None:
    files = SimFileSystem()
    files.make_directory("/l")
    runs = [(3, [parse_run(records([b"x" * 100] * 9, ledger_id=3))])]
    write_entry_log(files, "/l", 1, runs, instance_id=INSTANCE, block_size_bytes=512)
    path = f"/l/{file_name(1)}"
    assert read_footer(files, "/l", 1, INSTANCE)
    with files.open(path) as file:
        # The ledger's id in its only row, which any other may be as well.
        size = file.size()
        at = size - TRAILER_SIZE - len(_footer(files, path))
        changed = bytearray(file.read_at(at, 8))
        changed[-1] ^= 1
        file.write_at(at, [bytes(changed)])
    with pytest.raises(DamagedFileError, match="footer"):
        read_footer(files, "/l", 1, INSTANCE)


def _footer(files: SimFileSystem, path: str) -> bytes:
    with files.open(path) as file:
        trailer = file.read_at(file.size() - TRAILER_SIZE, TRAILER_SIZE)
        length = int.from_bytes(trailer[16:24])
        return file.read_at(file.size() - TRAILER_SIZE - length, length)


def test_what_replaces_is_of_the_ledger_whose_record_it_is() -> None:
    encoded = bytearray(encode_record(Replace(parse_run(records([b"x"], ledger_id=7)))))
    assert list(decode_records(memoryview(encoded)))
    encoded[4:12] = (8).to_bytes(8)
    with pytest.raises(MalformedBodyError, match="unknown record"):
        list(decode_records(memoryview(encoded)))
    assert list(decode_records(memoryview(encode_record(Add(parse_run(records([b"x"])))))))


def test_a_start_counters_file_has_a_checksum() -> None:
    files = SimFileSystem()
    files.make_directory("/j")
    write_start(files, "/j", Start(21, "one", "two"))
    with files.open(f"/j/{STARTS_NAME}") as file:
        content = file.read_at(0, file.size())
        file.write_at(0, [content.replace(b"21", b"12")])
    with pytest.raises(DamagedFileError, match="checksum"):
        read_start(files, "/j")


@pytest.mark.parametrize(
    "value",
    ['{"starts": true}', '{"starts": 1, "start_id": 7}', '{"starts": 1, "is_forgotten": 0}'],
)
def test_a_start_counter_has_the_types_that_it_is_compared_by(value: str) -> None:
    with pytest.raises(MetadataCorruptError):
        parse_counter(value.encode(), "/counter")


def test_ids_that_are_replaced_are_as_many_as_a_record_may_replace() -> None:
    assert len(_ids_of(IdPattern(0, 1, 2, 1_000))) == 1_000
    with pytest.raises(MalformedDeltaError):
        _ids_of(IdPattern(0, 2**11, 2**12, 2**10))


def test_adds_whose_ids_are_too_far_apart_are_two_sections() -> None:
    frames = b"".join(
        b"".join(map(bytes, v2.encode_request(messages.AddEntry(7, entry_id, KEY, body))))
        for entry_id in (0, limits.ID_SPAN_MAX - 1, limits.ID_SPAN_MAX)
        for body in [records([b"x"], entry_id)[4:]]
    )
    found, size = Incoming().cut(memoryview(frames))
    assert size == len(frames)
    assert [tuple(each.run.entry_ids) for each in found if isinstance(each, RpcSection)] == [
        (0, limits.ID_SPAN_MAX - 1),
        (limits.ID_SPAN_MAX,),
    ]


@pytest.mark.parametrize("ids", [[5, 3], [5, 5], [5, 4, 6]])
def test_the_ids_of_a_run_ascend(ids: list[int]) -> None:
    # Of different sizes, so that they are looked at one by one.
    data = b"".join(records([b"x" * (at + 1)], entry_id) for at, entry_id in enumerate(ids))
    with pytest.raises(MalformedRecordsError, match="follows"):
        parse_run(data)


def test_at_the_end_of_all_ids_neighbours_are_told_apart() -> None:
    """As floats they would be equal."""
    alike = b"".join(records([b"x"], ENTRY_ID_MAX - 5) for _ in range(30))
    with pytest.raises(MalformedRecordsError, match="follows"):
        parse_run(alike)
    whole = b"".join(records([b"x"], ENTRY_ID_MAX - 29 + at) for at in range(30))
    assert list(parse_run(whole).entry_ids) == list(range(ENTRY_ID_MAX - 29, ENTRY_ID_MAX + 1))


def test_a_lac_is_that_of_its_ledger() -> None:
    packet = encode_lac_packet(Crc32cDigest(), 7, 3)
    assert parse_lac_packet(packet, Crc32cDigest(), 7) == 3
    assert parse_lac_packet(packet, Crc32cDigest(), 8) is None


@pytest.mark.parametrize(
    "start",
    [Start("1", "x", ""), Start(None, "x", ""), Start(True, "x", ""), Start(1, 7, "")],  # type: ignore[arg-type]
)
def test_a_start_counters_file_has_the_types_that_it_is_compared_by(start: Start) -> None:
    """One that was changed by hand, its checksum with it, ended the start with an error that names no file."""
    files = SimFileSystem()
    files.make_directory("/j")
    write_start(files, "/j", start)
    with pytest.raises(DamagedFileError, match="no start counter"):
        read_start(files, "/j")


@pytest.mark.parametrize(
    "members",
    [(Member(["a"], "/j"),), (Member("a", 7),)],  # type: ignore[arg-type]
)
def test_so_has_a_cookies_file(members: tuple[Member, ...]) -> None:
    files = SimFileSystem()
    files.make_directory("/j")
    directories = DirectorySet(1, members, (Member("b", "/l"),))
    write_cookie(files, "/j", DirectoryCookie("b:1", "c", "a", directories))
    with pytest.raises(DamagedFileError, match="no cookie"):
        read_cookie(files, "/j")
