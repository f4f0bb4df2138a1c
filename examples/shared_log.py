"""One log for Python and Spark: a Python program writes, Spark reads and writes, Python reads.

In an empty environment: pip install spark-bookkeeper (Java 17+ on the path), then
python shared_log.py

Prints:
    Spark reads what Python is still writing: ['1 EUR', '2 EUR', '3 EUR']
    Spark may not write beside a live writer: BK_LOG_HAS_WRITER
    Python reads 0 1 EUR
    Python reads 1 2 EUR
    Python reads 2 3 EUR
    Python reads 3 4 EUR
    the writer from before is told: BK_FENCED
"""

import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import LedgerFencedError

os.environ["PYSPARK_PYTHON"] = sys.executable

with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
    os.environ["BOOKKEEPER_METADATA_URI"] = cluster.metadata_service_uri
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")

    # A log of plain values: one entry is one row of one binary column.
    writer = bk.create_log("payments").writer()
    writer.append_many([b"1 EUR", b"2 EUR", b"3 EUR"])

    payments = spark.read.format("bookkeeper").load("payments")
    values = [bytes(row.value).decode() for row in payments.orderBy("value").collect()]
    print(f"Spark reads what Python is still writing: {values}")

    more = spark.createDataFrame([(bytearray(b"4 EUR"),)], "value binary").coalesce(1)
    spark_writer = more.write.format("bookkeeper").mode("append")
    try:
        spark_writer.save("payments")
    except PySparkException as refusal:  # Spark wraps ours; its text carries our name
        name = "BK_LOG_HAS_WRITER"
        print(f"Spark may not write beside a live writer: {name if name in str(refusal) else '?'}")
    spark_writer.option("takeOver", "true").save("payments")

    for position, entry in bk.open_log("payments").reader("earliest"):
        print(f"Python reads {position.row} {bytes(entry.payload).decode()}")
    try:
        writer.append(b"5 EUR")
    except LedgerFencedError as error:
        print(f"the writer from before is told: {error.name}")
    spark.stop()
