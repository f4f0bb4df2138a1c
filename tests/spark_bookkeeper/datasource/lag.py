"""A session that lags behind what others have committed."""

from __future__ import annotations

import pytest

from bookkeeper_metadata.store.operations import Node
from tests.spark_bookkeeper.datasource.world import FakeSpark


class Lag:
    """A session that, once it begins, sees the head of now until it syncs."""

    def __init__(self, world: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store, self._head = world.client.store, world.nodes().tree.head
        self._old = world.client.run(self._store.get(self._head))
        self._monkeypatch = monkeypatch
        self.is_over = False

    def begin(self) -> None:
        get, sync = self._store.get, self._store.sync

        async def lagging_get(path: str) -> Node | None:
            return self._old if path == self._head and not self.is_over else await get(path)

        async def ending_sync(path: str) -> None:
            await sync(path)
            self.is_over = True

        self._monkeypatch.setattr(self._store, "get", lagging_get)
        self._monkeypatch.setattr(self._store, "sync", ending_sync)
