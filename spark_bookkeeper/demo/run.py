"""The demonstration's steps, top to bottom.

Every read is reduced to a :class:`Fingerprint` and compared with the source's, which is computed by
Spark from the Parquet files without any code of this project.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_bookkeeper import BookKeeper
from spark_bookkeeper.admin.log_documents import describe_log, session_with
from spark_bookkeeper.demo import queries
from spark_bookkeeper.demo.healing import begin_healing, verify_everything, wait_until_healed
from spark_bookkeeper.demo.lineitem import Lineitem, generate, slice_files
from spark_bookkeeper.demo.report import Report
from spark_bookkeeper.demo.session import spark_session
from spark_bookkeeper.demo.stream import (
    BATCHES,
    FILES_PER_BATCH,
    StreamLog,
    run_killed_stream,
    stream_driver,
)
from spark_bookkeeper.demo.stream_driver import StreamSettings
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.cluster import LocalCluster
from spark_bookkeeper.local.errors import directory_refusals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "lineitem"
STREAM_LOG = "lineitem_stream"
STREAM_ROWS_MAX = 400_000
BRIEF_SCALE_MAX = 0.05
"""Up to which the whole run is over before the JVM's second compiler has paid for itself."""
BOOKIES = 3
QUORUMS = {"ensembleSize": 3, "writeQuorum": 3, "ackQuorum": 2}
FILES_MIN = 2
SCALE_MAX = 100.0


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What to run the demonstration on."""

    scale: float = 0.1
    """TPC-H scale factor; 1 is six million rows, about 0.8 GB."""
    keep: Path | None = None
    """Where everything is left; ``None``: a temporary directory that is removed."""

    def __post_init__(self) -> None:
        defects = []
        if not 0 < self.scale <= SCALE_MAX:
            defects.append(f"scale must be above 0 and at most {SCALE_MAX:g}, got {self.scale:g}")
        if self.keep is not None and self.keep.exists() and any(self.keep.iterdir()):
            defects.append(f"the directory to keep must be new or empty, got {self.keep}")
        if defects:
            raise ValueError("; ".join(defects))


@dataclass(frozen=True)
class Fingerprint:
    """Equal for two sets of rows exactly if they hold the same rows, in any order.

    Two independent hashes of every row over all columns, summed without overflow: a lost, doubled
    or changed row shows. (Equal by chance: once in about 2**90.)
    """

    rows: int
    xxhash_sum: int
    murmur_sum: int


@dataclass(frozen=True)
class Expected:
    """What Spark computes from the source, and must compute from the log too."""

    fingerprint: Fingerprint
    q1: list[tuple[Any, ...]]
    q6: list[tuple[Any, ...]]


def run_demo(settings: DemoSettings, report: Report) -> None:
    """Run all steps; differences are in ``report`` and raise no error.

    Raises:
        BookKeeperError: something failed outright, e.g. a process that does not start.
    """
    cores = os.cpu_count() or 2
    with ExitStack() as stack:
        directory = stack.enter_context(_directory(settings.keep))
        with report.step(f"generate lineitem, scale {settings.scale:g}") as step:
            source = generate(directory / "tpch", settings.scale, max(cores, FILES_MIN))
            step.rows, step.size_bytes = source.rows, source.size_bytes
        with report.step(f"start ZooKeeper and {BOOKIES} bookies"):
            cluster = stack.enter_context(LocalCluster(BOOKIES, directory=directory / "cluster"))
        with report.step("start Spark"):
            is_brief = settings.scale <= BRIEF_SCALE_MAX
            session = spark_session(directory / "spark", cores, is_brief=is_brief)
            spark = stack.enter_context(session)
        _Demo(directory, spark, cluster, source, settings.scale, report).run()
        if settings.keep is not None:
            report.say(f"\nkept in {directory}")


@dataclass(frozen=True)
class _Demo:
    """The steps between a running cluster and the end."""

    directory: Path
    spark: SparkSession
    cluster: LocalCluster
    source: Lineitem
    scale: float
    report: Report

    def run(self) -> None:
        parquet = self.spark.read.parquet(str(self.source.directory))
        with self.report.step("read the source (Parquet), Q1 and Q6", **_size(self.source)):
            rows = fingerprint(parquet)
            q1, q6 = self._query(queries.Q1, parquet), self._query(queries.Q6, parquet)
            expected = Expected(rows, q1, q6)
        self.report.compare("rows of the source", self.source.rows, expected.fingerprint.rows)
        if self.scale == queries.PUBLISHED_SCALE:
            self._compare_published("source", expected)

        quorums = "/".join(str(value) for value in QUORUMS.values())
        with self.report.step(f"write to a log, E/WQ/AQ {quorums}, fsync", **_size(self.source)):
            writer = parquet.write.format("bookkeeper").mode("append")
            writer.options(metadataServiceUri=self._uri, log=LOG, **QUORUMS).save()
        self._read_and_compare("read it back", expected)
        self._run_queries(expected)
        self._show()
        self._stream()

        self._read_and_compare("read with one bookie dead", expected)

        with self.report.step("SIGKILL every bookie and ZooKeeper at once"):
            for bookie in self.cluster.bookies:
                bookie.kill()
            self.cluster.zookeeper.kill()
        with self.report.step("start them again on the same directories"):
            self.cluster.start()
        self._read_and_compare("read after the crash of everything", expected)
        self._lose_for_good(self.cluster.bookies[1], expected)

    @property
    def _uri(self) -> str:
        return self.cluster.metadata_service_uri

    def _log(self, name: str = LOG) -> DataFrame:
        reader = self.spark.read.format("bookkeeper")
        return reader.options(metadataServiceUri=self._uri, log=name).load()

    def _query(self, text: str, frame: DataFrame) -> list[tuple[Any, ...]]:
        frame.createOrReplaceTempView("demo_lineitem")
        return [tuple(row) for row in self.spark.sql(text.format(table="demo_lineitem")).collect()]

    def _read_and_compare(self, name: str, expected: Expected) -> None:
        with self.report.step(name, **_size(self.source)):
            found = fingerprint(self._log())
        self.report.compare(f"{name}: every row", expected.fingerprint, found)

    def _run_queries(self, expected: Expected) -> None:
        log = self._log()
        with self.report.step("TPC-H Q1 on the log", **_size(self.source)):
            q1 = self._query(queries.Q1, log)
        with self.report.step("TPC-H Q6 on the log", **_size(self.source)):
            q6 = self._query(queries.Q6, log)
        self.report.compare("Q1 on the log and on the source", expected.q1, q1)
        self.report.compare("Q6 on the log and on the source", expected.q6, q6)
        if self.scale == queries.PUBLISHED_SCALE:
            self._compare_published("log", Expected(expected.fingerprint, q1, q6))

    def _compare_published(self, what: str, answers: Expected) -> None:
        for name, published, rows in (
            ("Q1", queries.PUBLISHED_Q1, answers.q1),
            ("Q6", queries.PUBLISHED_Q6, answers.q6),
        ):
            found = queries.as_published(rows)
            self.report.compare(f"{name} on the {what} and as published", published, found)

    def _stream(self) -> None:
        """The same rows as a stream; a bookie is killed in it, and its driver twice: see its module."""
        directory, files = self.directory / "stream", BATCHES * FILES_PER_BATCH
        part = slice_files(self.source, directory / "source", files, STREAM_ROWS_MAX)
        settings = StreamSettings(
            metadata_service_uri=self._uri,
            log=STREAM_LOG,
            source=str(part.directory),
            files_per_batch=FILES_PER_BATCH,
            directory=str(directory),
            cores=os.cpu_count() or 2,
            quorums=QUORUMS,
        )
        victim = self.cluster.bookies[0]
        with stream_driver(settings) as driver, BookKeeper(self._uri) as client:
            log = StreamLog(client, STREAM_LOG)
            run_killed_stream(driver, log, self.report, victim)
            named = log.ledgers() | {each.ledger_id for each in client.open_log(LOG).ledgers()}
            stored = set(client.list_ledgers())
        expected = fingerprint(self.spark.read.parquet(str(part.directory)))
        stored_rows = fingerprint(self._log(STREAM_LOG))
        self.report.compare("the stream's log: every row, once", expected, stored_rows)
        with self.report.step("read it as a stream, into Parquet", **_size(part)):
            copy = self._stream_out(part.rows // BATCHES)
        self.report.compare("read as a stream: every row, once", expected, fingerprint(copy))
        self.report.compare("ledgers stored and ledgers named by logs", named, stored)
        self._show_short(victim.bookie_id)
        self.report.say("")

    def _lose_for_good(self, lost: LocalBookie, expected: Expected) -> None:
        """A bookie never comes back, and others get its copies; so the next one that dies costs nothing either."""
        healer = begin_healing(self.cluster, self.report)
        with self.report.step("SIGKILL a bookie, for good"):
            lost.kill()
        self._read_and_compare("read while it is healed", expected)
        wait_until_healed(self.cluster, lost, healer, self.report)
        self._show()
        verify_everything(self.cluster, self.report)
        self.cluster.bookies[2].kill()
        self._read_and_compare("read with another bookie dead", expected)

    def _stream_out(self, batch_rows: int) -> DataFrame:
        """The streamed log, streamed once more in micro-batches of ``batch_rows``."""
        directory = self.directory / "stream" / "copy"
        reader = self.spark.readStream.format("bookkeeper").option("startingOffsets", "earliest")
        reader = reader.option("maxRowsPerTrigger", batch_rows)
        frame = reader.options(metadataServiceUri=self._uri, log=STREAM_LOG).load()
        writer = frame.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
        writer.start(str(directory / "rows")).awaitTermination()
        return self.spark.read.parquet(str(directory / "rows"))

    def _show_short(self, bookie_id: str) -> None:
        """What the dead bookie misses, as an operator would see it."""
        log = describe_log(session_with(self._uri), STREAM_LOG)
        held = [each["ledger_id"] for each in log["under_replicated"] if bookie_id in each["held"]]
        self.report.say(
            f"of {len(log['ranges'])} ledgers of the stream {len(log['under_replicated'])} name the "
            f"dead bookie, {len(held)} of them were made while it was away; nothing waited for it"
        )

    def _show(self) -> None:
        """The log and one of its ledgers, as an operator would see them."""
        log = describe_log(session_with(self._uri), LOG)
        ledgers = [each["ledger_id"] for each in log["ranges"]]
        self.report.say(
            f"\nlog {LOG}: {log['rows']:,} rows, {log['size_bytes']:,} bytes in ledgers {ledgers}"
        )
        with BookKeeper(self._uri) as client:
            metadata = client.ledger_metadata(ledgers[0])
        self.report.say(
            f"ledger {ledgers[0]}: {metadata.state.name}, entries 0 to {metadata.last_entry}, "
            f"{metadata.length:,} bytes, digest {metadata.digest_type.name}"
        )
        for fragment in metadata.fragments:
            ensemble = ", ".join(fragment.ensemble)
            self.report.say(f"  from entry {fragment.first_entry} on {ensemble}")
        self.report.say("")


def _size(rows: Lineitem) -> dict[str, int]:
    """What a step that handles ``rows`` is measured by."""
    return {"rows": rows.rows, "size_bytes": rows.size_bytes}


def fingerprint(frame: DataFrame) -> Fingerprint:
    """Read every row and every column of ``frame`` once, in Spark."""
    from pyspark.sql import functions as f

    columns = [f.col(name) for name in frame.columns]
    wide = "decimal(38,0)"
    row = frame.agg(
        f.count("*"),
        f.sum(f.xxhash64(*columns).cast(wide)),
        f.sum(f.hash(*columns).cast(wide)),
    ).collect()[0]
    # The sum over no rows is null.
    return Fingerprint(row[0], int(row[1] or 0), int(row[2] or 0))


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        with directory_refusals(keep):
            keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="bookkeeper-demo-") as directory:
        yield Path(directory)
