"""Connection: one process's client on its event loop, and the writers made with it.

They end together: when the client is closed, and at the latest when the interpreter exits. A pending
append then fails, for a future that never completes would be worse.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper import aio
from spark_bookkeeper.blocking.loop_thread import shared_loop_thread
from spark_bookkeeper.ledger.measures import ClientMeasures
from spark_bookkeeper.settings import ClientSettings


class Writer(Protocol):
    """A writer whose appends other threads may wait for."""

    def abandon(self, error: BookKeeperError) -> None:
        """On the loop: fail every append that is not acknowledged."""


class Connection:
    """Belongs to the process that made it."""

    def __init__(
        self, metadata_service_uri: str, settings: ClientSettings, measures: ClientMeasures
    ) -> None:
        self.thread = shared_loop_thread()
        self.client = aio.BookKeeper(metadata_service_uri, settings=settings)
        self.client.measures = measures
        self.writers: weakref.WeakSet[Writer] = weakref.WeakSet()
        self.thread.add_dependent(self)

    def close(self) -> None:
        """Fail what is pending and close all connections. Idempotent."""
        if self.thread.is_usable:
            self.thread.run(self.end())

    async def end(self) -> None:
        """The same, on the loop."""
        self.thread.remove_dependent(self)
        # Before the connections: a pending append then fails because the client was closed, not
        # because of bookies that were lost. A copy, for a writer may be collected meanwhile.
        for writer in list(self.writers):
            writer.abandon(ClientClosedError("BookKeeper"))
        await self.client.close()
