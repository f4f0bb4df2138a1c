"""Spark Connect: the client needs PySpark alone, the server has the format."""

from __future__ import annotations

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.spark import calls
from tests.spark.drivers import Driver, DriverError

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_connect_client_appends_and_reads(
    connected: Driver, cluster: LocalCluster, bk: BookKeeper
) -> None:
    uri = cluster.metadata_service_uri

    for _ in range(2):
        connected.call(calls.append_ids, uri=uri, log="by-connect", rows=100, options={})

    assert connected.call(calls.client_kind).startswith("pyspark.sql.connect.")
    found = connected.call(calls.read_ids, uri=uri, log="by-connect")
    assert sorted(found) == sorted([*range(100), *range(100)])
    assert bk.open_log("by-connect").row_count == 200


def test_a_connect_clients_transaction_is_written_once(
    connected: Driver, cluster: LocalCluster, bk: BookKeeper
) -> None:
    options = {"txnAppId": "nightly", "txnVersion": "7"}

    for _ in range(2):
        connected.call(
            calls.append_ids,
            uri=cluster.metadata_service_uri,
            log="once-by-connect",
            rows=10,
            options=options,
        )

    assert bk.open_log("once-by-connect").row_count == 10


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ensambleSize": "3"}, r"BK_OPTION_UNKNOWN.*ensembleSize"),
        ({"ensembleSize": "9", "writeQuorum": "9"}, "BK_NOT_ENOUGH_BOOKIES"),
        ({"createLog": "false"}, "BK_NO_SUCH_LOG"),
    ],
)
def test_a_connect_client_sees_the_same_errors(
    connected: Driver, cluster: LocalCluster, options: dict[str, str], says: str
) -> None:
    uri, log = cluster.metadata_service_uri, f"refused-{next(iter(options))}"

    with pytest.raises(DriverError, match=rf"(?s){says}"):
        connected.call(calls.append_ids, uri=uri, log=log, rows=5, options=options)
