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
    connected: Driver, cluster: LocalCluster, bk: BookKeeper
) -> None:
    uri = cluster.metadata_service_uri

    connected.call(calls.append_ids, log="by-connect", rows=100, metadataServiceUri=uri)

    assert connected.call(calls.client_kind).startswith("pyspark.sql.connect.")
    found = connected.call(calls.read_ids, uri=uri, log="by-connect")
    assert sorted(found) == list(range(100))
    assert bk.open_log("by-connect").row_count == 100


def test_the_servers_environment_names_the_cluster(connected: Driver, bk: BookKeeper) -> None:
    connected.call(calls.append_ids, log="of-the-server", rows=10)

    assert bk.open_log("of-the-server").row_count == 10


@pytest.mark.full
def test_a_connect_clients_transaction_is_written_once(connected: Driver, bk: BookKeeper) -> None:
    for _ in range(2):
        connected.call(
            calls.append_ids, log="once-by-connect", rows=10, txnAppId="nightly", txnVersion="7"
        )

    assert bk.open_log("once-by-connect").row_count == 10


def test_a_connect_client_streams_every_row_once(
    connected: Driver, cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    uri, log, before = cluster.metadata_service_uri, "streamed-by-connect", set(bk.list_ledgers())

    connected.call(calls.stream_ids, uri=uri, log=log, rows=1000, folder=str(tmp_path))

    assert sorted(connected.call(calls.read_ids, uri=uri, log=log)) == list(range(1000))
    assert list(bk.open_log(log).transactions().values()) == [1]
    assert_nothing_left(bk, log, before)


@pytest.mark.full
def test_a_connect_client_streams_one_log_into_another(
    connected: Driver, cluster: LocalCluster, tmp_path: Path
) -> None:
    given = {"source": "copied-by-connect", "log": "copy-by-connect", "folder": str(tmp_path)}

    told = []
    for _ in range(2):
        connected.call(calls.append_ids, log=given["source"], rows=50)
        told.append(connected.call(calls.copy_log, **given))

    assert [len(lines) for lines in told] == [1, 1]
    assert re.search(r"batch 0: log \d+ rows 0 to 50, 0 rows behind", told[0][0])
    assert re.search(r"batch 1: log \d+ rows 50 to 100, 0 rows behind", told[1][0])
    uri = cluster.metadata_service_uri
    found = connected.call(calls.read_ids, uri=uri, log=given["log"])
    assert sorted(found) == sorted([*range(50), *range(50)])


@pytest.mark.full
def test_a_failed_foreach_batch_of_a_connect_client_appends_once(
    connected: Driver, cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    """The function runs on the server, where the batch's writes know the query."""
    log, before = "for-each-by-connect", set(bk.list_ledgers())
    given = {"uri": cluster.metadata_service_uri, "log": log, "rows": 100, "folder": str(tmp_path)}

    with pytest.raises(DriverError, match="fails on purpose"):
        connected.call(calls.append_for_each_batch, **given, fails=True)
    assert bk.open_log(log).row_count == 100
    connected.call(calls.append_for_each_batch, **given, fails=False)

    assert sorted(connected.call(calls.read_ids, uri=given["uri"], log=log)) == list(range(100))
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
    connected: Driver, options: dict[str, str], says: str
) -> None:
    log = f"refused-{next(iter(options))}"

    with pytest.raises(DriverError, match=rf"(?s){says}"):
        connected.call(calls.append_ids, log=log, rows=5, **options)
