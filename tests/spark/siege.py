"""A query that writes on and on, from files whose rows are known, whatever happens to its bookies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_bookkeeper.local.bookie import LocalBookie
from tests.spark.calls import ids_in, noted_batches
from tests.spark.checkers import ViolationError, check_rows
from tests.spark.conftest import Logs
from tests.spark.kills.query import BATCH_ROWS, FILES_PER_BATCH
from tests.spark.kills.sources import Files
from tests.spark.waits import wait_until
from tests.spark.witness import Witness

BATCHES_AHEAD = 3
"""Of input that is always there, so that a batch is under way when a bookie is hit."""
_LOOK_S = 0.1


class Siege:
    """One log and the query that fills it, until :meth:`finish`."""

    def __init__(self, spark: SparkSession, uri: str, log: str, directory: Path) -> None:
        self._logs = Logs(spark, uri, log)
        self._directory = directory
        self._checkpoint = directory / "checkpoint"
        self._source = Files(directory)
        self._witness = Witness(uri, log)
        self._is_fed = threading.Event()
        self._feeder = threading.Thread(target=self._feed, name="feeder")
        self._source.add_batch()
        frame = ids_in(spark, str(directory), maxFilesPerTrigger=FILES_PER_BATCH)
        writer = frame.writeStream.format("bookkeeper").options(**self._logs.options())
        writer = writer.options(checkpointLocation=str(self._checkpoint), entryBytes="1k")
        self._query = writer.start()
        self._feeder.start()

    @property
    def batches(self) -> int:
        """Noted in the checkpoint."""
        return max(noted_batches(self._checkpoint), default=-1) + 1

    def goes_on(self, batches: int = 2) -> None:
        """Wait for so many batches more, the first of which may have been under way."""
        wanted = self.batches + batches
        wait_until(lambda: self.batches >= wanted, f"batch {wanted}", self._failure)

    def look(self) -> None:
        """What is visible is whole, once, and what was visible before."""
        found = self._witness.look(is_ordered=False)
        check_rows(found, range(len(found)))

    def finish(self) -> None:
        """Write what is there to its end."""
        self._stop_feeding()
        self._query.processAllAvailable()
        assert self._query.isActive, self._failure()
        self._query.stop()

    def check(self) -> None:
        """The log is complete: to a witness, to a batch read and to a streaming read."""
        expected = range(self._source.batches * BATCH_ROWS)
        try:
            check_rows(self._witness.look(is_ordered=False), expected)
            check_rows(self._logs.ids(), expected)
            check_rows(self._streamed(), expected)
        except ViolationError as violation:
            violation.add_note(self._story())
            raise

    def _story(self) -> str:
        """Which batch of which query wrote which rows: whether source or sink had them twice."""
        rows = self._logs.read(includeMetadata=True).groupBy("_query_id", "_batch_id")
        written = sorted(rows.agg({"id": "min", "*": "count"}).collect())
        planned = sorted(
            (self._checkpoint / "sources" / "0").glob("[0-9]*"), key=lambda path: int(path.stem)
        )
        told = [f"{path.name}: {path.read_text()}" for path in planned]
        about = f"noted={self.batches} query={self._query.id} sent={self._source.batches}"
        return "\n".join(map(str, [*written, about, *told]))

    def end(self) -> None:
        """After a failure too."""
        self._stop_feeding()
        self._query.stop()

    def _streamed(self) -> list[int]:
        batches: dict[int, list[int]] = {}

        def keep(frame: DataFrame, batch_id: int) -> None:
            batches[batch_id] = [row.id for row in frame.collect()]

        writer = self._logs.stream(startingOffsets="earliest").writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self._directory / "read"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return [each for ids in batches.values() for each in ids]

    def _failure(self) -> str:
        return "" if self._query.isActive else f"the query ended: {self._query.exception()}"

    def _feed(self) -> None:
        while not self._is_fed.wait(_LOOK_S):
            if self._source.batches < self.batches + BATCHES_AHEAD:
                self._source.add_batch()

    def _stop_feeding(self) -> None:
        self._is_fed.set()
        self._feeder.join()


@contextmanager
def besieged(spark: SparkSession, uri: str, log: str, directory: Path) -> Iterator[Siege]:
    """A query under way."""
    siege = Siege(spark, uri, log, directory)
    try:
        siege.goes_on()
        yield siege
    finally:
        siege.end()


def restart_one_by_one(bookies: list[LocalBookie]) -> None:
    """As an operator does it: the next is stopped as soon as the one before serves."""
    for bookie in bookies:
        bookie.stop()
        bookie.start()
