"""A dictionary that says what a bookie's storage must know, and drives both through one history."""

from __future__ import annotations

from collections.abc import Sequence

from bookie_server.core.presence import Presence
from bookie_server.core.records import (
    Add,
    ExplicitLac,
    Fence,
    JournalRecord,
    MasterKey,
    Replace,
    Tombstone,
)
from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.engine import Storage
from bookie_server.storage.opening import open_storage
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.record import Run, encode_records, parse_run
from tests.doubles.storage import answer_new
from tests.simulation.kit.files import SimFileSystem

INSTANCE = bytes(range(16))
READ_SIZE = 1 << 30


def settings(directories: int = 2) -> StorageSettings:
    """Small files, so that a few groups roll a journal and a few entries fill a block."""
    return StorageSettings(
        journal_directories=tuple(f"/journal{number}" for number in range(directories)),
        ledger_directories=tuple(f"/ledgers{number}" for number in range(directories)),
        journal_file_size_bytes=64 * 1024,
        journal_zero_chunk_bytes=8 * 1024,
        write_cache_size_bytes=64 * 1024,
        block_size_bytes=2048,
    )


def open_small(files: FileSystem, directories: int = 2) -> Storage:
    """Storage on a clock that stands still: ids must grow by themselves."""
    return open_storage(
        files,
        settings(directories),
        lock_directories(files, settings(directories).directories),
        instance_id=INSTANCE,
        clock_ms=lambda: 1_000_000,
    )


def run_of(ledger_id: int, entry_ids: Sequence[int], size: int = 10, salt: int = 0) -> Run:
    """Entries whose payloads say whose they are; deterministic, so that twins compare equal."""
    parts: list[bytes] = []
    for entry_id in entry_ids:
        payload = f"{ledger_id}/{entry_id}/{salt}:".encode()[:size].ljust(size, b"\0")
        parts += encode_records(
            Crc32cDigest(),
            ledger_id,
            entry_id,
            [payload],
            last_add_confirmed=entry_id - 1,
            length_before=entry_id * size,
        )
    return parse_run(b"".join(parts))


def records_of(run: Run) -> dict[int, bytes]:
    """Record bytes by entry id."""
    return {entry_id: bytes(run.record(index)) for index, entry_id in enumerate(run.entry_ids)}


class Model:
    """What was acknowledged, and what was sent and may or may not be there."""

    def __init__(self, files: SimFileSystem, directories: int = 2) -> None:
        self.files = files
        self._directories = directories
        self.entries: dict[int, dict[int, bytes]] = {}
        self.sent: dict[int, dict[int, set[bytes]]] = {}
        self.replacing: dict[tuple[int, int], bytes] = {}
        """Replacements that were sent and are not acknowledged: either copy may be found."""
        self.keys: dict[int, bytes] = {}
        self.fenced: set[int] = set()
        self.fences_sent: set[int] = set()
        self.packets: dict[int, bytes] = {}
        self.packets_sent: dict[int, list[bytes]] = {}
        self.tombstones: set[int] = set()
        self.storage: Storage

    def start(self) -> None:
        self.storage = answer_new(open_small(self.files, self._directories))

    def restart(self) -> None:
        self.storage.close()
        self.start()

    def attempted_only(self, records: Sequence[JournalRecord]) -> None:
        """Note records that were sent and not acknowledged."""
        for record in records:
            if isinstance(record, Add | Replace):
                sent = self.sent.setdefault(record.run.ledger_id, {})
                for entry_id, content in records_of(record.run).items():
                    sent.setdefault(entry_id, set()).add(content)
                    if isinstance(record, Replace):
                        self.replacing[record.run.ledger_id, entry_id] = content
            elif isinstance(record, Fence):
                self.fences_sent.add(record.ledger_id)
            elif isinstance(record, ExplicitLac):
                self.packets_sent.setdefault(record.ledger_id, []).append(record.packet)

    def write(self, records: Sequence[JournalRecord]) -> None:
        """Journal, apply and count as acknowledged; all records go to the first one's journal."""
        self.attempted_only(records)
        first = records[0].run if isinstance(records[0], Add | Replace) else records[0]
        ledger_id = getattr(first, "ledger_id", 0)
        journal = self.storage.journals[self.storage.contents.journal_of(ledger_id)]
        position = journal.write_group(records)
        for record in records:
            self._acknowledge(record)
        self.storage.contents.apply(records, position)
        journal.prepare()

    def _acknowledge(self, record: JournalRecord) -> None:
        match record:
            case Add(run):
                known = self.entries.setdefault(run.ledger_id, {})
                for entry_id, content in records_of(run).items():
                    known.setdefault(entry_id, content)
            case Replace(run):
                self.entries[run.ledger_id].update(records_of(run))
                for entry_id in run.entry_ids:
                    del self.replacing[run.ledger_id, entry_id]
            case MasterKey(ledger_id, key):
                self.keys.setdefault(ledger_id, key)
            case Fence(ledger_id):
                self.fenced.add(ledger_id)
            case ExplicitLac(ledger_id, packet):
                self.packets[ledger_id] = packet
            case Tombstone(first, last):
                self.tombstones.update(range(first, last + 1))

    def checkpoint(self) -> None:
        """One whole checkpoint, with every entry looked for at each of its moments."""
        plan = self.storage.contents.begin_checkpoint()
        if plan is None:
            return
        self.check(self.storage, "begun")
        result = self.storage.checkpoints.write(plan)
        self.check(self.storage, "written")
        self.storage.contents.finish_checkpoint(result)
        self.check(self.storage, "finished")

    @property
    def promised(self) -> tuple[object, ...]:
        """How much was acknowledged so far: grows with every promise, and only then."""
        entries = sum(map(len, self.entries.values()))
        facts = self.keys, self.fenced, self.tombstones
        return entries, *map(len, facts), tuple(sorted(self.packets.items()))

    def check(self, storage: Storage, when: str) -> None:
        """Everything acknowledged is there and right; nothing is there that was never sent."""
        for ledger_id, expected in self.entries.items():
            found = read_all(storage, ledger_id)
            for entry_id, content in expected.items():
                allowed = content, self.replacing.get((ledger_id, entry_id), content)
                assert found.get(entry_id) in allowed, f"{when}: entry {ledger_id}/{entry_id}"
        for ledger_id in storage.contents.ledgers:
            for entry_id, content in read_all(storage, ledger_id).items():
                sent = self.sent.get(ledger_id, {}).get(entry_id, set())
                assert content in sent, f"{when}: {ledger_id}/{entry_id} was never sent"
        for ledger_id, key in self.keys.items():
            assert storage.contents.ledgers[ledger_id].master_key == key, when
        for ledger_id in self.fenced:
            assert storage.contents.ledgers[ledger_id].is_fenced, f"{when}: fence of {ledger_id}"
        for ledger_id, facts in storage.contents.ledgers.items():
            if facts.is_fenced:
                assert ledger_id in self.fences_sent, f"{when}: {ledger_id} fenced by nobody"
        for ledger_id, packet in self.packets.items():
            sent_since = self.packets_sent[ledger_id]
            sent_since = sent_since[sent_since.index(packet) :]
            assert storage.contents.ledgers[ledger_id].explicit_lac in sent_since, when
        assert all(ledger_id in storage.contents.tombstones for ledger_id in self.tombstones), when


def started(directories: int = 2) -> Model:
    """A bookie's storage on new disks, and the model of it."""
    model = Model(SimFileSystem(), directories)
    model.start()
    return model


def read_all(storage: Storage, ledger_id: int) -> dict[int, bytes]:
    """Every readable entry of the ledger."""
    last = storage.contents.last_entry(ledger_id)
    if last is None:
        return {}
    plan = storage.contents.plan_read(ledger_id, 0, last, size_bytes_max=READ_SIZE)
    outcome = storage.execute(plan)
    assert not outcome.of(Presence.NOT_REACHED)
    found: dict[int, bytes] = {}
    for chunk in outcome.chunks:
        found |= records_of(parse_run(chunk))
    return found
