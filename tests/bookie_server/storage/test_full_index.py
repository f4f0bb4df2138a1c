"""An index on a full disk: what found no room is in nobody's way, and no rewriting of it takes what is kept free."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from bookie_server.core.records import Add, Tombstone
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.index import directory
from tests.simulation.kit.storage_model import Model, open_small, run_of, settings, started


def used_bytes(model: Model) -> int:
    model.files.capacity_bytes = 1 << 40
    return (1 << 40) - model.files.free_space("/").free_bytes


def with_debris() -> Model:
    """A large index whose last delta found no room; ledgers are deleted behind that."""
    model = started(directories=1)
    for ledger in range(900):
        model.write([Add(run_of(ledger, range(2), size=200))])
        if ledger % 300 == 299:
            model.checkpoint()
    for ledger in range(900, 1_200):
        model.write([Add(run_of(ledger, range(1), size=200))])
    contents = model.storage.contents
    checkpoint = contents.begin_checkpoint()
    assert checkpoint is not None
    before = used_bytes(model)
    (index,) = model.storage.checkpoints._indexes
    room = 60_000
    # Until there is room for the log, and none for its delta.
    while index._written_until <= index._end.offset:
        room += 4096
        model.files.capacity_bytes = before + room
        with pytest.raises(NoRoomError):
            model.storage.checkpoints.write(checkpoint)
    return model


def test_deleted_ledgers_are_buried_behind_a_delta_that_found_no_room() -> None:
    model = with_debris()
    model.write([Tombstone(300, 599)])
    before = model.files.free_space("/").free_bytes

    model.bury()

    assert model.files.free_space("/").free_bytes > before


def test_what_found_no_room_is_no_damage_to_a_later_start() -> None:
    model = with_debris()
    model.write([Tombstone(300, 599)])
    model.bury()
    model.files.capacity_bytes = None

    model.storage.close()
    again = open_small(model.files.crash(Random(1), lambda _: "keep"), 1)

    assert again.recovery.damage == []
    assert len(again.contents.ledgers) == 900


def test_a_start_appends_behind_a_torn_delta_in_place() -> None:
    """It needed a whole new index before, which a full disk has no room for."""
    model = with_debris()
    model.storage.close()
    files = model.files.crash(Random(1), lambda _: "keep")
    files.capacity_bytes = None
    again = open_small(files, 1)
    (index,) = again.checkpoints._indexes

    assert again.recovery.damage == []
    assert index._generation == 1
    assert len(again.contents.ledgers) == 1_200


def test_no_crash_while_debris_is_cleared_is_damage() -> None:
    model = with_debris()
    model.storage.close()
    for number in range(1, 60):
        for seed in range(3):
            files = model.files.crash(Random(seed), lambda _: "keep")
            files.capacity_bytes = None
            files.fail_at = {files.steps + number: errno.EIO}
            with suppress(Exception):
                open_small(files, 1).close()
            again = open_small(files.crash(Random(seed)), 1)
            assert again.recovery.damage == [], (number, seed)
            assert len(again.contents.ledgers) == 1_200
            again.close()


def test_an_index_is_not_written_anew_where_that_takes_what_is_kept_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "_SNAPSHOT_AT_BYTES", 4096)
    model = started(directories=1)
    for number in range(6):
        model.write([Add(run_of(ledger, [number], size=100)) for ledger in range(500)])
        model.checkpoint()
    (index,) = model.storage.checkpoints._indexes
    index._snapshot_end = index._end.offset // 3  # the deltas have outgrown it just now
    generation, kept_bytes = index._generation, settings(1).read_only_below_bytes
    model.files.capacity_bytes = used_bytes(model) + kept_bytes + index._end.offset // 2
    model.write([Add(run_of(1, [500], size=100))])
    model.checkpoint()
    assert index._generation == generation

    model.files.capacity_bytes = used_bytes(model) + kept_bytes + 3 * index._end.offset
    model.write([Add(run_of(1, [501], size=100))])
    model.checkpoint()
    assert index._generation == generation + 1
