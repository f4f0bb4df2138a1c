"""Where stored entries are: cached runs and the rows of entry logs, as one ascending sequence."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.logs.id_pattern import clip
from bookie_server.storage.logs.rows import Row
from bookie_server.storage.logs.write_cache import WriteCache
from bookie_server.wire.record import Run


class Stored(NamedTuple):
    """Wanted ids, and the run or the row that holds all of them."""

    ids: Sequence[int]
    place: Run | Row
    directory: str = ""
    """The directory of a row's entry log; unused with a run."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the wanted records; an estimate, since it takes records to be of equal size."""
        place = self.place
        count = len(place) if isinstance(place, Run) else place.block.entry_count
        return size_bytes_of(place) * len(self.ids) // count


def size_bytes_of(place: Run | Row) -> int:
    """Bytes of all records of a cached run, or of a row's block."""
    return place.size_bytes if isinstance(place, Run) else place.block.size_bytes


def stored_in(
    caches: Iterable[WriteCache],
    indexes: Iterable[DirectoryIndex],
    ledger_id: int,
    first: int,
    last: int,
) -> Iterator[Stored]:
    """Every id of ``first..last`` that is stored in these places, ascending, each once."""
    sources = [
        clipped(cache.between(ledger_id, first, last), first, last)
        for cache in caches
        if ledger_id in cache.ledgers
    ]
    for index in indexes:
        if ledger_id in index.rows:
            rows = index.rows[ledger_id].between(first, last)
            sources.append(clipped(rows, first, last, index.directory))
    return merge_stored(sources) if len(sources) != 1 else sources[0]


def last_stored(
    caches: Iterable[WriteCache], indexes: Iterable[DirectoryIndex], ledger_id: int
) -> int | None:
    """The highest id of the ledger that is stored in these places; ``None`` when there is none."""
    last: int | None = None
    # Without a list or a generator: each add asks twice.
    for cache in caches:
        runs = cache.ledgers.get(ledger_id)
        if runs is not None and (last is None or runs.last_entry > last):
            last = runs.last_entry
    for index in indexes:
        rows = index.rows.get(ledger_id)
        if rows and (last is None or rows.last_entry > last):
            last = rows.last_entry
    return last


def clipped(
    places: Iterable[Run | Row], first: int, last: int, directory: str = ""
) -> Iterator[Stored]:
    """The ids in ``first..last`` of each cached run, or of each row of one directory's index."""
    for place in places:
        ids = clip(place.entry_ids, first, last)
        if ids:
            yield Stored(ids, place, directory)


@dataclass(slots=True)
class _Head:
    """The first item of a source, and how many of its ids are passed on already."""

    item: Stored
    source: Iterator[Stored]
    done: int = 0

    @property
    def next_id(self) -> int:
        return self.item.ids[self.done]

    def advance(self, done: int) -> bool:
        """Go on behind the first ``done`` ids of the item; ``False`` if the source has no more."""
        self.done = done
        if done < len(self.item.ids):
            return True
        following = next(self.source, None)
        if following is None:
            return False
        self.item, self.done = following, 0
        return True


def merge_stored(sources: Iterable[Iterator[Stored]]) -> Iterator[Stored]:
    """Merge ascending sources; items are cut where their spans interleave.

    Sources share no id, unless damage has left an entry in two places: the earlier source's counts.
    """
    heads = [_Head(item, source) for source in sources if (item := next(source, None)) is not None]
    while heads:
        head = min(heads, key=lambda head: head.next_id)
        twins = [each for each in heads if each is not head and each.next_id == head.next_id]
        for twin in twins:
            if not twin.advance(twin.done + 1):
                heads.remove(twin)
        limit = min((other.next_id for other in heads if other is not head), default=None)
        item, begin = head.item, head.done
        end = len(item.ids) if limit is None else bisect_left(item.ids, limit, begin)
        yield Stored(item.ids[begin:end], item.place, item.directory)
        if not head.advance(end):
            heads.remove(head)
