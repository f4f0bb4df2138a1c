"""Synced entries that no entry log holds yet, kept as the runs they arrived in.

Per ledger a list of runs, ascending, whose *spans* of ids never overlap: a late or interleaving run
splits its neighbours, by slicing and without copying. So lookup is a bisection, and a thousand
small entries that came in one frame are one element.

A run is a view of its frame, which stays in memory as a whole as long as any run of it does. So a run
counts with its share of the frame, and one that would hold a frame for a small part of it is copied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from bookie_server.wire.buffer import memory_of
from bookie_server.wire.record import Run

RUN_OVERHEAD = 512
"""Bytes of memory that a run costs beside its records, about."""


class LedgerRuns:
    """The cached runs of one ledger."""

    __slots__ = ("_firsts", "runs")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self.runs: list[Run] = []

    def insert(self, run: Run) -> None:
        """Add a run none of whose entries is cached yet."""
        # A writer's entries arrive in order, so nearly every run goes to the end.
        if not self.runs or run.first_entry > self.runs[-1].last_entry:
            self.runs.append(run)
            self._firsts.append(run.first_entry)
            return
        start = self._start(run.first_entry)
        stop = bisect_right(self._firsts, run.last_entry)
        pieces = _interleave(self.runs[start:stop], run)
        self.runs[start:stop] = pieces
        self._firsts[start:stop] = [piece.first_entry for piece in pieces]

    def remove(self, run: Run) -> int:
        """Forget the entries that have the ids of ``run``; returns how many bytes they had."""
        taken = set(run.entry_ids)
        start = self._start(run.first_entry)
        stop = bisect_right(self._firsts, run.last_entry)
        olds = self.runs[start:stop]
        left = [part for old in olds for part in old.without(taken.__contains__)]
        self.runs[start:stop] = left
        self._firsts[start:stop] = [part.first_entry for part in left]
        return sum(old.size_bytes for old in olds) - sum(part.size_bytes for part in left)

    def between(self, first: int, last: int) -> Iterator[Run]:
        """The runs whose spans touch ``first..last``, ascending, uncut."""
        for index in range(self._start(first), len(self.runs)):
            run = self.runs[index]
            if run.first_entry > last:
                return
            yield run

    @property
    def last_entry(self) -> int:
        return self.runs[-1].last_entry

    def _start(self, first: int) -> int:
        """The index of the first run whose last entry is not below ``first``."""
        at = bisect_right(self._firsts, first)
        return at - 1 if at and self.runs[at - 1].last_entry >= first else at


def _interleave(olds: Sequence[Run], new: Run) -> list[Run]:
    """Cut ``new`` and ``olds``, which ascend, into runs whose spans are disjoint."""
    pieces: list[Run] = []
    # By place, not by cutting off what is done: that would copy the rest of
    # the ids for each of thousands of pieces.
    done = 0
    for old in olds:
        at = 0
        while at < len(old) and done < len(new):
            if new.entry_ids[done] < old.entry_ids[at]:
                stop = bisect_left(new.entry_ids, old.entry_ids[at], done)
                pieces.append(new.slice(done, stop))
                done = stop
            else:
                stop = bisect_left(old.entry_ids, new.entry_ids[done], at)
                pieces.append(old.slice(at, stop))
                at = stop
        if at < len(old):
            pieces.append(old.slice(at, len(old)))
    if done < len(new):
        pieces.append(new.slice(done, len(new)))
    return pieces


class WriteCache:
    """Runs of all ledgers. The loop thread fills it; once a checkpoint has it, it never changes."""

    def __init__(self) -> None:
        self.ledgers: defaultdict[int, LedgerRuns] = defaultdict(LedgerRuns)
        self.size_bytes = 0
        """Bytes of memory that the runs hold."""

    def insert(self, run: Run, held_bytes: int) -> None:
        """Keep a run none of whose entries is cached yet; ``held_bytes`` as :func:`detached` says."""
        self.ledgers[run.ledger_id].insert(run)
        self.size_bytes += held_bytes + RUN_OVERHEAD

    def replace(self, run: Run) -> None:
        """Keep a run in place of what is cached of its entries."""
        known = self.ledgers.get(run.ledger_id)
        if known is not None:
            self.size_bytes -= known.remove(run)
        self.insert(_copied(run), run.size_bytes)

    def forget(self, ledger_id: int) -> None:
        """Let go of a ledger's runs."""
        runs = self.ledgers.pop(ledger_id, None)
        if runs is not None:
            # A frame that other ledgers share stays: what it holds was counted with its first run.
            held = sum(run.size_bytes + RUN_OVERHEAD for run in runs.runs)
            self.size_bytes = max(self.size_bytes - held, 0) if self.ledgers else 0

    def between(self, ledger_id: int, first: int, last: int) -> Iterator[Run]:
        """The ledger's runs whose spans touch ``first..last``, ascending, uncut."""
        # Not by index: to ask a defaultdict would put an empty
        # ledger into a cache that may be frozen.
        runs = self.ledgers.get(ledger_id)
        return iter(()) if runs is None else runs.between(first, last)


def detached(runs: Sequence[Run]) -> list[tuple[Run, int]]:
    """The runs of a group as they are worth keeping, each with the bytes of memory it holds.

    Runs that are less than half of their frame are copied out of it.
    """
    used: dict[int, int] = defaultdict(int)
    for run in runs:
        used[memory_of(run.data)[0]] += run.size_bytes
    kept: list[tuple[Run, int]] = []
    for run in runs:
        frame, frame_size = memory_of(run.data)
        if 2 * used[frame] < frame_size:
            kept.append((_copied(run), run.size_bytes))
        else:
            kept.append((run, run.size_bytes * frame_size // used[frame]))
    return kept


def _copied(run: Run) -> Run:
    return Run(run.ledger_id, run.entry_ids, run.offsets, bytes(run.data))


def pieces_of(run: Run, entry_ids: Sequence[int]) -> list[Run]:
    """Cut the entries ``entry_ids`` (ascending, all in ``run``) out of it, as few slices as possible."""
    if not entry_ids:
        return []
    start = bisect_left(run.entry_ids, entry_ids[0])
    # Mostly the ids asked for are neighbours in the run: then one slice does.
    if _same(run.entry_ids[start : start + len(entry_ids)], entry_ids):
        return [run.slice(start, start + len(entry_ids))]
    pieces: list[Run] = []
    begin = stop = start
    for entry_id in entry_ids:
        at = stop if run.entry_ids[stop] == entry_id else bisect_left(run.entry_ids, entry_id)
        if at != stop:
            pieces.append(run.slice(begin, stop))
            begin = at
        stop = at + 1
    pieces.append(run.slice(begin, stop))
    return pieces


def _same(left: Sequence[int], right: Sequence[int]) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, range) and isinstance(right, range):
        return left == right
    return left[-1] == right[-1] and list(left) == list(right)
