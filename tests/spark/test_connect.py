"""Spark Connect: the client needs PySpark alone, the server has the format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.spark import calls
from tests.spark.drivers import Driver, DriverError
from tests.spark.leftovers import assert_nothing_left

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_connect_client_appends_and_reads(
    connected: Driver, cluster: LocalCluster, bk: BookKeeper, log: str
) -> None:
    uri = cluster.metadata_service_uri

    connected.call(calls.append_ids, log=log, rows=100, metadataServiceUri=uri)

    assert connected.call(calls.client_kind).startswith("pyspark.sql.connect.")
    assert connected.call(calls.read_ids, log=log) == list(range(100))
    assert bk.open_log(log).row_count == 100


def test_the_servers_environment_names_the_cluster(
    connected: Driver, bk: BookKeeper, log: str
) -> None:
    connected.call(calls.append_ids, log=log, rows=10)

    assert bk.open_log(log).row_count == 10


@pytest.mark.full
def test_a_connect_client_optimizes(connected: Driver, cluster: LocalCluster, log: str) -> None:
    uri = cluster.metadata_service_uri
    for _ in range(6):
        connected.call(calls.append_ids, log=log, rows=10, metadataServiceUri=uri)

    before, after = connected.call(calls.optimize_log, log=log, metadataServiceUri=uri)

    assert before >= 6
    assert after == 1
    assert connected.call(calls.read_ids, log=log) == sorted(list(range(10)) * 6)


@pytest.mark.full
def test_a_connect_clients_transaction_is_written_once(
    connected: Driver, bk: BookKeeper, log: str
) -> None:
    for _ in range(2):
        connected.call(calls.append_ids, log=log, rows=10, txnAppId="nightly", txnVersion="7")

    assert bk.open_log(log).row_count == 10


def test_a_connect_client_streams_every_row_once(
    connected: Driver, bk: BookKeeper, log: str, tmp_path: Path
) -> None:
    before = set(bk.list_ledgers())

    connected.call(calls.stream_ids, log=log, rows=1000, folder=str(tmp_path))

    assert connected.call(calls.read_ids, log=log) == list(range(1000))
    assert list(bk.open_log(log).transactions().values()) == [1]
    assert_nothing_left(bk, log, before)


@pytest.mark.full
def test_a_connect_client_streams_one_log_into_another(
    connected: Driver, log: str, tmp_path: Path
) -> None:
    source, told = f"{log}-source", []
    for _ in range(2):
        connected.call(calls.append_ids, log=source, rows=50)
        lines = connected.call(calls.copy_log, source=source, log=log, folder=str(tmp_path))
        told.append(lines)

    assert [len(lines) for lines in told] == [1, 1]
    assert re.search(r"batch 0: log \d+ rows 0 to 50, 0 rows behind", told[0][0])
    assert re.search(r"batch 1: log \d+ rows 50 to 100, 0 rows behind", told[1][0])
    assert connected.call(calls.read_ids, log=log) == sorted([*range(50), *range(50)])


@pytest.mark.full
def test_a_failed_foreach_batch_of_a_connect_client_appends_once(
    connected: Driver, bk: BookKeeper, log: str, tmp_path: Path
) -> None:
    """The function runs on the server, where the batch's writes know the query."""
    before = set(bk.list_ledgers())
    given = {"log": log, "rows": 100, "folder": str(tmp_path)}

    with pytest.raises(DriverError, match="fails on purpose"):
        connected.call(calls.append_for_each_batch, **given, fails=True)
    assert bk.open_log(log).row_count == 100
    connected.call(calls.append_for_each_batch, **given, fails=False)

    assert connected.call(calls.read_ids, log=log) == list(range(100))
    assert_nothing_left(bk, log, before)


@pytest.mark.full
def test_a_pipeline_appends_to_one_log_and_makes_a_table_of_another(
    connected: Driver, bk: BookKeeper, log: str, tmp_path: Path
) -> None:
    """Defined and started as ``spark-pipelines run`` does with the files that are given to it.

    That command itself needs PyYAML (``pyspark[pipelines]``).
    """
    source = f"{log}-source"
    connected.call(calls.append_ids, log=source, rows=10)
    before = set(bk.list_ledgers())
    given = {"log": log, "source": source, "folder": str(tmp_path)}

    counts = [connected.call(calls.run_pipeline, **given, rows=rows) for rows in (100, 300)]

    assert counts == [10, 10]
    assert connected.call(calls.read_ids, log=log) == list(range(300))
    assert_nothing_left(bk, log, before)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ensambleSize": "3"}, r"BK_OPTION_UNKNOWN.*ensembleSize"),
        ({"ensembleSize": "9", "writeQuorum": "9"}, "BK_NOT_ENOUGH_BOOKIES"),
        ({"createLog": "false"}, "BK_NO_SUCH_LOG"),
    ],
)
def test_a_connect_client_sees_the_same_errors(
    connected: Driver, log: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(DriverError, match=rf"(?s){says}"):
        connected.call(calls.append_ids, log=log, rows=5, **options)
