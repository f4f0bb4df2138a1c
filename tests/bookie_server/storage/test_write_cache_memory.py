"""What cached runs hold of their frames: a view keeps all of it in memory."""

from __future__ import annotations

from bookie_server.storage.logs.write_cache import RUN_OVERHEAD, WriteCache, detached
from bookie_server.wire.record import Run, parse_run
from tests.doubles.records import records


def runs_of_one_frame(*sizes: int, refused: int) -> list[Run]:
    """Runs of one entry each, of ledgers of their own, in a frame with something else behind them."""
    parts = [records([bytes(size)], ledger_id=number) for number, size in enumerate(sizes)]
    frame = memoryview(b"".join([*parts, bytes(refused)]))
    runs, begin = [], 0
    for part in parts:
        runs.append(parse_run(frame[begin : begin + len(part)]))
        begin += len(part)
    return runs


def test_a_small_entry_does_not_pin_the_large_frame_it_came_in() -> None:
    """An entry of 10 bytes held 4 MB of memory, and counted as 50 bytes."""
    (small,) = runs_of_one_frame(10, refused=4_000_000)

    ((kept, held_bytes),) = detached([small])

    assert isinstance(kept.data, bytes)
    assert (bytes(kept.data), kept.entry_ids) == (bytes(small.data), small.entry_ids)
    assert held_bytes == len(kept.data)


def test_runs_that_make_up_their_frame_are_not_copied_and_count_for_all_of_it() -> None:
    runs = runs_of_one_frame(10, 900_000, 100_000, refused=600_000)

    kept = detached(runs)

    assert [run for run, _ in kept] == runs
    assert all(run.data is given.data for (run, _), given in zip(kept, runs, strict=True))
    frame_size = sum(run.size_bytes for run in runs) + 600_000
    assert frame_size - len(runs) <= sum(held_bytes for _, held_bytes in kept) <= frame_size


def test_the_cache_counts_what_its_runs_hold() -> None:
    cache = WriteCache()
    for run, held_bytes in detached(runs_of_one_frame(10, 1_000, refused=900)):
        cache.insert(run, held_bytes)

    assert cache.size_bytes > 1_900 + 2 * RUN_OVERHEAD
