"""P10: what many small commits cost, in ZooKeeper and when they are read, before and after optimize.

Micro-batches of small partitions as a stream writes them, without Spark around them; the same rows written
in a single batch are the baseline of a full scan by Spark.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from benchmarks.figures import Figure
from spark_bookkeeper import LocalCluster
from spark_bookkeeper.datasource.optimize.run import OptimizeReport, optimize_log, rewrite_here
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.options.parse import parse_write_options
from spark_bookkeeper.datasource.session import Session, open_session
from spark_bookkeeper.datasource.write.plan import make_plan
from spark_bookkeeper.datasource.write.task import TaskIdentity, WriteTask
from spark_bookkeeper.demo.session import spark_session
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.rules.grouping import GroupLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_bookkeeper.log.format.epoch import TaskMessage

PARTITIONS, PARTITION_ROWS = 8, 500
SCHEMA = StructType().add("id", LongType()).add("text", StringType())
SCANS = 5
SMALL, SINGLE = "small", "single"


def p10_optimize(seconds: float) -> list[Figure]:
    """About ten micro-batches a second of ``seconds``, then optimize; scans are the best of five, but for the slow one."""
    batches = max(20, round(10 * seconds))
    with (
        TemporaryDirectory() as temporary,
        LocalCluster(bookies=3) as cluster,
        spark_session(Path(temporary) / "spark", cores=2) as spark,
    ):
        uri = cluster.metadata_service_uri
        requests = _requests(cluster)
        began = time.perf_counter()
        for number in range(batches):
            _commit(uri, SMALL, number, [_rows(number, part) for part in range(PARTITIONS)])
        taken_s = time.perf_counter() - began
        requests_a_batch = (_requests(cluster) - requests) / batches
        whole = [
            [batch for number in range(batches) for batch in _rows(number, part)]
            for part in range(PARTITIONS)
        ]
        _commit(uri, SINGLE, 0, [iter(each) for each in whole])
        rows = batches * PARTITIONS * PARTITION_ROWS
        before, single = _scan(spark, uri, SMALL, rows, scans=1), _scan(spark, uri, SINGLE, rows)
        rewrite_s, report = _optimize(uri)
        after = _scan(spark, uri, SMALL, rows)
    notes = {
        "zookeeper_requests_a_batch": requests_a_batch,
        "ms_a_batch": 1000 * taken_s / batches,
        "ledgers": report.ranges_before,
        "ledgers_after": report.ranges_after,
        "ranges_rewritten_a_s": report.ranges_before / rewrite_s,
        "rewritten_mb_a_s": report.size_bytes / rewrite_s / 1e6,
    }
    is_what = "one written in a single batch"
    return [
        Figure("P10", "scan of small commits", before, "rows/s", single, is_what),
        Figure("P10", "scan of them after optimize", after, "rows/s", single, is_what, notes),
    ]


def _rows(number: int, part: int) -> Iterator[pa.RecordBatch]:
    first = (number * PARTITIONS + part) * PARTITION_ROWS
    ids = list(range(first, first + PARTITION_ROWS))
    text = [f"{(each * 2_654_435_761) % 2**32:08x} of small batches" for each in ids]
    yield pa.record_batch({"id": pa.array(ids, pa.int64()), "text": text})


def _commit(uri: str, log: str, number: int, parts: list[Iterator[pa.RecordBatch]]) -> None:
    session, options = _session(uri, log)
    plan = make_plan(session, options, SCHEMA, is_overwrite=False)
    job = Job.of_stream("query", number)
    messages: list[TaskMessage | None] = [
        WriteTask(session, plan, TaskIdentity(job, at, number * PARTITIONS + at)).run(rows)
        for at, rows in enumerate(parts)
    ]
    summary = session.run(session.committer.commit(messages, log=log))
    session.run(session.sweeper.after_commit(summary))


def _session(uri: str, log: str) -> tuple[Session, WriteOptions]:
    options = parse_write_options({"log": log, "metadataServiceUri": uri}, {})
    return open_session(options), options


def _optimize(uri: str) -> tuple[float, OptimizeReport]:
    session, options = _session(uri, SMALL)
    began = time.perf_counter()
    report = optimize_log(session, SMALL, GroupLimits(), rewrite_here(session, options))
    return time.perf_counter() - began, report


def _scan(spark: SparkSession, uri: str, log: str, rows: int, *, scans: int = SCANS) -> float:
    """Rows a second of a full scan, the best of some."""
    frame = spark.read.format("bookkeeper").option("metadataServiceUri", uri).load(log)
    best = float("inf")
    for _ in range(scans):
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        best = min(best, time.perf_counter() - began)
    return rows / best


def _requests(cluster: LocalCluster) -> int:
    """Packets that ZooKeeper has received so far."""
    host, port = cluster.zookeeper.service.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"srvr")
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    return int(next(line for line in answer.splitlines() if "Received:" in line).split(":")[1])
