"""Two sinks in one foreachBatch, each written once although the batch fails in between.

In an empty environment: pip install spark-bookkeeper (Java 17+ on the path), then
python foreach_batch.py

Prints:
    batch 0: both written
    batch 1: fails between the two writes
    batch 1: both written
    orders:  2000 rows, 2000 different ones
    refunds: 1000 rows, 1000 different ones
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_bookkeeper import LocalCluster

os.environ["PYSPARK_PYTHON"] = sys.executable
failures_left = 1


def write_both(batch: DataFrame, batch_id: int) -> None:
    """A transaction id and a version make each write happen once, whatever is run again."""
    global failures_left
    writer = batch.write.format("bookkeeper").mode("append").option("txnVersion", batch_id)
    writer.option("txnAppId", "shop").save("orders")
    if batch_id == 1 and failures_left > 0:
        failures_left -= 1
        print("batch 1: fails between the two writes")
        raise RuntimeError("on purpose")
    refunds = batch.where("id % 2 = 0").write.format("bookkeeper").mode("append")
    refunds.option("txnAppId", "shop").option("txnVersion", batch_id).save("refunds")
    print(f"batch {batch_id}: both written")


def run(spark: SparkSession, folder: Path) -> None:
    """One run of the query, over whatever its checkpoint says is left."""
    source = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    query = source.parquet(str(folder / "source")).writeStream.foreachBatch(write_both)
    query = query.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory() as temporary:
    os.environ["BOOKKEEPER_METADATA_URI"] = cluster.metadata_service_uri
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")  # the failure on purpose would fill a screen
    for first in (0, 1000):
        spark.range(first, first + 1000, numPartitions=1).write.mode("append").parquet(
            f"{temporary}/source"
        )

    try:
        run(spark, Path(temporary))
    except StreamingQueryException:
        run(spark, Path(temporary))

    for log in ("orders", "refunds"):
        rows = spark.read.format("bookkeeper").load(log)
        print(f"{log + ':':8} {rows.count()} rows, {rows.distinct().count()} different ones")
    spark.stop()
