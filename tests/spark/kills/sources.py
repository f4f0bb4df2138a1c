"""What a query reads: a folder of files, or a log that somebody outside Spark writes.

Each gives the ids from 0 on, in batches of equal size whatever run reads them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from spark_bookkeeper import BookKeeper
from tests.spark.kills.query import BATCH_ROWS, FILE_ROWS, FILES_PER_BATCH


class Source(Protocol):
    """Input that only grows."""

    batches: int
    """Added so far."""

    @property
    def arguments(self) -> dict[str, str]:
        """What :func:`tests.spark.kills.query.stream` reads."""

    def add_batch(self) -> None:
        """The next micro-batch's rows."""

    def ledgers(self) -> set[int]:
        """The ledgers it is kept in."""


class Files:
    """Parquet files, each a partition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.batches = 0
        folder.mkdir(parents=True)

    @property
    def arguments(self) -> dict[str, str]:
        """Part of :class:`Source`."""
        return {"files": str(self._folder)}

    def add_batch(self) -> None:
        """Part of :class:`Source`."""
        for number in range(FILES_PER_BATCH):
            file = self.batches * FILES_PER_BATCH + number
            ids = pa.array(range(file * FILE_ROWS, (file + 1) * FILE_ROWS), pa.int64())
            # Spark sees no file whose name begins with a dot, and takes the others by their times.
            unnamed = self._folder / ".unnamed"
            pq.write_table(pa.table({"id": ids}), unnamed)
            os.utime(unnamed, (1_700_000_000 + file,) * 2)
            unnamed.rename(self._folder / f"{file:06}.parquet")
        self.batches += 1

    def ledgers(self) -> set[int]:
        """Part of :class:`Source`."""
        return set()


class RawLog:
    """A log of entries, one id each, by a writer that takes it over for every batch."""

    def __init__(self, bk: BookKeeper, name: str) -> None:
        self._log = bk.create_log(name)
        self._name = name
        self.batches = 0

    @property
    def arguments(self) -> dict[str, str]:
        """Part of :class:`Source`."""
        return {"log": self._name}

    def add_batch(self) -> None:
        """Part of :class:`Source`."""
        with self._log.writer() as writer:
            first = self.batches * BATCH_ROWS
            writer.append_many([b"%d" % each for each in range(first, first + BATCH_ROWS)])
        self.batches += 1

    def ledgers(self) -> set[int]:
        """Part of :class:`Source`."""
        return {item.ledger_id for item in self._log.ledgers()}
