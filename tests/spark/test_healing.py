"""A Spark stream writes while a bookie is lost for good: it heals, no copy is missing, and another may die."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.processes import command
from tests.spark.conftest import Logs
from tests.spark.waits import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.full]


def test_a_bookie_lost_for_good_under_a_stream_is_healed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with LocalCluster(5) as cluster:
        uri = cluster.metadata_service_uri
        logs = Logs(spark, uri, "healed")
        ids = spark.readStream.format("rate").option("rowsPerSecond", 400).load().select("value")
        query = (
            ids.writeStream.format("bookkeeper")
            .options(**logs.options())
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

        def batch_id() -> int:
            assert query.exception() is None
            return -1 if query.lastProgress is None else query.lastProgress.batchId

        wait_until(lambda: batch_id() >= 3, "micro-batches before the loss")
        lost = cluster.bookies[0]
        cluster.start_auto_recovery(lost_bookie_delay_ms=0)
        lost.kill()
        lost_at = batch_id()

        # The stream goes on, and what was written before is copied again beside it.
        wait_until(lambda: batch_id() >= lost_at + 5, "micro-batches after the loss")
        with BookKeeper(uri) as bk:
            wait_until(
                lambda: (
                    not any(
                        lost.bookie_id in bk.ledger_metadata(each).bookie_ids
                        for each in bk.list_ledgers()
                    )
                ),
                "no ledger names the lost bookie",
            )
        query.stop()
        wait_until(
            lambda: not command(uri, "underreplicated", "list")["underreplicated"],
            "no ledger is marked",
        )
        verified = command(uri, "ledgers", "verify", "--all")
        assert verified["passed"]
        assert sum(each["copies_missing"] for each in verified["ledgers"]) == 0

        next(each for each in cluster.bookies if each.is_running).kill()

        found = sorted(row.value for row in logs.read().collect())
        assert len(found) > 1_000
        assert found == list(range(len(found))), "every row, once"
