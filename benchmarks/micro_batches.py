"""P7: what a micro-batch costs more with our sink than with Spark's ``noop``.

Two partitions of 1,000 rows a batch, one batch after the other. Beside it a Python sink that throws
everything away: what Spark itself asks for any Python sink (a worker to plan, one to commit, one per
task), so the rest is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from benchmarks.figures import Figure, percentile
from spark_bookkeeper import LocalCluster
from spark_bookkeeper.demo.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS, PARTITION_ROWS = 2, 1_000
WARM_UP_BATCHES = 8
ROUNDS = 3


class ThrowAwayStream(DataSource):
    """The floor of any Python streaming sink."""

    @classmethod
    def name(cls) -> str:
        return "throwawaystream"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _Dropper()


class _Dropper(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        return

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
        return


def p7(seconds: float) -> list[Figure]:
    """Milliseconds of a micro-batch, sinks in turn so that all meet the same machine."""
    batches = max(3, round(5 * seconds))
    with (
        TemporaryDirectory() as temporary,
        LocalCluster(bookies=3) as cluster,
        spark_session(Path(temporary) / "spark", PARTITIONS) as spark,
    ):
        spark.dataSource.register(ThrowAwayStream)
        target = {"metadataServiceUri": cluster.metadata_service_uri, "log": "micro"}
        sinks = {"bookkeeper": target, "throwawaystream": {}, "noop": {}}
        taken: dict[str, list[float]] = {name: [] for name in sinks}
        for round_number in range(ROUNDS):
            for name, options in sinks.items():
                checkpoint = Path(temporary) / f"{name}-{round_number}"
                taken[name] += _batch_ms(spark, name, options, checkpoint, batches)
    return _figures({name: sorted(found) for name, found in taken.items()})


def _batch_ms(
    spark: SparkSession, sink: str, options: dict[str, str], checkpoint: Path, batches: int
) -> list[float]:
    """How long each micro-batch took, the first ones left out."""
    rate = spark.readStream.format("rate-micro-batch").option("numPartitions", PARTITIONS)
    frame = rate.option("rowsPerBatch", PARTITIONS * PARTITION_ROWS).load()
    writer = frame.writeStream.format(sink).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    found: dict[int, float] = {}
    try:
        while len(found) < WARM_UP_BATCHES + batches:
            query.awaitTermination(1)
            for progress in query.recentProgress:
                found[progress.batchId] = progress.durationMs["triggerExecution"]
    finally:
        query.stop()
    return [found[number] for number in sorted(found)[WARM_UP_BATCHES:]]


def _figures(taken: dict[str, list[float]]) -> list[Figure]:
    medians = {name: percentile(found, 0.5) for name, found in taken.items()}
    notes = {
        "p50_ms": medians["bookkeeper"],
        "p99_ms": percentile(taken["bookkeeper"], 0.99),
        "added_to_any_python_sink_ms": medians["bookkeeper"] - medians["throwawaystream"],
    }
    added = medians["bookkeeper"] - medians["noop"]
    what = f"micro-batch of {PARTITIONS} x {PARTITION_ROWS} rows, added p50"
    return [Figure("P7", what, added, "ms", medians["noop"], "noop sink's own", notes)]
