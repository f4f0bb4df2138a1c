"""What a log of plain values is created with."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, StructField, StructType

from spark_bookkeeper.datasource.schema import RAW_COLUMN, log_schema_of, parse_log_schema
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.format.raw import RAW_SCHEMA, settings_and_schema


def test_the_data_source_reads_plain_values_as_one_binary_column() -> None:
    expected = log_schema_of(StructType([StructField(RAW_COLUMN, BinaryType())]))

    assert parse_log_schema(RAW_SCHEMA) == expected


def test_a_log_is_of_plain_values_unless_settings_or_a_schema_say_otherwise() -> None:
    raw = LogSettings(payload_format="raw")

    assert settings_and_schema(None, b"") == (raw, RAW_SCHEMA)
    assert settings_and_schema(raw, b"") == (raw, RAW_SCHEMA)
    assert settings_and_schema(raw, b"mine") == (raw, b"mine")
    assert settings_and_schema(None, b"mine") == (LogSettings(), b"mine")
    assert settings_and_schema(LogSettings(), b"") == (LogSettings(), b"")
