"""How much of each entry log of a directory lives, by the rows that name its blocks."""

from __future__ import annotations

from collections import Counter

from bookie_server.storage.compaction.rules import LogShare
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.logs.entry_log import blocks_size_bytes, log_ids


def survey(files: FileSystem, index: DirectoryIndex) -> list[LogShare]:
    """The directory's logs of which anything lives, ascending; on any thread.

    Raises:
        OSError: the directory cannot be looked at.
    """
    live: Counter[int] = Counter()
    blocks: Counter[int] = Counter()
    for rows in list(index.rows.values()):
        for log_id, size_bytes, count in rows.shares():
            live[log_id] += size_bytes
            blocks[log_id] += count
    found: list[LogShare] = []
    for log_id in log_ids(files, index.directory):
        if not live[log_id]:
            continue
        try:
            size_bytes = blocks_size_bytes(files, index.directory, log_id)
        except OSError:
            continue  # whoever reads its entries hears of it; the others are no worse for it
        found.append(LogShare(log_id, size_bytes, live[log_id], blocks[log_id]))
    return found
