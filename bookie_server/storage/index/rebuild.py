"""Rebuilding the rows of a damaged index from the footers of its directory's entry logs."""

from __future__ import annotations

from bookie_server.core.ledger_ranges import LedgerRanges
from bookie_server.storage.disk.errors import DamagedFileError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.logs.entry_log import file_name, is_block_sound, log_ids, read_footer
from bookie_server.storage.logs.rows import LedgerRows, Row


def rebuild_rows(
    files: FileSystem, index: DirectoryIndex, buried: LedgerRanges, instance_id: bytes
) -> None:
    """Add the rows of entry logs in the directory, from their footers, but for ``buried`` ledgers.

    A sound index has the rows of all logs whose checkpoints completed, so one that it does not
    name may be a crash's leftover: of that only blocks that pass their checksum are taken, at
    this start and at all later ones. Of a damaged index the logs up to the last known checkpoint
    are certain. Newer logs go first: where a leftover's entries were written again, the later
    copy is the one a checkpoint completed.
    """
    is_sound = not index.is_new and not index.damage
    named = {id for rows in index.rows.values() for id in rows.log_ids()} if is_sound else set()
    found = log_ids(files, index.directory)
    for log_id in reversed(found):
        if log_id in named:
            continue
        # A killed process may have left it unsynced. The journal has what is in it, until the next
        # checkpoint takes these rows for stored: a power loss must not find neither.
        with files.open(f"{index.directory}/{file_name(log_id)}") as file:
            file.sync()
        try:
            footer = read_footer(files, index.directory, log_id, instance_id)
        except (DamagedFileError, OSError) as cause:
            # Nothing that was committed is missing from a sound index.
            if not is_sound:
                index.report(0, f"entry log {log_id:016x} cannot be listed: {cause}")
            continue
        is_certain = not is_sound and log_id <= index.state.last_log_id
        for ledger_id, row in footer:
            is_wanted = ledger_id not in buried
            if is_wanted and (is_certain or _is_sound(files, index.directory, row)):
                index.rows.setdefault(ledger_id, LedgerRows()).insert(row)
    index.adopt_rebuilt(max(found, default=0))


def _is_sound(files: FileSystem, directory: str, row: Row) -> bool:
    with files.open(f"{directory}/{file_name(row.block.log_id)}") as file:
        try:
            return is_block_sound(file, row.block)
        except OSError:
            return False
