"""One side of the comparison: a Spark session under commands, a line in, a line of JSON out.

``python side.py KIND WHERE TABLE SCRATCH JARS`` runs in the environment of that side, so it needs nothing but PySpark, and
our package where KIND is ``ours``. Commands: ``write``, ``read`` (of what was written last), ``batches COUNT``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

CORES = 2
PARTITIONS, PARTITION_ROWS = 2, 1_000
WARM_UP_BATCHES = 8
BATCH_ROWS = 60_000

Answer = dict[str, float]


class Sink:
    """Where rows go to and come from; each write is the whole table anew."""

    options: dict[str, str]
    """Of a streaming write."""
    format: str

    def __init__(self, spark: SparkSession, frame: DataFrame, where: str, scratch: Path) -> None:
        self.spark = spark
        self.frame = frame
        self.where = where
        self.scratch = scratch
        self.rows = self.rows_read = frame.count()

    def write(self) -> None:
        """Write the table."""
        raise NotImplementedError

    def read(self) -> DataFrame:
        """The table as it was written last, in its columns."""
        raise NotImplementedError

    def streamed(self, frame: DataFrame) -> DataFrame:
        """Rows of a stream as the sink takes them."""
        return frame


class Ours(Sink):
    """A log of spark-bookkeeper's; ``where`` is the cluster."""

    format = "bookkeeper"

    def write(self) -> None:
        writer = self.frame.write.format("bookkeeper").mode("overwrite").option("log", "lineitem")
        writer.option("metadataServiceUri", self.where).save()

    def read(self) -> DataFrame:
        reader = self.spark.read.format("bookkeeper").option("metadataServiceUri", self.where)
        return reader.load("lineitem")

    @property
    def options(self) -> dict[str, str]:  # type: ignore[override]
        return {"metadataServiceUri": self.where, "log": "micro"}


class Ceiling(Sink):
    """What any Python sink or source reaches at most: drops every batch, gives one over and over."""

    format = "throwawaystream"

    def __init__(self, spark: SparkSession, frame: DataFrame, where: str, scratch: Path) -> None:
        from benchmarks.micro_batches import ThrowAwayStream
        from benchmarks.spark import Prepared, ThrowAway

        super().__init__(spark, frame, where, scratch)
        for source in (ThrowAway, Prepared, ThrowAwayStream):
            spark.dataSource.register(source)
        self.options = {}

    def write(self) -> None:
        self.frame.write.format("throwaway").mode("append").save()

    def read(self) -> DataFrame:
        arrow = self.frame.limit(BATCH_ROWS).toArrow().combine_chunks()
        file = str(self.scratch / "prepared.arrow")
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, arrow.schema) as out:
            out.write_batch(arrow.to_batches(BATCH_ROWS)[0])
        # Of four partitions.
        batches = max(4, round(self.rows / BATCH_ROWS / 4) * 4)
        self.rows_read = batches * min(BATCH_ROWS, arrow.num_rows)
        ddl = ", ".join(f"{name} {kind}" for name, kind in self.frame.dtypes)
        reader = self.spark.read.format("prepared").option("ddl", ddl)
        return reader.option("file", file).option("batches", batches).load()


class Delta(Sink):
    """A Delta table in a local directory: one copy."""

    format = "delta"

    def write(self) -> None:
        self.frame.write.format("delta").mode("overwrite").save(f"{self.where}/lineitem")

    def read(self) -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.where}/lineitem")

    @property
    def options(self) -> dict[str, str]:  # type: ignore[override]
        return {"path": f"{self.where}/micro-{time.time_ns()}"}


class Kafka(Sink):
    """A topic for each write; ``where`` are the brokers. Rows are JSON."""

    format = "kafka"
    _written = 0

    def write(self) -> None:
        self._written += 1
        producer = {"kafka.acks": "all", "kafka.linger.ms": "5", "kafka.batch.size": "262144"}
        writer = self.frame.select(self.packed().alias("value")).write.format("kafka")
        writer = writer.options(**self._servers, **producer).option("kafka.compression.type", "lz4")
        writer.option("topic", self._topic).save()

    def read(self) -> DataFrame:
        reader = self.spark.read.format("kafka").options(**self._servers)
        raw = reader.option("subscribe", self._topic).option("startingOffsets", "earliest").load()
        return raw.select(self.unpacked(raw).alias("row")).select("row.*")

    def packed(self) -> Any:
        """The row as one value."""
        from pyspark.sql import functions as f

        return f.to_json(f.struct("*"))

    def unpacked(self, raw: DataFrame) -> Any:
        """The value as a row."""
        from pyspark.sql import functions as f

        return f.from_json(raw.value.cast("string"), self.frame.schema)

    def streamed(self, frame: DataFrame) -> DataFrame:
        return frame.selectExpr("to_json(struct(*)) as value")

    @property
    def options(self) -> dict[str, str]:  # type: ignore[override]
        return {**self._servers, "topic": "micro"}

    @property
    def _servers(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.where}

    @property
    def _topic(self) -> str:
        return f"{type(self).__name__.lower()}-{self._written}"


class KafkaAvro(Kafka):
    """Rows are Avro."""

    def packed(self) -> Any:
        from pyspark.sql import functions as f
        from pyspark.sql.avro.functions import to_avro

        return to_avro(f.struct("*"), self._schema)

    def unpacked(self, raw: DataFrame) -> Any:
        from pyspark.sql.avro.functions import from_avro

        return from_avro(raw.value, self._schema)

    @property
    def _schema(self) -> str:
        jvm: Any = self.spark._jvm
        schema = self.frame._jdf.schema()
        converters = jvm.org.apache.spark.sql.avro.SchemaConverters
        return str(converters.toAvroType(schema, False, "row", "").toString())


KINDS: dict[str, type[Sink]] = {
    "ours": Ours,
    "ceiling": Ceiling,
    "delta": Delta,
    "kafka-json": Kafka,
    "kafka-avro": KafkaAvro,
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(scratch: Path, jars: str, more: dict[str, str]) -> SparkSession:
    """A session on as many cores as everybody has."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(scratch / "local"),
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **({"spark.jars": jars} if jars else {}),
        **more,
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("spark peers")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    return made


class Side:
    """Carries out commands."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def answer(self, words: Sequence[str]) -> Answer:
        """Carry out one command.

        Raises:
            ValueError: there is no such command.
        """
        match words:
            case ["write"]:
                return self._timed(self._sink.write, self._sink.rows)
            case ["read"]:
                frame = self._sink.read()
                scan = frame.write.format("noop").mode("overwrite").save
                return self._timed(scan, self._sink.rows_read)
            case ["batches", count]:
                return self._batches(int(count))
            case _:
                raise ValueError(f"no such command: {' '.join(words)}")

    def _timed(self, action: Callable[[], object], rows: int) -> Answer:
        began = time.perf_counter()
        action()
        return {"seconds": time.perf_counter() - began, "count": float(rows), "bytes": 0.0}

    def _batches(self, count: int) -> Answer:
        """How long micro-batches take, the first ones left out."""
        sink = self._sink
        rate = sink.spark.readStream.format("rate-micro-batch").option("numPartitions", PARTITIONS)
        frame = sink.streamed(rate.option("rowsPerBatch", PARTITIONS * PARTITION_ROWS).load())
        writer = frame.writeStream.format(sink.format).options(**sink.options)
        found: dict[int, float] = {}
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=sink.scratch) as checkpoint:
            query = writer.option("checkpointLocation", checkpoint).start()
            try:
                while len(found) < WARM_UP_BATCHES + count:
                    query.awaitTermination(1)
                    for progress in query.recentProgress:
                        found[progress.batchId] = progress.durationMs["triggerExecution"]
            finally:
                query.stop()
        taken = sorted(found[number] for number in sorted(found)[WARM_UP_BATCHES:])
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds,
            "count": float(len(taken)),
            "bytes": 0.0,
            "p50_ms": float(taken[len(taken) // 2]),
        }


def main() -> None:
    """Answers commands until its input ends."""
    kind, where, table, scratch, jars = sys.argv[1:6]
    # What libraries print goes elsewhere: standard output is for answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    spark = session(Path(scratch), jars, _DELTA if kind == "delta" else {})
    frame = spark.read.parquet(table).cache()
    side = Side(KINDS[kind](spark, frame, where, Path(scratch)))
    answers.write("{}\n")
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = side.answer(line.split())
        except Exception as error:  # noqa: BLE001 - whatever it is, the comparison is told
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
