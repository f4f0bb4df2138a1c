"""What a query reads: a folder of files, or a log that somebody outside Spark writes.

Each gives the ids from 0 on, in batches of equal size whatever run reads them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_bookkeeper import BookKeeper
from tests.spark.kills.query import BATCH_ROWS, FILE_ROWS


class Source(ABC):
    """Input that only grows."""

    batches = 0
    """Added so far."""
    arguments: dict[str, str]
    """What :func:`tests.spark.kills.query.stream` reads."""

    def add_batch(self) -> None:
        """The next micro-batch's rows."""
        self._write(range(self.batches * BATCH_ROWS, (self.batches + 1) * BATCH_ROWS))
        self.batches += 1

    def ledgers(self) -> set[int]:
        """The ledgers it is kept in."""
        return set()

    @abstractmethod
    def _write(self, ids: range) -> None: ...


class Files(Source):
    """Parquet files, each a partition."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "source"
        self._source.mkdir(parents=True)
        self.arguments = {"files": str(folder)}

    def _write(self, ids: range) -> None:
        for first in ids[::FILE_ROWS]:
            rows = pa.table({"id": pa.array(range(first, first + FILE_ROWS), pa.int64())})
            # Spark sees no file whose name begins with a dot, and takes the others by their times.
            unnamed = self._source / ".unnamed"
            pq.write_table(rows, unnamed)
            os.utime(unnamed, (1_700_000_000 + first,) * 2)
            unnamed.rename(self._source / f"{first:09}.parquet")


class RawLog(Source):
    """A log of entries, one id each, by a writer that takes it over for every batch."""

    def __init__(self, bk: BookKeeper, name: str) -> None:
        self._log = bk.create_log(name)
        self.arguments = {"log": name}

    def ledgers(self) -> set[int]:
        """Part of :class:`Source`."""
        return {item.ledger_id for item in self._log.ledgers()}

    def _write(self, ids: range) -> None:
        with self._log.writer() as writer:
            writer.append_many([b"%d" % each for each in ids])
