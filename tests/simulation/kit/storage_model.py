"""A dictionary that says what a bookie's storage must know, and drives both through one history."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from bookie_server.core.absence import status_of_absence
from bookie_server.core.presence import Presence
from bookie_server.core.records import (
    Add,
    Drop,
    ExplicitLac,
    Fence,
    JournalRecord,
    MasterKey,
    Replace,
    Tombstone,
    ledger_of,
)
from bookie_server.settings import StorageSettings
from bookie_server.storage.compaction.rewrite import Rewritten
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.engine import Storage
from bookie_server.storage.opening import open_storage
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.messages import Status
from bookie_server.wire.packaging import encode_records
from bookie_server.wire.record import Run, parse_run
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


class TinySettings(StorageSettings):
    """Smaller files than a bookie may have, so that every few groups are a roll and a state costs little."""

    def __post_init__(self) -> None:
        """Nothing is too small."""


def tiny(journals: int = 1, ledgers: int = 1, cache_bytes: int = 64 * 1024) -> StorageSettings:
    """Two groups fill a journal, a few entries a block of an entry log."""
    return TinySettings(
        journal_directories=tuple(f"/journal{number}" for number in range(journals)),
        ledger_directories=tuple(f"/ledgers{number}" for number in range(ledgers)),
        journal_file_size_bytes=16 * 1024,
        journal_zero_chunk_bytes=4 * 1024,
        write_cache_size_bytes=cache_bytes,
        block_size_bytes=512,
    )


def open_small(files: FileSystem, directories: int = 2) -> Storage:
    """Storage on a clock that stands still: ids must grow by themselves."""
    return open_laid_out(files, settings(directories))


def open_laid_out(
    files: FileSystem, layout: StorageSettings, instance_id: bytes = INSTANCE
) -> Storage:
    """As :func:`open_small`, with other directories and sizes."""
    return open_storage(
        files,
        layout,
        lock_directories(files, layout.directories),
        instance_id=instance_id,
        clock_ms=lambda: 1_000_000,
        random=Random(1),
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

    def __init__(
        self, files: SimFileSystem, directories: int = 2, layout: StorageSettings | None = None
    ) -> None:
        self.files = files
        self.layout = layout or settings(directories)
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
        self.tombstones_sent: set[int] = set()
        self.dropping: set[int] = set()
        """Drops that were sent and are not acknowledged: their ledgers may have no entry any more."""
        self.drops: list[int] = []
        """Ledgers dropped, each as often as it was."""
        self.limbo: set[int] = set()
        """Ledgers of which something may have been lost, and that is known durably."""
        self.is_answered = False
        """That the disks are new, and not emptied, has been said, and is durable."""
        self.storage: Storage

    def open(self, files: FileSystem) -> Storage:
        return open_laid_out(files, self.layout)

    def start(self) -> None:
        self.storage = answer_new(self.open(self.files))
        self.is_answered = True

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
            elif isinstance(record, Fence | Drop):
                self.fences_sent.add(record.ledger_id)
                if isinstance(record, Drop):
                    self.dropping.add(record.ledger_id)
            elif isinstance(record, ExplicitLac):
                self.packets_sent.setdefault(record.ledger_id, []).append(record.packet)
            elif isinstance(record, Tombstone):
                deleted = range(record.first_ledger, record.last_ledger + 1)
                self.tombstones_sent.update(deleted)

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
        if not isinstance(record, Tombstone) and ledger_of(record) in self.tombstones:
            return
        match record:
            case Add(run):
                known = self.entries.setdefault(run.ledger_id, {})
                for entry_id, content in records_of(run).items():
                    known.setdefault(entry_id, content)
            case Drop(ledger_id):
                self.entries.pop(ledger_id, None)
                self.fenced.add(ledger_id)
                self.dropping.discard(ledger_id)
                self.drops.append(ledger_id)
            case Replace(run):
                self.entries[run.ledger_id].update(records_of(run))
                for entry_id in run.entry_ids:
                    del self.replacing[run.ledger_id, entry_id]
            case MasterKey(ledger_id, key):
                self.keys.setdefault(ledger_id, key)
            case Fence(ledger_id):
                self.fenced.add(ledger_id)
            case ExplicitLac(ledger_id, packet):
                # The ids of a dropped ledger begin anew here; a LAC that is known only grows.
                self.packets[ledger_id] = max(packet, self.packets.get(ledger_id, b""))
            case Tombstone(first, last):
                self.tombstones.update(range(first, last + 1))
                for ledger_id in range(first, last + 1):
                    self._forget(ledger_id)

    def _forget(self, ledger_id: int) -> None:
        """Nothing is promised of a deleted ledger any more."""
        for promises in (self.entries, self.keys, self.packets):
            promises.pop(ledger_id, None)
        self.fenced.discard(ledger_id)
        self.limbo.discard(ledger_id)

    def bury(self) -> None:
        """One whole burial, with every entry looked for before and after it."""
        plan = self.storage.contents.begin_burial()
        if plan is None:
            return
        self.check(self.storage, "burial begun")
        try:
            result = self.storage.checkpoints.bury(plan)
        except NoRoomError:
            self.storage.contents.return_burial(plan)
            raise
        self.storage.contents.finish_burial(result)
        self.check(self.storage, "buried")

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

    def compact(self, directory_index: int, log_ids: Sequence[int]) -> None:
        """Rewrite some logs, with every entry looked for before and after it, and bury the old ones."""
        result = self.storage.checkpoints.compact(directory_index, log_ids)
        self.check(self.storage, "compacted")
        self.show(result)
        self.check(self.storage, "moved")
        self.bury()

    def show(self, result: Rewritten) -> None:
        """Have readers find what a compaction has copied."""
        self.storage.contents.move_rows(result.directory_index, result.moved)
        self.storage.contents.finish_compaction(result)

    @property
    def promised(self) -> tuple[object, ...]:
        """How much was acknowledged so far: grows with every promise, and only then."""
        entries = sum(map(len, self.entries.values()))
        facts = self.keys, self.fenced, self.tombstones, self.limbo
        return entries, len(self.drops), *map(len, facts), tuple(sorted(self.packets.items()))

    def check(self, storage: Storage, when: str, *, may_lack: bool = False) -> None:
        """Everything acknowledged is there and right; nothing is there that was never sent.

        ``may_lack``: after damage things may be gone, as long as that is denied of none of them.
        """
        contents = storage.contents
        promised = {*self.entries, *self.keys, *self.fenced, *self.limbo}
        for ledger_id in {*promised, *self.tombstones, *contents.ledgers}:
            facts = contents.ledgers.get(ledger_id)
            if ledger_id in contents.tombstones:
                deleted = self.tombstones | self.tombstones_sent
                assert ledger_id in deleted, f"{when}: {ledger_id} deleted by nobody"
                assert facts is None, f"{when}: {ledger_id} is deleted, and known"
                assert not read_all(storage, ledger_id), f"{when}: {ledger_id} is deleted, and read"
                continue
            if ledger_id in self.tombstones and may_lack:
                continue
            absence = status_of_absence(facts, is_storage_damaged=contents.is_damaged)
            is_lost = may_lack and absence is Status.UNKNOWN
            self._check_entries(storage, ledger_id, when, is_lost)
            if facts is None:
                assert is_lost, f"{when}: ledger {ledger_id} is denied"
                continue
            assert facts.is_limbo or ledger_id not in self.limbo, f"{when}: limbo of {ledger_id}"
            key, packet = self.keys.get(ledger_id), self.packets.get(ledger_id)
            assert is_lost or key in (None, facts.master_key), f"{when}: key of {ledger_id}"
            assert is_lost or facts.is_fenced or ledger_id not in self.fenced, (
                f"{when}: fence of {ledger_id}"
            )
            if facts.is_fenced:
                assert ledger_id in self.fences_sent, f"{when}: {ledger_id} fenced by nobody"
            if packet is not None:
                sent = self.packets_sent[ledger_id]
                assert is_lost or facts.explicit_lac in sent[sent.index(packet) :], (
                    f"{when}: explicit LAC of {ledger_id}"
                )
        # What damage takes of these lets a deleted ledger come back, empty; nobody is denied anything.
        kept = may_lack or all(each in contents.tombstones for each in self.tombstones)
        assert kept, f"{when}: tombstones"

    def _check_entries(self, storage: Storage, ledger_id: int, when: str, is_lost: bool) -> None:
        found, expected = read_all(storage, ledger_id), self.entries.get(ledger_id, {})
        if found == expected or (ledger_id in self.dropping and not found):
            return
        sent = self.sent.get(ledger_id, {})
        # Behind damage rows are told by the logs, which know nothing of drops: the copy before one may be the one
        # that is found. Outside of this model it has the same bytes.
        is_older = bool(storage.recovery.damage) and ledger_id in self.drops
        for entry_id, content in expected.items():
            allowed = {content, self.replacing.get((ledger_id, entry_id), content)}
            allowed |= sent[entry_id] if is_older else set()
            is_right = found.get(entry_id) in allowed or (is_lost and entry_id not in found)
            assert is_right, f"{when}: entry {ledger_id}/{entry_id}"
        for entry_id, content in found.items():
            assert content in sent.get(entry_id, ()), f"{when}: {ledger_id}/{entry_id} not sent"


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
