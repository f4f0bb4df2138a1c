"""A DataFrame through a log and back, on a cluster and a Spark of its own.

In an empty environment: pip install spark-bookkeeper (Java 17+ on the path), then
python spark_batch.py

Prints:
    +---+-----+
    |day|count|
    +---+-----+
    |  0|  143|
    |  1|  143|
    |  2|  143|
    |  3|  143|
    |  4|  143|
    |  5|  143|
    |  6|  142|
    +---+-----+
"""

import os
import sys

from pyspark.sql import SparkSession

from spark_bookkeeper import LocalCluster

os.environ["PYSPARK_PYTHON"] = sys.executable

with LocalCluster(bookies=3) as cluster:
    os.environ["BOOKKEEPER_METADATA_URI"] = cluster.metadata_service_uri
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    df = spark.range(1000).selectExpr("id", "id % 7 AS day")
    df.write.format("bookkeeper").mode("append").option("log", "orders").save()

    orders = spark.read.format("bookkeeper").option("log", "orders").load()
    orders.groupBy("day").count().orderBy("day").show()
    spark.stop()
