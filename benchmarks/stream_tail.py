"""P8 through Spark: from an append by a live writer to the row in the hands of a micro-batch.

The writer is this process's client; the query follows the log's open ledger, one micro-batch after
the other. A row carries the moment of its append on the machine's monotonic clock.
"""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, percentile
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.demo.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_bookkeeper.blocking.log_writer import LogWriter

_RATE_PER_S = 50
_STAMP = struct.Struct(">d")
WARM_UP_BATCHES = 10
"""Spark's first batches compile; what is appended before they are done is not counted."""


def p8_spark(seconds: float) -> list[Figure]:
    """Median and tail of the latency, beside what a micro-batch takes."""
    with (
        TemporaryDirectory() as temporary,
        LocalCluster(bookies=3) as cluster,
        spark_session(Path(temporary) / "spark", 2) as spark,
        BookKeeper(cluster.metadata_service_uri) as client,
    ):
        log = client.create_log("tailed")
        with log.writer() as writer:
            latencies, batches_ms = _follow(spark, cluster, writer, Path(temporary), seconds)
    notes = {
        "p99_ms": percentile(latencies, 0.99) * 1e3,
        "batch_p50_ms": percentile(batches_ms, 0.5),
        "rows": float(len(latencies)),
    }
    what = f"append to Spark micro-batch, {_RATE_PER_S}/s, p50"
    return [Figure("P8", what, percentile(latencies, 0.5) * 1e3, "ms", notes=notes)]


def _follow(
    spark: SparkSession, cluster: LocalCluster, writer: LogWriter, directory: Path, seconds: float
) -> tuple[list[float], list[float]]:
    counted_from = float("inf")
    latencies: list[float] = []

    def take(frame: DataFrame, _: int) -> None:
        rows = frame.collect()
        now = time.monotonic()
        stamps = [_STAMP.unpack(bytes(row.value))[0] for row in rows]
        latencies.extend(now - stamp for stamp in stamps if stamp >= counted_from)

    reader = spark.readStream.format("bookkeeper").option("log", "tailed")
    reader = reader.option("metadataServiceUri", cluster.metadata_service_uri)
    frame = reader.option("startingOffsets", "earliest").load()
    sink = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(directory / "c"))
    query = sink.start()
    pause = threading.Event()
    try:
        due = time.monotonic()
        while due < counted_from + seconds:
            due = max(due + 1 / _RATE_PER_S, time.monotonic() - 1)
            pause.wait(max(0.0, due - time.monotonic()))
            writer.append_async(_STAMP.pack(time.monotonic()))
            if counted_from == float("inf") and len(query.recentProgress) >= WARM_UP_BATCHES:
                counted_from = time.monotonic()
        writer.flush()
        query.processAllAvailable()
        warm = query.recentProgress[WARM_UP_BATCHES:]
        durations = [progress.durationMs["triggerExecution"] for progress in warm]
    finally:
        query.stop()
    return sorted(latencies), sorted(map(float, durations))
