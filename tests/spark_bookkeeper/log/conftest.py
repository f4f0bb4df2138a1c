"""One world and one log of it, for most tests of logs."""

from __future__ import annotations

import pytest

from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.rules import transitions
from tests.spark_bookkeeper.log.world import LogWorld


@pytest.fixture
def world() -> LogWorld:
    return LogWorld()


@pytest.fixture
async def log_id(world: LogWorld) -> int:
    """A log called ``orders`` in whatever world the test has."""
    return await world.create_log()


@pytest.fixture
def nodes(world: LogWorld, log_id: int) -> LogNodes:
    """The metadata of that log."""
    return world.nodes(log_id)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few ranges fill a chunk, a few chunks an index: three levels from a hundred ranges."""
    monkeypatch.setattr(transitions, "INLINE_BYTES_MAX", 150)
    monkeypatch.setattr(transitions, "CHUNK_BYTES_MAX", 180)
    monkeypatch.setattr(transitions, "REFS_MAX", 4)
    monkeypatch.setattr(transitions, "FOLD", 3)
