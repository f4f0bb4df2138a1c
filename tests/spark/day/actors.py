"""Who is at work in the day of a cluster: each in a thread, each sure of its own rows.

What an actor did wrong or could not do it raises at the end; what it saw wrong is an assertion.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.datasource.optimize.run import optimize_log, rewrite_here
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.options.parse import parse_write_options
from spark_bookkeeper.datasource.session import Session, open_session
from spark_bookkeeper.errors import LogFencedError
from spark_bookkeeper.log.rules.grouping import GroupLimits
from tests.integration.processes import start_again

DELETED_RETENTION = "10s"
GROUPS = GroupLimits(target_bytes=1024 * 1024, ranges_min=8)


def short_lived_options(uri: str, log: str) -> WriteOptions:
    """What drops rows of a log and keeps them no longer than a day of ten minutes allows."""
    given = {"log": log, "metadataServiceUri": uri, "deletedLedgerRetention": DELETED_RETENTION}
    return parse_write_options(given, {})


def short_lived_session(cluster: LocalCluster, log: str) -> Session:
    """The log layer with those options."""
    return open_session(short_lived_options(cluster.metadata_service_uri, log))


class Cast:
    """The actors, started and stopped together; the first error of any of them ends the day."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def add(self, name: str, act: Callable[[], object], every_s: float) -> None:
        """Have ``act`` called again and again."""

        def run() -> None:
            try:
                while not self.is_over.wait(every_s):
                    act()
            except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
                error.add_note(f"actor {name}")
                self.errors.append(error)
                self.is_over.set()

        self._threads.append(threading.Thread(target=run, name=name))

    def play(self, duration_s: float) -> None:
        """Everybody at work for so long.

        Raises:
            ExceptionGroup: what they ran into.
        """
        for thread in self._threads:
            thread.start()
        self.is_over.wait(duration_s)
        self.is_over.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise BaseExceptionGroup("the day went wrong", self.errors)


class Stream:
    """A query that writes numbers in small batches, and one that reads them as a consumer."""

    LOG = "events"

    def __init__(self, spark: SparkSession, cluster: LocalCluster, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._options = {"log": self.LOG, "metadataServiceUri": cluster.metadata_service_uri}
        self._queries: list[StreamingQuery] = []
        self.seen: dict[int, int] = {}
        """Number -> the batch in which the reader saw it."""

    def start(self) -> None:
        """Start both, from their checkpoints."""
        empty = self._spark.range(0).write.format("bookkeeper").mode("append")
        empty.options(**self._options).save()
        numbers = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 40)
        writer = numbers.option("numPartitions", 4).load().selectExpr("value AS id").writeStream
        own = {"deletedLedgerRetention": DELETED_RETENTION, **self._options}
        self._begin(writer.format("bookkeeper").options(**own), "writer")
        reader = self._spark.readStream.format("bookkeeper").options(**self._options)
        reader = reader.options(startingOffsets="earliest", consumer="reader")
        self._begin(reader.load().writeStream.foreachBatch(self._note), "reader")

    def look(self) -> None:
        """Raise what a query died of."""
        for query in self._queries:
            if not query.isActive:
                raise AssertionError(f"a query ended: {query.exception()}")

    def finish(self) -> None:
        """Stop writing, and have everything read."""
        writer, reader = self._queries
        writer.stop()
        reader.processAllAvailable()
        reader.stop()

    def check(self) -> None:
        """Every number there is was read once: none twice, none left out."""
        assert self.seen, "nothing was read"
        assert sorted(self.seen) == list(range(max(self.seen) + 1))

    def _begin(self, writer: object, name: str) -> None:
        checkpoint = str(self._directory / f"checkpoint-{name}")
        self._queries.append(writer.option("checkpointLocation", checkpoint).start())  # type: ignore[attr-defined]

    def _note(self, frame: DataFrame, batch_id: int) -> None:
        for row in frame.collect():
            before = self.seen.setdefault(row.id, batch_id)
            assert before == batch_id, f"{row.id} was in batch {before}, and is in {batch_id}"


class Table:
    """A table that is overwritten again and again, and read in between."""

    LOG = "table"

    def __init__(self, spark: SparkSession, cluster: LocalCluster) -> None:
        self._spark = spark
        self._options = {
            "log": self.LOG,
            "metadataServiceUri": cluster.metadata_service_uri,
            "deletedLedgerRetention": DELETED_RETENTION,
        }
        self._version = 0

    def overwrite(self) -> None:
        """Replace it, and read it back."""
        self._version += 1
        first = self._version * 1_000
        # Not range(): a session is active in a thread only once it made a frame of data there, and
        # without an active session Spark finds no Python data source.
        rows = [(number,) for number in range(first, first + 100)]
        frame = self._spark.createDataFrame(rows, "id long")
        frame.write.format("bookkeeper").mode("overwrite").options(**self._options).save()
        found = self._spark.read.format("bookkeeper").options(**self._options).load().collect()
        assert sorted(row.id for row in found) == list(range(first, first + 100))


class Outside:
    """A writer outside Spark that rolls often, a reader that follows it, and truncation behind that."""

    LOG = "outside"

    def __init__(self, cluster: LocalCluster) -> None:
        self._bk = BookKeeper(cluster.metadata_service_uri)
        self._session = short_lived_session(cluster, self.LOG)
        self._log = self._bk.create_log(self.LOG)
        self._written = self._read = 0

    def write(self) -> None:
        """Take the log over, append, and close: one small ledger."""
        with self._log.writer() as writer:
            ids = range(self._written, self._written + 20)
            writer.append_many([str(number).encode() for number in ids])
        self._written += 20

    def read(self) -> None:
        """Read what is new: each value once, in order."""
        for position, entry in self._log.reader(self._read):
            assert (position.row, bytes(entry.payload)) == (self._read, str(self._read).encode())
            self._read += 1

    def truncate(self) -> None:
        """Drop what was read."""
        if self._read:
            truncate = self._session.truncate(self._log.log_id, self.LOG, self._read)
            self._session.run(truncate)

    def finish(self) -> None:
        """Read the rest."""
        self.read()
        assert self._read == self._written
        self._bk.close()


class Upkeep:
    """Collects and optimizes, as a cron job of an operator does."""

    def __init__(self, cluster: LocalCluster) -> None:
        # Retention drops rows here, and what it drops is to go soon after.
        self._session = short_lived_session(cluster, Stream.LOG)
        self._uri = cluster.metadata_service_uri
        self.rewritten = 0
        """Ranges."""

    def collect(self, logs: Iterable[str]) -> None:
        """What ``bookkeeper logs gc`` does."""
        for log in logs:
            self._tolerate(partial(self._collect, log))

    def optimize(self, log: str) -> None:
        """What ``bookkeeper logs optimize`` does."""
        self._tolerate(partial(self._optimize, log))

    def _collect(self, log: str) -> None:
        log_id = self._session.run(self._session.catalog.open(log)).log_id
        self._session.run(self._session.collector.collect(log_id, log=log))

    def _optimize(self, log: str) -> None:
        options = short_lived_options(self._uri, log)
        session = open_session(options)
        report = optimize_log(session, log, GROUPS, rewrite_here(session, options))
        self.rewritten += report.ranges_before

    def _tolerate(self, act: Callable[[], None]) -> None:
        """A bookie may be dead, or the log busy: the next time does what this one could not."""
        try:
            act()
        except (BookKeeperError, LogFencedError) as error:
            if not (error.retryable or error.definite is False):
                raise


class Killer:
    """Kills a bookie and starts it again, one at a time."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._random = Random(12)
        self.kills = 0

    def strike(self) -> None:
        """One bookie dies and comes back."""
        victim = self._random.choice(self._cluster.bookies)
        victim.kill()
        self.kills += 1
        start_again(victim)
