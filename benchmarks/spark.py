"""P1, P2: TPC-H lineitem through Spark, beside what any Python source or sink can reach at most."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from benchmarks.figures import Figure
from spark_bookkeeper import LocalCluster
from spark_bookkeeper.demo.lineitem import generate
from spark_bookkeeper.demo.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 60_000


class ThrowAway(DataSource):
    """The ceiling of any Python sink: takes every batch and drops it."""

    @classmethod
    def name(cls) -> str:
        return "throwaway"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return _Dropper()


class _Dropper(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()


class Prepared(DataSource):
    """The ceiling of any Python source: one batch of the table, over and over, from memory."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> str:
        return str(self.options["ddl"])

    def reader(self, schema: Any) -> DataSourceReader:
        return _Repeater(self.options["file"], int(self.options["batches"]))


class _Repeater(DataSourceReader):
    def __init__(self, file: str, batches: int) -> None:
        self._file = file
        self._batches = batches

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(4)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self._file) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        for _ in range(self._batches // 4):
            yield batch


def peak_rss_mib(pid: int) -> float:
    """The most memory a process ever had resident."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (line,) = [each for each in status.splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def p1_p2(scale: float) -> list[Figure]:
    """Write and full scan of ``lineitem``; every figure is the better of two after a warm-up."""
    cores = os.cpu_count() or 2
    with (
        TemporaryDirectory() as temporary,
        LocalCluster(bookies=3) as cluster,
        spark_session(Path(temporary), cores) as spark,
    ):
        table = generate(Path(temporary) / "tpch", scale, parts=cores)
        frame = spark.read.parquet(str(table.directory)).cache()
        frame.count()
        return _write(spark, frame, cluster, table.rows) + _read(
            spark, frame, cluster, Path(temporary), table.rows
        )


def _write(spark: SparkSession, frame: DataFrame, cluster: LocalCluster, rows: int) -> list[Figure]:
    spark.dataSource.register(ThrowAway)

    def ours() -> None:
        writer = frame.write.format("bookkeeper").mode("overwrite").option("log", "lineitem")
        writer.option("metadataServiceUri", cluster.metadata_service_uri).save()

    def ceiling() -> None:
        frame.write.format("throwaway").mode("append").save()

    best = _alternate(ours, ceiling)
    what = "write lineitem, E=WQ=3 AQ=2, fsync"
    notes = {"bookie_peak_mib": max(peak_rss_mib(b.pid) for b in cluster.bookies if b.pid)}
    return [Figure("P1", what, rows / best[0], "rows/s", rows / best[1], "throw-away sink", notes)]


def _read(
    spark: SparkSession, frame: DataFrame, cluster: LocalCluster, directory: Path, rows: int
) -> list[Figure]:
    spark.dataSource.register(Prepared)
    batches = max(4, round(rows / BATCH_ROWS / 4) * 4)
    arrow = frame.limit(BATCH_ROWS).toArrow().combine_chunks()
    file = directory / "prepared.arrow"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, arrow.schema) as out:
        out.write_batch(arrow.to_batches(BATCH_ROWS)[0])
    ddl = ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)
    prepared = spark.read.format("prepared").option("ddl", ddl)
    prepared = prepared.option("file", str(file)).option("batches", batches)

    def scan(source: DataFrame) -> None:
        source.write.format("noop").mode("overwrite").save()

    reader = spark.read.format("bookkeeper").option("log", "lineitem")
    reader = reader.option("metadataServiceUri", cluster.metadata_service_uri)
    best = _alternate(lambda: scan(reader.load()), lambda: scan(prepared.load()))
    in_memory = batches * BATCH_ROWS / best[1]
    return [
        Figure("P2", "full scan of it", rows / best[0], "rows/s", in_memory, "in-memory source")
    ]


def _alternate(ours: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """The best of two runs of each, alternated, after one to warm up."""
    ours()
    other()
    runs = [(_seconds(ours), _seconds(other)) for _ in range(2)]
    return min(run[0] for run in runs), min(run[1] for run in runs)
