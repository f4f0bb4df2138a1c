"""The worlds of most tests of logs, each with one log."""

from __future__ import annotations

import pytest

from tests.spark_bookkeeper.log.tail_world import TailWorld
from tests.spark_bookkeeper.log.world import LogWorld, shrink_chunks


@pytest.fixture
async def world() -> LogWorld:
    """A world with a log called ``orders``."""
    return await LogWorld.with_log()


@pytest.fixture
async def tail() -> TailWorld:
    """A world with a log of plain values."""
    return await TailWorld.with_log()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few ranges fill a chunk, a few chunks an index: three levels from a hundred ranges."""
    shrink_chunks(monkeypatch, inline=150, chunk=180, refs=4, fold=3)
