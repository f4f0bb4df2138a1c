"""A Spark driver of its own for tests that kill or retry: ``URI LOG MODE FLAG``.

``retry``: the first attempt at every partition fails halfway. ``hang``: every task writes some
rows, touches ``FLAG`` and waits to be killed. ``plain``: nothing goes wrong.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import TaskContext
from pyspark.sql import SparkSession

ROWS, BATCH_ROWS, PARTITIONS = 40_000, 1_000, 4
ROWS_BEFORE = 5 * BATCH_ROWS


def main(uri: str, log: str, mode: str, flag: str) -> None:
    def disturbed(ids: Iterable[int]) -> Iterator[tuple[int]]:
        for number, row_id in enumerate(ids):
            if number == ROWS_BEFORE:
                if mode == "retry" and TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
                    raise RuntimeError("first attempt fails on purpose")
                if mode == "hang":
                    Path(flag).touch()
                    threading.Event().wait()
            yield (row_id,)

    with TemporaryDirectory() as scratch:
        builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.local.dir", scratch)
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
        spark = builder.getOrCreate()
        # Rows of an RDD: mapInArrow would need pandas, which the product does not.
        ids = spark.sparkContext.range(0, ROWS, 1, PARTITIONS).mapPartitions(disturbed)
        frame = spark.createDataFrame(ids, "id bigint")
        writer = frame.write.format("bookkeeper").mode("append").option("log", log)
        writer.option("metadataServiceUri", uri).option("entryBytes", "2k").save()
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
