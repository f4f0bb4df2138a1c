"""Options: what is accepted, what is refused, and that every defect is told at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from scripts.generate_documents import option_table
from spark_bookkeeper.datasource.errors import OptionsError, OptionUnknownError, as_source_error
from spark_bookkeeper.datasource.options.client import client_settings
from spark_bookkeeper.datasource.options.parse import (
    KAFKA_HABITS,
    parse_read_options,
    parse_schema_options,
    parse_stream_read_options,
    parse_write_options,
)
from spark_bookkeeper.datasource.options.table import OPTIONS
from spark_bookkeeper.datasource.options.values import EARLIEST, LATEST, Position
from spark_bookkeeper.datasource.session import open_session
from spark_bookkeeper.settings import ClientSettings

URI = "zk+hierarchical://127.0.0.1:2181/ledgers"
HERE = {"BOOKKEEPER_METADATA_URI": URI}
Parse = Callable[..., Any]
READ, SCHEMA, STREAM, WRITE = (
    parse_read_options, parse_schema_options, parse_stream_read_options, parse_write_options,
)  # fmt: skip
STREAM_WRITE = partial(parse_write_options, is_stream=True)


def defects(parse: Parse = READ, cluster: str | None = URI, **given: str) -> str:
    with pytest.raises(OptionsError) as caught:
        parse(given, {} if cluster is None else {"BOOKKEEPER_METADATA_URI": cluster})
    return str(caught.value)


ACCEPTED: list[tuple[Parse, dict[str, str], dict[str, Any]]] = [
    # The path names the log, the environment the cluster, unless an option names another.
    (READ, {"path": "orders"}, {"log": "orders", "metadata_service_uri": URI}),
    (READ, {"log": "a", "metadataserviceuri": "zk://b/l"}, {"metadata_service_uri": "zk://b/l"}),
    (READ, {"log": "a"}, {"partition_bytes_max": 128 << 20}),
    # Keys are compared without case.
    (READ, {"LOG": "a", "maxBytesPerPartition": "64k"}, {"log": "a", "partition_bytes_max": 65536}),
    # Kafka's names for limits are ours too.
    (STREAM, {"log": "a", "maxOffsetsPerTrigger": "7"}, {"trigger_rows_max": 7}),
    # A stream begins at the end and a batch at the beginning.
    (STREAM, {"log": "a"}, {"starting": LATEST}),
    (READ, {"log": "a"}, {"starting": EARLIEST}),
    # A schema is asked for before anybody knows whether it is a stream.
    (SCHEMA, {"log": "a", "maxRowsPerTrigger": "7", "endingOffsets": "latest", "columns": "b"},
     {"columns": ("b",)}),
    # Spark's own keys.
    (READ, {"log": "orders", "checkpointlocation": "/c", "queryname": "q", "owner": "me",
            "provider": "bookkeeper", "option.log": "orders"}, {"log": "orders"}),
    # Options of the other direction, because a view has both.
    (READ, {"log": "a", "entrybytes": "64k", "minpartitions": "3"}, {"partitions_min": 3}),
    (WRITE, {"log": "a", "entrybytes": "64k", "minpartitions": "3"}, {"entry_bytes": 65536}),
    # Values.
    (READ, {"ledger": "7, 8,9"}, {"ledgers": (7, 8, 9)}),
    (READ, {"log": "a", "startingoffsets": '{"log":5,"row":10}', "endingoffsets": '{"row": 20}'},
     {"starting": Position("row", 10, 5), "ending": Position("row", 20)}),
    (WRITE, {"log": "a", "jobtimeout": "2d"},
     {"job_timeout_ms": 2 * 86_400_000, "deleted_ledger_retention_ms": 3_600_000}),
    (WRITE, {"log": "a", "bookkeeper.client.readsInFlight": "8"},
     {"client_settings": (("readsinflight", "8"),)}),
    *[(READ, {"log": "a", "startingtimestamp": time}, {"starting_timestamp_ms": 1_700_000_000_000})
      for time in ("1700000000000", "2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00",
                   "2023-11-14 22:13:20")],
    *[(READ, {"log": "a", "maxbytesperpartition": text}, {"partition_bytes_max": size})
      for text, size in (("1", 1), ("128k", 131072), ("64M", 64 << 20), ("2g", 2 << 30),
                         ("1kb", 1024))],
]  # fmt: skip


@pytest.mark.parametrize(("parse", "given", "wanted"), ACCEPTED)
def test_options_are_understood(
    parse: Parse, given: dict[str, str], wanted: dict[str, Any]
) -> None:
    found = parse(given, HERE)

    assert {name: getattr(found, name) for name in wanted} == wanted


REFUSED: list[tuple[Parse, dict[str, str], str]] = [
    (READ, {"log": "a", "path": "b"}, "name two logs; log=a path=b"),
    (READ, {"paths": '["a","b"]'}, "load() takes one log"),
    (READ, {"ledger": "7", "startingoffsets": '{"row":1}'}, "for logs, not for ledger="),
    (READ, {"log": "a", "consumer": "c"}, "option consumer is for a stream read, not a batch read"),
    (STREAM, {"log": "a", "endingOffsets": "latest"},
     "option endingOffsets is for a batch read, not a stream read"),
    (STREAM, {"log": "a", "maxOffsetsPerTrigger": "7", "maxRowsPerTrigger": "7"},
     "maxRowsPerTrigger and maxOffsetsPerTrigger are one"),
    (STREAM, {"log": "a", "minRowsPerTrigger": "5", "maxRowsPerTrigger": "4"},
     "option minRowsPerTrigger must not be above maxRowsPerTrigger; 5 > 4"),
    (STREAM, {"log": "a", "maxTriggerDelay": "1m"},
     "option maxTriggerDelay needs minRowsPerTrigger"),
    (STREAM, {"log": "a", "consumerTimeout": "1d"}, "option consumerTimeout needs consumer"),
    (STREAM, {"log": "a", "consumer": "c", "consumerTimeout": "0s"},
     "option consumerTimeout must be above 0"),
    (STREAM, {"log": "a", "startingTimestampStrategy": "latest"}, "needs startingTimestamp"),
    (STREAM, {"log": "a", "startingTimestamp": "1", "startingOffsets": "latest"},
     "startingOffsets and startingTimestamp exclude each other"),
    # A stream has transactions of its own.
    (STREAM_WRITE, {"log": "a", "txnappid": "x", "txnversion": "1"},
     "txnAppId is for a batch write, not a stream write"),
    (WRITE, {"ledger": "7"}, "a write needs a log"),
    (WRITE, {"log": "a", "txnappid": "x"}, "txnAppId and txnVersion go together"),
    (WRITE, {"log": "a", "txnappid": "é" * 128, "txnversion": "1"}, "not be longer than 255 bytes"),
    (WRITE, {"log": "a", "jobtimeout": "0s"}, "option jobTimeout: must be longer than 0"),
    # Quorums that are not neighbours are compared too.
    (WRITE, {"log": "a", "ensemblesize": "2", "ackquorum": "3"},
     "option ackQuorum must not be above ensembleSize; 3 > 2"),
    (WRITE, {"log": "a", "payloadformat": "orc"}, "payloadFormat: must be one of arrow, avro, raw"),
    *[(READ, {"log": name}, "log") for name in ("a/b", "..", "", "x" * 256)],
    *[(READ, {"ledger": value}, "option ledger:") for value in ("x", "-1", "7,7", "", "1" * 30)],
    *[(READ, {"log": "a", "startingtimestamp": time}, "option startingTimestamp")
      for time in ("", "yesterday", "-5", "1.5", "2023-13-01", "1969-01-01",
                   "1970-01-01T00:00:00+05:00")],
    *[(READ, {"log": "a", "startingoffsets": value}, "option startingOffsets: must be earliest")
      for value in ("5", '{"row":-1}', '{"row":true}', "first", '{"row":1,"x":2}', "[1]",
                    '{"log":1}')],
    *[(READ, {"log": "a", "maxbytesperpartition": size}, "option maxBytesPerPartition")
      for size in ("0", "-1", "1.5m", "m", "", "1t")],
    *[(READ, {"log": "a", name: "1"}, f"unknown option {name}, which is Kafka's: {instead}")
      for name, instead in sorted(KAFKA_HABITS.items())],
]  # fmt: skip


@pytest.mark.parametrize(("parse", "given", "message"), REFUSED)
def test_options_that_cannot_be_served_are_refused_in_words(
    parse: Parse, given: dict[str, str], message: str
) -> None:
    assert message in defects(parse, **given)


def test_all_defects_are_told_in_one_error() -> None:
    message = defects(minpartitions="0", maxrowsperpartition="many", ledger="7", log="orders")

    assert "option minPartitions: must be a whole number above 0; value='0'" in message
    assert "option maxRowsPerPartition: must be a whole number above 0; value='many'" in message
    assert "options log and ledger exclude each other" in message


def test_all_that_contradicts_each_other_in_a_write_is_told_at_once() -> None:
    sizes = {"ensemblesize": "2", "writequorum": "3", "ackquorum": "4", "entrybytes": "1"}
    given: dict[str, Any] = {"log": "a", "bookkeeper.client.zzz": "3", **sizes}

    message = defects(WRITE, "zk//x", **given)

    assert "option metadataServiceUri: not a metadata service URI: 'zk//x'" in message
    assert "option entryBytes: must lie between 1k and 4m; value=1 bytes" in message
    assert "option ackQuorum must not be above writeQuorum" in message
    assert "option writeQuorum must not be above ensembleSize" in message
    assert "unknown option bookkeeper.client.zzz; settings are" in message


def test_an_unknown_option_is_refused_with_the_nearest_valid_name_or_the_list() -> None:
    with pytest.raises(OptionUnknownError) as caught:
        parse_read_options({"log": "orders", "startingoffset": "earliest"}, HERE)

    message = str(as_source_error(caught.value))
    assert message.startswith("[BK_OPTION_UNKNOWN] unknown option startingoffset;")
    assert "did you mean startingOffsets?" in message
    with pytest.raises(OptionUnknownError, match="valid are metadataServiceUri, log, ledger"):
        parse_read_options({"log": "orders", "xyzzy": "1"}, HERE)


def test_no_cluster_named_says_both_ways_to_name_one() -> None:
    message = defects(cluster=None, log="orders")

    assert "metadataServiceUri" in message
    assert "BOOKKEEPER_METADATA_URI" in message


def test_nothing_named_to_read_is_refused_with_its_likely_reason() -> None:
    assert "CREATE TABLE" in defects()
    assert "nothing named" in defects(columns="a")
    assert "CREATE TABLE" not in defects(columns="a")


def test_a_password_stands_in_no_message_and_no_repr(tmp_path: Path) -> None:
    secret = "very-secret"
    found = parse_read_options({"log": "a", "password": secret}, HERE)

    assert found.read_password() == secret.encode()
    assert secret not in repr(found)
    message = defects(log="a", password=secret, passwordfile=str(tmp_path / "p"))
    assert "exclude each other" in message
    assert secret not in message


def test_a_password_file_gives_its_first_line_and_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    found = parse_read_options({"log": "a", "passwordfile": str(file)}, HERE)

    with pytest.raises(OptionsError, match="option passwordFile: No such file"):
        found.read_password()
    file.write_bytes(b"s3cret\nmore")
    assert found.read_password() == b"s3cret"


def test_the_table_documents_every_option_once() -> None:
    lines = option_table().splitlines()

    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert sum(line.startswith(f"| `{option.name}` |") for line in lines) == 1


def test_how_a_write_bears_the_loss_of_bookies_reaches_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Mock()
    monkeypatch.setattr("spark_bookkeeper.datasource.session.shared", asked)
    given = {
        "log": "a",
        "minWriteQuorum": "3",
        "bookieWaitTimeout": "5m",
        "bookkeeper.client.readsInFlight": "8",
    }

    open_session(parse_write_options(given, HERE))
    open_session(parse_write_options({"log": "a"}, HERE))

    (_, asked_for), (_, default) = (call.args for call in asked.call_args_list)
    assert (asked_for.min_write_quorum, asked_for.bookie_wait_timeout_ms) == (3, 300_000)
    assert asked_for.reads_in_flight == 8
    assert default == ClientSettings()


def test_settings_that_make_sense_together_only_may_come_in_any_order() -> None:
    paths = {"trust": "/t.pem", "certificate": "/c.pem", "key": "/k.pem"}
    given = {f"bookkeeper.client.tls{name}path": path for name, path in paths.items()}
    for order in permutations(given.items()):
        connection = client_settings(
            (key.rpartition(".")[2], value) for key, value in order
        ).connection
        assert connection.tls_files == TlsFiles("/t.pem", "/c.pem", "/k.pem")
    assert not client_settings([("tlsOnly", "false")]).connection.tls_only

    with pytest.raises(OptionsError, match="tls_key_path needs tls_certificate_path"):
        client_settings([("tlskeypath", "/k.pem"), ("tlstrustpath", "/t.pem")])
    with pytest.raises(OptionsError, match="tlsonly: must be true or false"):
        client_settings([("tlsonly", "no")])
