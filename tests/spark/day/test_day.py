"""A day of a cluster in ten minutes: at its end it takes what it took at noon.

Everything a day has - streams of small batches, a table that is overwritten, a writer outside Spark,
retention, truncation, optimize, collection, bookies killed - with all times shortened alike. Every row
once, and disk, files, memory, descriptors and znodes flat in the second half.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster, Retention
from spark_bookkeeper.demo.session import spark_session
from tests.spark.day.actors import Cast, Killer, Outside, Stream, Table, Upkeep
from tests.spark.day.gauges import Gauges

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(2400)]

MINUTES = float(os.environ.get("BOOKKEEPER_DAY_MINUTES", "10"))
BOOKIES = {
    "gc_interval_ms": 2_000,
    "checkpoint_interval_ms": 1_000,
    "minor_compaction_interval_ms": 2_000,
    "major_compaction_interval_ms": 20_000,
    "write_cache_size_bytes": 8 * 1024 * 1024,
    "journal_file_size_bytes": 16 * 1024 * 1024,
}
RETENTION_MS = 45_000


def test_a_day_in_ten_minutes(tmp_path: Path) -> None:
    with (
        LocalCluster(3, bookie_settings=BOOKIES) as cluster,
        spark_session(tmp_path / "spark", cores=2) as spark,
    ):
        stream, table = Stream(spark, cluster, tmp_path), Table(spark, cluster)
        outside, upkeep, killer = Outside(cluster), Upkeep(cluster), Killer(cluster)
        gauges = Gauges(cluster, every_s=5 * MINUTES / 10)
        logs = (Stream.LOG, Table.LOG, Outside.LOG)
        table.overwrite()
        stream.start()
        with BookKeeper(cluster.metadata_service_uri) as bk:
            bk.open_log(Stream.LOG).set_retention(
                Retention(time_ms=RETENTION_MS, is_consumed_kept=True)
            )
        cast = Cast()
        cast.add("stream", stream.look, 1)
        cast.add("table", table.overwrite, 3)
        cast.add("writer", outside.write, 0.5)
        cast.add("reader", outside.read, 1)
        cast.add("truncation", outside.truncate, 5)
        cast.add("collection", lambda: upkeep.collect(logs), 4)
        cast.add("optimize", lambda: upkeep.optimize(Stream.LOG), 10)
        cast.add("killer", killer.strike, 20)
        gauges.start()
        try:
            cast.play(60 * MINUTES)
        finally:
            gauges.stop()
            sys.stderr.write(f"\n{gauges.report()}\n")
        stream.finish()
        outside.finish()
        stream.check()
        assert killer.kills >= MINUTES
        assert upkeep.rewritten > 0
        assert gauges.growth() == {}
