"""Opening a bookie's storage: recovery, then new journal files, in directories that are locked.

Nothing is ever written behind a torn tail: every start begins new journal files. A checkpoint at the
end saves the next start from replaying the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from random import Random, SystemRandom

from bookie_server.settings import StorageSettings
from bookie_server.storage.blocking import write_checkpoint
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.engine import Storage
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_files import JournalPlace
from bookie_server.storage.recovery import recover


def open_storage(
    files: FileSystem,
    settings: StorageSettings,
    locks: ExitStack,
    *,
    instance_id: bytes,
    clock_ms: Callable[[], int],
    random: Random | None = None,
    progress: Callable[[int], None] | None = None,
) -> Storage:
    """Load the index, replay the journals, begin new journal files; blocks meanwhile.

    ``locks`` holds the directories (see ``lock_directories``), and is closed with the storage or by a
    failure. ``instance_id`` is this bookie's, 16 bytes; from ``random`` the keys of journal files are drawn, by
    default from the system's; ``progress`` is called with the bytes replayed so far.

    Raises:
        StorageRefusedError: the directories are not this bookie's; nothing was changed.
        StorageFailedError: a write failed.
        OSError: a file or directory cannot be read or created.
    """
    with ExitStack() as opened:
        # First in, last out: the directories are given up when all their files are closed.
        opened.enter_context(locks)
        if len(instance_id) != 16:
            raise ValueError(f"an instance id has 16 bytes; size_bytes={len(instance_id)}")
        indexes = [
            DirectoryIndex(files, directory, number, instance_id, settings.read_only_below_bytes)
            for number, directory in enumerate(settings.ledger_directories)
        ]
        for index in indexes:
            opened.callback(index.close)
        checkpoints = Checkpoints(files, settings, indexes, instance_id=instance_id)
        contents, report = recover(
            files, settings, indexes, checkpoints, instance_id=instance_id, progress=progress
        )
        # The contents' own dictionary: the checkpoint below stores what is set in it here.
        ends = contents.applied
        journals: list[Journal] = []
        places = _journal_places(settings, instance_id, random or SystemRandom())
        for journal in _begin_journals(files, places, clock_ms, ends):
            opened.callback(journal.close)
            journals.append(journal)
            checkpoints.retire[journal.index] = journal.files.retire
            # No group stands between the old end and the new file, so the mark may skip to it, and
            # the old files can go.
            ends[journal.index] = journal.position.end
        write_checkpoint(contents, checkpoints)
        return Storage(
            files=files,
            contents=contents,
            journals=tuple(journals),
            checkpoints=checkpoints,
            recovery=report,
            # From here on the storage closes them, and leaving this block does not.
            opened=opened.pop_all(),
        )


def _journal_places(
    settings: StorageSettings, instance_id: bytes, random: Random
) -> Iterator[JournalPlace]:
    for number, directory in enumerate(settings.journal_directories):
        yield JournalPlace(
            directory=directory,
            index=number,
            instance_id=instance_id,
            file_size_bytes=settings.journal_file_size_bytes,
            zero_chunk_bytes=settings.journal_zero_chunk_bytes,
            spare_bytes=settings.writable_above_bytes,
            random=random,
        )


def _begin_journals(
    files: FileSystem,
    places: Iterable[JournalPlace],
    clock_ms: Callable[[], int],
    ends: Mapping[int, GroupEnd],
) -> Iterator[Journal]:
    """Begin a new file in each journal directory, linked to where the journal ended.

    Raises:
        StorageFailedError: one cannot be made.
    """
    for place in places:
        try:
            yield Journal(files, place, clock_ms, ends[place.index])
        except OSError as cause:
            raise StorageFailedError(place.directory, f"journal: {cause}") from cause
