"""Makes the archive of Spark's classes that all JVMs of the tests map: ``class_archive FILE``.

Half the time of a start of Spark is reading and checking the same thousands of classes, and the
Spark tests start it dozens of times. The archive is Java's own (class data sharing); a JVM of another
version or class path ignores it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.spark.drivers import JAVA_OPTIONS, SETTINGS


def main(archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={unfinished} -Xlog:cds*=off"
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": options}
    spark = SparkSession.builder.config(map={**settings}).getOrCreate()
    spark.range(3).selectExpr("sum(id)").collect()
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    # The JVM ends with its standard input, and writes the archive then.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    unfinished.replace(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
