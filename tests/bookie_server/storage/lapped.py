"""A journal whose file was written before, in earlier laps."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from bookie_server.core.records import Add
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_file import BLOCK_SIZE, file_ids, file_name
from bookie_server.storage.journal.journal_files import JournalPlace
from bookie_server.storage.journal.replay import ORIGIN, Replay
from bookie_server.wire.record import Run, parse_run
from tests.doubles.records import records
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import INSTANCE, records_of

FILE_SIZE = 8 * BLOCK_SIZE
PLACE = JournalPlace(
    directory="/j",
    index=0,
    instance_id=INSTANCE,
    file_size_bytes=FILE_SIZE,
    zero_chunk_bytes=BLOCK_SIZE,
)


class Lapped:
    """A journal in its third file, which was its first one before."""

    def __init__(self, lap: int = 2, place: JournalPlace = PLACE) -> None:
        self.files = SimFileSystem()
        self.journal = Journal(self.files, replace(place, random=Random(1)), lambda: 1, ORIGIN)
        self.entry_id = 0
        self.promised: dict[int, bytes] = {}
        self.mark = self.journal.position.end
        while lap > 1:
            self.fill_a_file()
            if self.older:
                self.journal.files.retire(self.older)
                lap -= 1
        self.fill_a_file()

    @property
    def older(self) -> list[int]:
        """The files that a checkpoint would give back now."""
        return [id for id in file_ids(self.files, "/j") if id < self.mark.file_id]

    def write(self, size: int) -> None:
        self.last = run = random_run(self.entry_id, size)
        self.entry_id += 1
        self.mark_before = self.journal.position.end
        self.journal.write_group([Add(run)])
        self.promised |= records_of(run)

    def fill_a_file(self) -> None:
        file_id = self.mark.file_id
        while self.journal.position.end.file_id == file_id:
            self.write(3000 + self.entry_id % 7)
            self.journal.prepare()
        # As behind a checkpoint: what is older rests elsewhere.
        self.promised.clear()
        self.mark = self.journal.position.end

    @property
    def path(self) -> str:
        return f"/j/{file_name(self.mark.file_id)}"

    def replayed(self, files: SimFileSystem) -> tuple[Replay, dict[int, bytes]]:
        return replayed(files, self.mark)


def replayed(files: SimFileSystem, mark: GroupEnd) -> tuple[Replay, dict[int, bytes]]:
    replay = Replay(files, "/j", 0, INSTANCE, mark)
    found: dict[int, bytes] = {}
    for group in replay.groups():
        for record in group.records:
            assert isinstance(record, Add)
            found |= records_of(record.run)
    return replay, found


def random_run(entry_id: int, size: int) -> Run:
    """An entry whose sectors are like those of no other."""
    return parse_run(records([Random(entry_id).randbytes(size)], entry_id))
