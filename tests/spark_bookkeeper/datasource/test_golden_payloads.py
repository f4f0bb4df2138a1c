"""Payloads of format 1, as released: they must be readable for ever."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_bookkeeper.datasource.payload.avro_schema import avro_json
from spark_bookkeeper.datasource.payload.codec import decoder_of
from spark_bookkeeper.datasource.payload.envelope import EntryKind, Envelope
from spark_bookkeeper.datasource.payload.footer import parse_footer
from spark_bookkeeper.datasource.schema import parse_log_schema

GOLDEN = Path("tests/golden/v1/payload")
SPARK_SCHEMA = "struct<id:bigint,name:string,price:decimal(9,2),at:timestamp,tags:array<string>>"
ROWS = {
    "id": [1, 2, None],
    "name": ["one", None, "drei"],
    "price": [Decimal("1.50"), Decimal("-2.00"), None],
    "at": [0, 1_700_000_000_000_001, None],
    "tags": [["a", None], [], None],
}


def golden(repository: Path, name: str) -> bytes:
    return (repository / GOLDEN / name).read_bytes()


def test_a_schema_of_format_1_is_understood(repository: Path) -> None:
    found = parse_log_schema(golden(repository, "schema.json"))

    assert isinstance(found.spark, StructType)
    assert found.spark.simpleString() == SPARK_SCHEMA
    assert found.arrow.names == list(ROWS)


@pytest.mark.parametrize("name", ["arrow_zstd", "arrow_lz4", "arrow_none", "avro"])
def test_an_entry_of_format_1_gives_its_rows(repository: Path, name: str) -> None:
    schema = parse_log_schema(golden(repository, "schema.json"))
    payload_format = name.partition("_")[0]
    decoder = decoder_of(payload_format, schema.arrow)

    envelope, found = decoder.decode(1, 0, golden(repository, f"{name}.bin"))

    assert envelope == Envelope(EntryKind[payload_format.upper()], 0, 7, 3, 1_700_000_000_000)
    shown = found.set_column(3, "at", found.column("at").cast(pa.int64()))
    assert shown.to_pydict() == ROWS


def test_the_avro_schema_of_a_log_stays_what_it_was(repository: Path) -> None:
    schema = parse_log_schema(golden(repository, "schema.json"))

    assert avro_json(schema.arrow) == golden(repository, "avro_schema.json")


def test_a_footer_of_format_1_is_understood(repository: Path) -> None:
    found = parse_footer(1, 2, golden(repository, "footer.bin"))

    assert found is not None
    assert (found.first_rows, found.rows) == ([0, 3], 6)
    assert found.bounds.column("min_0").to_pylist() == [1, 1]
    assert found.bounds.column("max_1").to_pylist() == ["one", "one"]
    assert found.bounds.column("nulls_2").to_pylist() == [1, 1]
