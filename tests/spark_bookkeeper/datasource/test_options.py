"""Options: what is accepted, what is refused, and that every defect is told at once."""

from __future__ import annotations

import pytest

from scripts.generate_documents import option_table
from spark_bookkeeper.datasource.errors import OptionsError, OptionUnknownError, as_source_error
from spark_bookkeeper.datasource.options.parse import (
    KAFKA_HABITS,
    parse_read_options,
    parse_schema_options,
    parse_stream_read_options,
    parse_write_options,
)
from spark_bookkeeper.datasource.options.table import OPTIONS
from spark_bookkeeper.datasource.options.values import EARLIEST, LATEST, Position

URI = "zk+hierarchical://127.0.0.1:2181/ledgers"
HERE = {"BOOKKEEPER_METADATA_URI": URI}
ELSEWHERE = {"BOOKKEEPER_METADATA_URI": "zk//x"}


def read_defects(**options: str) -> str:
    with pytest.raises(OptionsError) as caught:
        parse_read_options(options, HERE)
    return str(caught.value)


def test_the_path_names_the_log_and_the_environment_the_cluster() -> None:
    found = parse_read_options({"path": "orders"}, HERE)

    assert (found.log, found.metadata_service_uri) == ("orders", URI)
    assert (found.starting, found.partition_bytes_max) == (EARLIEST, 128 << 20)


def test_the_option_names_another_cluster_than_the_environment() -> None:
    found = parse_read_options({"log": "orders", "metadataserviceuri": "zk://other/l"}, HERE)

    assert found.metadata_service_uri == "zk://other/l"


def test_keys_are_compared_without_case() -> None:
    found = parse_read_options({"LOG": "orders", "maxBytesPerPartition": "64k"}, HERE)

    assert (found.log, found.partition_bytes_max) == ("orders", 65536)


def test_all_defects_are_told_in_one_error() -> None:
    message = read_defects(minpartitions="0", maxrowsperpartition="many", ledger="7", log="orders")

    assert "option minPartitions: must be a whole number above 0; value='0'" in message
    assert "option maxRowsPerPartition: must be a whole number above 0; value='many'" in message
    assert "options log and ledger exclude each other" in message


def test_an_unknown_option_is_refused_with_the_nearest_valid_name() -> None:
    with pytest.raises(OptionUnknownError) as caught:
        parse_read_options({"log": "orders", "startingoffset": "earliest"}, HERE)

    message = str(as_source_error(caught.value))
    assert message.startswith("[BK_OPTION_UNKNOWN] unknown option startingoffset;")
    assert "did you mean startingOffsets?" in message


def test_an_option_like_none_of_ours_is_refused_with_the_list() -> None:
    with pytest.raises(OptionUnknownError, match="valid are metadataServiceUri, log, ledger"):
        parse_read_options({"log": "orders", "xyzzy": "1"}, HERE)


@pytest.mark.parametrize("name", sorted(KAFKA_HABITS))
def test_an_option_of_kafkas_is_refused_with_what_does_it_here(name: str) -> None:
    message = read_defects(log="orders", **{name: "1"})

    assert f"unknown option {name}, which is Kafka's: {KAFKA_HABITS[name]}" in message


def test_kafkas_names_for_limits_are_ours_too() -> None:
    found = parse_stream_read_options({"log": "orders", "maxOffsetsPerTrigger": "7"}, HERE)

    assert found.trigger_rows_max == 7


def test_one_option_under_two_names_is_refused() -> None:
    with pytest.raises(OptionsError, match="maxRowsPerTrigger and maxOffsetsPerTrigger are one"):
        parse_stream_read_options(
            {"log": "a", "maxOffsetsPerTrigger": "7", "maxRowsPerTrigger": "7"}, HERE
        )


def test_a_streams_option_in_a_batch_is_refused_and_the_other_way_round() -> None:
    message = read_defects(log="a", consumer="c")
    with pytest.raises(OptionsError) as caught:
        parse_stream_read_options({"log": "a", "endingOffsets": "latest"}, HERE)

    assert "option consumer is for a stream read, not a batch read" in message
    assert "option endingOffsets is for a batch read, not a stream read" in str(caught.value)


def test_a_transaction_of_a_stream_is_refused_for_the_stream_has_its_own() -> None:
    given = {"log": "a", "txnappid": "x", "txnversion": "1"}

    with pytest.raises(OptionsError, match="txnAppId is for a batch write, not a stream write"):
        parse_write_options(given, HERE, is_stream=True)


def test_a_schema_is_asked_for_before_anybody_knows_whether_it_is_a_stream() -> None:
    both = {"log": "a", "maxRowsPerTrigger": "7", "endingOffsets": "latest", "columns": "b"}

    assert parse_schema_options(both, HERE).columns == ("b",)


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse_stream_read_options({"log": "a"}, HERE).starting == LATEST
    assert parse_read_options({"log": "a"}, HERE).starting == EARLIEST


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"minRowsPerTrigger": "5", "maxRowsPerTrigger": "4"}, "must not be above"),
        ({"maxTriggerDelay": "1m"}, "option maxTriggerDelay needs minRowsPerTrigger"),
        ({"consumerTimeout": "1d"}, "option consumerTimeout needs consumer"),
        ({"consumer": "c", "consumerTimeout": "0s"}, "option consumerTimeout must be above 0"),
        ({"startingTimestampStrategy": "latest"}, "needs startingTimestamp"),
        (
            {"startingTimestamp": "1", "startingOffsets": "latest"},
            "startingOffsets and startingTimestamp exclude each other",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionsError, match=message):
        parse_stream_read_options({"log": "a", **given}, HERE)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
    ],
)
def test_times_are_milliseconds_or_iso_8601(text: str, ms: int) -> None:
    found = parse_read_options({"log": "a", "startingtimestamp": text}, HERE)

    assert found.starting_timestamp_ms == ms


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "1.5", "2023-13-01", "1969-01-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    assert "option startingTimestamp" in read_defects(log="a", startingtimestamp=text)


def test_sparks_own_keys_are_accepted() -> None:
    own = {
        "checkpointlocation": "/c",
        "queryname": "q",
        "owner": "me",
        "provider": "bookkeeper",
        "option.log": "orders",
    }

    assert parse_read_options({"log": "orders", **own}, HERE).log == "orders"


def test_options_of_the_other_direction_are_accepted_because_a_view_has_both() -> None:
    both = {"log": "orders", "entrybytes": "64k", "minpartitions": "3"}

    assert parse_read_options(both, HERE).partitions_min == 3
    assert parse_write_options(both, HERE).entry_bytes == 65536


def test_no_cluster_named_says_both_ways_to_name_one() -> None:
    with pytest.raises(OptionsError) as caught:
        parse_read_options({"log": "orders"}, {})

    message = str(caught.value)
    assert "metadataServiceUri" in message
    assert "BOOKKEEPER_METADATA_URI" in message


def test_nothing_named_to_read_is_refused_with_its_likely_reason() -> None:
    assert "CREATE TABLE" in read_defects()
    assert "nothing named" in read_defects(columns="a")
    assert "CREATE TABLE" not in read_defects(columns="a")


def test_a_log_and_another_path_are_refused() -> None:
    assert "name two logs; log=a path=b" in read_defects(log="a", path="b")


@pytest.mark.parametrize("name", ["a/b", "..", "", "x" * 256])
def test_what_cannot_name_a_log_is_refused(name: str) -> None:
    assert "log" in read_defects(log=name)


def test_several_paths_are_refused() -> None:
    assert "load() takes one log" in read_defects(paths='["a","b"]')


def test_ledgers_are_read_by_id() -> None:
    assert parse_read_options({"ledger": "7, 8,9"}, HERE).ledgers == (7, 8, 9)


@pytest.mark.parametrize("value", ["x", "-1", "7,7", "", "1" * 30])
def test_what_is_no_ledger_id_is_refused(value: str) -> None:
    assert "option ledger:" in read_defects(ledger=value)


def test_offsets_are_a_symbol_or_a_row_number() -> None:
    found = parse_read_options(
        {"log": "a", "startingoffsets": '{"log":5,"row":10}', "endingoffsets": '{"row": 20}'}, HERE
    )

    assert found.starting == Position("row", 10, 5)
    assert found.ending == Position("row", 20)


@pytest.mark.parametrize(
    "value", ["5", '{"row":-1}', '{"row":true}', "first", '{"row":1,"x":2}', "[1]", '{"log":1}']
)
def test_what_is_no_offset_is_refused(value: str) -> None:
    assert "option startingOffsets: must be earliest" in read_defects(
        log="a", startingoffsets=value
    )


def test_offsets_of_raw_ledgers_are_refused() -> None:
    assert "for logs, not for ledger=" in read_defects(ledger="7", startingoffsets='{"row":1}')


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("128k", 131072), ("64M", 64 << 20), ("2g", 2 << 30), ("1kb", 1024)],
)
def test_sizes_have_units_of_1024(text: str, size: int) -> None:
    found = parse_read_options({"log": "a", "maxbytesperpartition": text}, HERE)

    assert found.partition_bytes_max == size


@pytest.mark.parametrize("text", ["0", "-1", "1.5m", "m", "", "1t"])
def test_what_is_no_size_is_refused(text: str) -> None:
    assert "option maxBytesPerPartition" in read_defects(log="a", maxbytesperpartition=text)


def test_a_write_needs_a_log() -> None:
    with pytest.raises(OptionsError, match="a write needs a log"):
        parse_write_options({"ledger": "7"}, HERE)


def test_a_transaction_needs_id_and_version() -> None:
    with pytest.raises(OptionsError, match="txnAppId and txnVersion go together"):
        parse_write_options({"log": "a", "txnappid": "x"}, HERE)


def test_all_that_contradicts_each_other_in_a_write_is_told_at_once() -> None:
    given = {"log": "a", "entrybytes": "1", "ensemblesize": "2", "writequorum": "3"}
    with pytest.raises(OptionsError) as caught:
        parse_write_options({**given, "ackquorum": "4", "bookkeeper.client.zzz": "3"}, ELSEWHERE)

    message = str(caught.value)
    assert "option metadataServiceUri: not a metadata service URI: 'zk//x'" in message
    assert "option entryBytes: must lie between" in message
    assert "option ackQuorum must not be above writeQuorum" in message
    assert "option writeQuorum must not be above ensembleSize" in message
    assert "unknown option bookkeeper.client.zzz; settings are" in message


def test_quorums_that_are_not_neighbours_are_compared_too() -> None:
    with pytest.raises(OptionsError, match="option ackQuorum must not be above ensembleSize"):
        parse_write_options({"log": "a", "ensemblesize": "2", "ackquorum": "3"}, HERE)


def test_durations_have_units() -> None:
    found = parse_write_options({"log": "a", "jobtimeout": "2d"}, HERE)

    assert found.job_timeout_ms == 2 * 86_400_000
    assert found.deleted_ledger_retention_ms == 3_600_000


def test_a_format_that_is_none_is_refused() -> None:
    with pytest.raises(OptionsError, match="payloadFormat: must be one of arrow, avro, raw"):
        parse_write_options({"log": "a", "payloadformat": "orc"}, HERE)


def test_client_settings_are_passed_on() -> None:
    found = parse_write_options({"log": "a", "bookkeeper.client.readsInFlight": "8"}, HERE)

    assert found.client_settings == (("readsinflight", "8"),)


def test_a_password_stands_in_no_message_and_no_repr(tmp_path) -> None:  # type: ignore[no-untyped-def]
    secret = "very-secret"
    found = parse_read_options({"log": "a", "password": secret}, HERE)

    assert found.read_password() == secret.encode()
    assert secret not in repr(found)
    message = read_defects(log="a", password=secret, passwordfile=str(tmp_path / "p"))
    assert "exclude each other" in message
    assert secret not in message


def test_a_password_file_gives_its_first_line(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "secret"
    file.write_bytes(b"s3cret\nmore")

    found = parse_read_options({"log": "a", "passwordfile": str(file)}, HERE)

    assert found.read_password() == b"s3cret"


def test_a_missing_password_file_is_an_error_of_that_option(tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = parse_read_options({"log": "a", "passwordfile": str(tmp_path / "none")}, HERE)

    with pytest.raises(OptionsError, match="option passwordFile: No such file"):
        found.read_password()


def test_the_table_documents_every_option_once() -> None:
    lines = option_table().splitlines()

    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert sum(line.startswith(f"| `{option.name}` |") for line in lines) == 1
