"""Record batches for the data source's tests: all of Spark's types, and TPC-H-like rows."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from spark_bookkeeper.datasource.payload.arrow import ArrowEncoder


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


SCHEMA = columns(id=LongType(), name=StringType())
RAW = columns(value=BinaryType())


def batch(first: int, count: int) -> pa.RecordBatch:
    ids = list(range(first, first + count))
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})


def ids(table: pa.Table) -> list[int]:
    return table.column("id").to_pylist() if table.num_columns else []


def raw_batch(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def payload_of(
    rows: pa.RecordBatch, compression: str = "zstd", *, schema_id: int = 0, first_row: int = 0
) -> bytes:
    """An entry of the rows."""
    return ArrowEncoder(rows.schema, schema_id, compression).encode(rows, first_row, 0)


UTC = datetime.UTC


def everything(rows: int, seed: int = 1) -> pa.RecordBatch:
    """Every type Spark sends, with nulls, nested values and extremes."""
    draw = random.Random(seed)
    base = datetime.datetime(2024, 2, 29, 12, 30, 1, 123456, UTC).replace(tzinfo=None)

    def column(make: Callable[[int], Any], of: pa.DataType) -> pa.Array:
        return pa.array([None if draw.random() < 0.1 else make(i) for i in range(rows)], of)

    return pa.record_batch(
        {
            "flag": column(lambda i: i % 3 == 0, pa.bool_()),
            "tiny": column(lambda i: i % 256 - 128, pa.int8()),
            "small": column(lambda i: i - 7, pa.int16()),
            "medium": column(lambda i: -i, pa.int32()),
            "large": column(lambda i: (1 << 62) - i, pa.int64()),
            "single": column(lambda i: i / 4, pa.float32()),
            "double": column(lambda i: i / 3, pa.float64()),
            "price": column(lambda i: decimal.Decimal(i) / 100, pa.decimal128(12, 2)),
            "day": column(lambda i: base.date() + datetime.timedelta(i), pa.date32()),
            "at": column(
                lambda i: base.replace(tzinfo=UTC) + datetime.timedelta(seconds=i),
                pa.timestamp("us", "UTC"),
            ),
            "local": column(lambda i: base + datetime.timedelta(hours=i), pa.timestamp("us")),
            "text": column(lambda i: f"grüße {i}", pa.string()),
            "octets": column(lambda i: bytes([i % 256]) * (i % 5), pa.binary()),
            "nothing": pa.nulls(rows),
            "items": column(
                lambda i: list(range(i % 4)), pa.list_(pa.field("element", pa.int32()))
            ),
            "pairs": column(lambda i: [(f"k{i}", i)], pa.map_(pa.string(), pa.int64())),
            "nested": column(
                lambda i: {"a": i, "b": [{"c": str(i)}, None]},
                pa.struct(
                    [
                        ("a", pa.int32()),
                        ("b", pa.list_(pa.field("element", pa.struct([("c", pa.string())])))),
                    ]
                ),
            ),
        }
    )


def lineitem(rows: int, seed: int = 1) -> pa.RecordBatch:
    """Rows that compress about as TPC-H's ``lineitem`` does."""
    draw = np.random.default_rng(seed)
    words = np.array(
        ["carefully", "final", "deposits", "sleep", "quickly", "ironic", "bold", "pad"]
    )

    def money(low: int, high: int) -> pa.Array:
        cents = pa.array(draw.integers(low, high, rows)).cast(pa.decimal128(19, 0))
        return cents.cast(pa.decimal128(21, 2)).cast(pa.decimal128(15, 2))

    def day() -> pa.Array:
        return pa.array(draw.integers(8000, 10500, rows).astype("i4")).cast(pa.date32())

    def pick(*values: str) -> pa.Array:
        return pa.array(np.array(values)[draw.integers(0, len(values), rows)])

    return pa.record_batch(
        {
            "l_orderkey": pa.array(np.sort(draw.integers(0, 6_000_000, rows))),
            "l_partkey": pa.array(draw.integers(0, 200_000, rows)),
            "l_suppkey": pa.array(draw.integers(0, 10_000, rows)),
            "l_linenumber": pa.array(draw.integers(1, 8, rows).astype("i4")),
            "l_quantity": money(1, 50),
            "l_extendedprice": money(100, 100_000),
            "l_discount": money(0, 10),
            "l_tax": money(0, 8),
            "l_returnflag": pick("A", "N", "R"),
            "l_linestatus": pick("O", "F"),
            "l_shipdate": day(),
            "l_commitdate": day(),
            "l_receiptdate": day(),
            "l_shipinstruct": pick("DELIVER IN PERSON", "NONE", "COLLECT COD"),
            "l_shipmode": pick("AIR", "SHIP", "TRUCK"),
            "l_comment": pa.array(
                [" ".join(words[four]) for four in draw.integers(0, 8, (rows, 4))]
            ),
        }
    )
