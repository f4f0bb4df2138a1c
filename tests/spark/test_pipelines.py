"""Declarative pipelines: a log as a sink of one flow, and as what a table is made of.

Defined and started through PySpark's own interface, which is what ``spark-pipelines run`` does with
the files that its specification names; that command needs PyYAML (``pyspark[pipelines]``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.spark import calls
from tests.spark.drivers import Driver
from tests.spark.leftovers import assert_nothing_left

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.full
def test_a_pipeline_appends_to_one_log_and_makes_a_table_of_another(
    connected: Driver, cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    uri, log, source = cluster.metadata_service_uri, "pipeline-sink", "pipeline-source"
    connected.call(calls.append_ids, log=source, rows=10)
    before = set(bk.list_ledgers())
    given = {"uri": uri, "log": log, "source": source, "folder": str(tmp_path)}

    counts = [connected.call(calls.run_pipeline, **given, rows=rows) for rows in (100, 300)]

    assert counts == [10, 10]
    assert sorted(connected.call(calls.read_ids, uri=uri, log=log)) == list(range(300))
    assert_nothing_left(bk, log, before)
