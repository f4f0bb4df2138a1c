"""A streaming driver is killed right after a commit and started again: every row is there once.

In an empty environment: pip install spark-bookkeeper (Java 17+ on the path), then
python exactly_once_restart.py

Prints:
    SIGKILL driver and JVM: micro-batches 0 to 2 are in the log
    started again: 6 micro-batches in the log
    6000 rows, 6000 different ones
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import NoSuchLogError

BATCHES = 6


def drive(folder: Path) -> None:
    """The driver: an ordinary query, which knows nothing of being killed."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    source = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    query = source.parquet(str(folder / "source")).writeStream.format("bookkeeper")
    query = query.option("log", "orders").option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def start_driver(folder: Path) -> subprocess.Popen[bytes]:
    """The driver in a process group of its own, to be killed as a whole."""
    command = [sys.executable, __file__, str(folder)]
    return subprocess.Popen(command, start_new_session=True)


def last_batch(bk: BookKeeper) -> int:
    """The last micro-batch that is in the log: the query's transaction."""
    try:
        return max(bk.open_log("orders").transactions().values(), default=-1)
    except NoSuchLogError:
        return -1


def main() -> None:
    """Cluster, input, a driver that is killed, the same driver again, and the count."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory() as temporary:
        os.environ["BOOKKEEPER_METADATA_URI"] = cluster.metadata_service_uri
        folder = Path(temporary)
        (folder / "source").mkdir()
        for number in range(BATCHES):
            ids = range(number * 1000, number * 1000 + 1000)
            pq.write_table(pa.table({"id": ids}), folder / "source" / f"{number}.parquet")

        with BookKeeper(cluster.metadata_service_uri) as bk:
            driver = start_driver(folder)
            while last_batch(bk) < 2 and driver.poll() is None:
                time.sleep(0.005)
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            print(f"SIGKILL driver and JVM: micro-batches 0 to {last_batch(bk)} are in the log")

            start_driver(folder).wait()
            print(f"started again: {last_batch(bk) + 1} micro-batches in the log")

        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.log.level", "ERROR").getOrCreate()
        orders = spark.read.format("bookkeeper").load("orders")
        print(f"{orders.count()} rows, {orders.distinct().count()} different ones")
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        drive(Path(sys.argv[1]))
    else:
        main()
