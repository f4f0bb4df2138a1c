"""A stream into a log and out of it again, on a cluster and a Spark of its own.

In an empty environment: pip install spark-bookkeeper (Java 17+ on the path), then
python spark_stream.py

Prints:
    in:  4 micro-batches, 4000 rows
    out: 4 micro-batches, rows 0 to 4000, 0 behind
    4000 rows, each once: True
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from spark_bookkeeper import LocalCluster
from spark_bookkeeper.datasource.listener import lag

os.environ["PYSPARK_PYTHON"] = sys.executable

with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory() as temporary:
    os.environ["BOOKKEEPER_METADATA_URI"] = cluster.metadata_service_uri
    folder = Path(temporary)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for first in range(0, 4000, 1000):
        spark.range(first, first + 1000, numPartitions=1).write.mode("append").parquet(
            str(folder / "source")
        )

    # In: every new file of the folder is a micro-batch, every micro-batch one commit of the log.
    source = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    stream_in = (
        source.parquet(str(folder / "source"))
        .writeStream.format("bookkeeper")
        .option("log", "orders")
        .option("checkpointLocation", str(folder / "checkpoint-in"))
        .trigger(availableNow=True)
        .start()
    )
    stream_in.awaitTermination()
    batches = stream_in.recentProgress
    print(f"in:  {len(batches)} micro-batches, {sum(p.sink.numOutputRows for p in batches)} rows")

    # Out: at most 1000 rows a micro-batch, exactly.
    orders = spark.readStream.format("bookkeeper").option("startingOffsets", "earliest")
    stream_out = (
        orders.option("maxRowsPerTrigger", 1000)
        .load("orders")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint-out"))
        .trigger(availableNow=True)
        .start(str(folder / "copy"))
    )
    stream_out.awaitTermination()
    steps = [source for progress in stream_out.recentProgress for source in lag(progress)]
    print(
        f"out: {len(steps)} micro-batches, rows {steps[0].start_row} to {steps[-1].end_row}, "
        f"{steps[-1].lag_rows} behind"
    )

    copy = spark.read.parquet(str(folder / "copy"))
    print(f"{copy.count()} rows, each once: {copy.distinct().count() == 4000}")
    spark.stop()
