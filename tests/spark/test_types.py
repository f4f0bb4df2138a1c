"""Every type Spark has: row for row what Parquet gives back, or refused by name before any task."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_bookkeeper import LocalCluster
from tests.spark.conftest import Logs, conf, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

POINT = "X'0101000000000000000000f03f0000000000000040'"


@dataclass(frozen=True)
class Kind:
    """A type by an expression of it."""

    name: str
    value: str
    formats: tuple[str, ...] = ("arrow", "avro")
    """Payload formats that store it."""
    refused: str = ""
    """What the refusal says in the others."""


NO_KEY = "BK_TYPE_UNSUPPORTED.*col.*keys of an Avro map are strings"
KINDS = (
    Kind("boolean", "true"),
    Kind("tinyint", "cast(-128 AS tinyint)"),
    Kind("smallint", "cast(32767 AS smallint)"),
    Kind("int", "-2147483648"),
    Kind("bigint", "9223372036854775807L"),
    Kind("float", "cast('NaN' AS float)"),
    Kind("double", "cast('-Infinity' AS double)"),
    Kind("decimal(5,2)", "cast(-999.99 AS decimal(5,2))"),
    Kind("decimal(38,18)", "cast('99999999999999999999.999999999999999999' AS decimal(38,18))"),
    Kind("date", "DATE'0001-01-01'"),
    Kind("timestamp", "TIMESTAMP'9999-12-31 23:59:59.999999'"),
    Kind("timestamp_ntz", "TIMESTAMP_NTZ'1582-10-10 00:00:00.000001'"),
    Kind("time(0)", "cast('12:30:01' AS time(0))"),
    Kind("time(6)", "TIME'23:59:59.999999'"),
    Kind("interval day to second", "INTERVAL '-1 02:03:04.000005' DAY TO SECOND"),
    Kind("interval hour", "INTERVAL '5' HOUR"),
    Kind("string", "'Grüße \U0001f642'"),
    Kind("string collate UTF8_LCASE", "'x' COLLATE UTF8_LCASE"),
    Kind("binary", "X'00ff'"),
    Kind("void", "null"),
    Kind("variant", "parse_json('{\"a\":[1,null]}')"),
    Kind("array<variant>", "array(parse_json('1'), null)"),
    Kind("struct<v:variant>", "named_struct('v', parse_json('[1]'))"),
    Kind("array<int>", "array(1, null)"),
    Kind("array<array<void>>", "array(array(null), null)"),
    Kind("map<string,array<int>>", "map('k', array(1), '', null)"),
    Kind("struct<>", "named_struct()"),
    Kind("struct<a b:int,é:string>", "named_struct('a b', 1, 'é', 'x')"),
    Kind("map<int,string>", "map(1, 'x')", ("arrow",), NO_KEY),
    Kind("map<struct<a:int>,date>", "map(named_struct('a', 1), date(null))", ("arrow",), NO_KEY),
    Kind("interval year to month", "INTERVAL '1-2' YEAR TO MONTH", (), "BK_TYPE_UNSUPPORTED.*col"),
    Kind("interval", "make_interval(1, 2)", (), 'Cannot use "INTERVAL" type'),
    Kind("geometry(0)", f"st_geomfromwkb({POINT})"),
    Kind("geography(4326)", f"st_geogfromwkb({POINT})"),
)
NOT_IN_PARQUET = ("void", "array<array<void>>", "struct<>", "interval hour")
"""Parquet files cannot hold them, or forget their fields: compared with the frame itself."""
SHOWN = {
    "geometry(0)": "hex(st_asbinary({}))",
    "geography(4326)": "hex(st_asbinary({}))",
    "void": "to_json(named_struct('col', {}))",
    "array<array<void>>": "to_json(named_struct('col', {}))",
    "struct<>": "to_json(named_struct('col', {}))",
}
"""How values are compared that have no text of their own."""
FORMATS = ("arrow", "avro")


EVERY_TYPE = """
    nothing void, flag boolean, tiny tinyint, small smallint, number int, big bigint, single float,
    double double, price decimal(38,9), day date, at timestamp, local timestamp_ntz, text string,
    bytes binary, list array<int>, lists array<array<string>>, map map<string,bigint>,
    nested struct<a:bigint,b:array<struct<c:date>>>
"""
FULL = (
    None,
    True,
    -128,
    32767,
    -(2**31),
    2**63 - 1,
    1.5,
    -2.5e300,
    Decimal("12345678901234567890.123456789"),
    dt.date(1582, 10, 15),
    dt.datetime(2024, 2, 29, 12, 30, 1, 123456, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001  a zoneless type
    "Grüße \U0001f642 \0",
    b"\x00\xff",
    [1, None, 3],
    [["a"], [], None],
    {"k": 1, "": None},
    (7, [(dt.date(2020, 1, 1),), None]),
)
EMPTY = (None,) * len(FULL)


def types_table() -> str:
    """The table of the documentation, as Markdown."""
    lines = ["| type | `arrow` | `avro` |", "|---|---|---|"]
    for kind in KINDS:
        marks = " | ".join("yes" if name in kind.formats else "no" for name in FORMATS)
        lines.append(f"| `{kind.name}` | {marks} |")
    return "\n".join(lines)


def test_the_documented_types_are_those_compared_here(repository: Path) -> None:
    text = (repository / "docs/spark.md").read_text(encoding="utf-8")

    (table,) = re.findall(r"<!-- types -->\n(.*?)\n<!-- /types -->", text, re.DOTALL)

    assert table == types_table()


@pytest.fixture(scope="module")
def _times_of_day(spark: SparkSession) -> Iterator[None]:
    with conf(spark, "spark.sql.timeType.enabled", "true"):
        yield


def frame_of(spark: SparkSession, kinds: Iterable[Kind]) -> DataFrame:
    """Three rows of a column for each kind, the second all null."""
    columns = [f"if(id = 1, null, {kind.value}) AS col{KINDS.index(kind)}" for kind in kinds]
    return spark.range(3).selectExpr("id", *columns)


def shown(frame: DataFrame) -> dict[str, list[Any]]:
    """The values of every column as texts, by its name, in order of ``id``."""
    texts = []
    for kind in KINDS:
        name = f"col{KINDS.index(kind)}"
        if name in frame.columns:
            text = SHOWN.get(kind.name, "cast({} AS string)").format(name)
            texts.append(f"array({text}, cast({name} IS NULL AS string)) AS {name}")
    found = frame.orderBy("id").selectExpr(*texts).collect()
    return {name: [row[name] for row in found] for name in found[0].asDict()}


@pytest.fixture(scope="module")
def stored(
    spark: SparkSession,
    cluster: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
    _times_of_day: None,
) -> dict[str, dict[str, list[Any]]]:
    """What each payload format, and Parquet, gives back of every kind it stores."""
    found = {}
    for payload_format in FORMATS:
        frame = frame_of(spark, [kind for kind in KINDS if payload_format in kind.formats])
        logs = Logs(spark, cluster.metadata_service_uri, f"kinds-{payload_format}")
        logs.write(frame, payloadFormat=payload_format)
        back = logs.read()
        assert back.schema.simpleString() == frame.schema.simpleString()
        found[payload_format] = shown(back)
    storable = [kind for kind in KINDS if kind.formats]
    frame = frame_of(spark, [kind for kind in storable if kind.name not in NOT_IN_PARQUET])
    path = str(tmp_path_factory.mktemp("twin") / "parquet")
    frame.write.parquet(path)
    rest = frame_of(spark, [kind for kind in storable if kind.name in NOT_IN_PARQUET])
    found["parquet"] = {**shown(spark.read.parquet(path)), **shown(rest)}
    return found


@pytest.mark.parametrize("payload_format", ["arrow", pytest.param("avro", marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_type_is_what_parquet_makes_of_it_or_refused_by_name(
    logs: Logs,
    spark: SparkSession,
    stored: dict[str, dict[str, list[Any]]],
    kind: Kind,
    payload_format: str,
) -> None:
    name = f"col{KINDS.index(kind)}"
    frame = frame_of(spark, [kind])
    assert frame.schema[name].dataType.simpleString() == kind.name

    if payload_format in kind.formats:
        assert stored[payload_format][name] == stored["parquet"][name]
        assert [absent for _, absent in stored[payload_format][name]][1] == "true"
        return
    with pytest.raises(Exception, match=f"(?s){kind.refused}"):
        logs.write(frame, payloadFormat=payload_format)
    with pytest.raises(Exception, match="BK_NO_SUCH_LOG"):
        logs.read()


@pytest.mark.parametrize("payload_format", FORMATS)
def test_every_type_at_once_comes_back_row_for_row(
    logs: Logs, spark: SparkSession, payload_format: str
) -> None:
    frame = spark.createDataFrame([FULL, EMPTY, FULL], EVERY_TYPE)

    logs.write(frame, payloadFormat=payload_format)

    back = logs.read()
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert rows(back) == rows(frame)
    assert rows(logs.read(columns="nested,price")) == rows(frame.select("nested", "price"))


@pytest.mark.parametrize("kind", ["char(5)", "varchar(5)"])
def test_texts_of_a_length_are_strings(logs: Logs, spark: SparkSession, kind: str) -> None:
    frame = spark.sql(f"SELECT cast('ab' AS {kind}) AS col")

    logs.write(frame)

    back = logs.read()
    assert back.dtypes == frame.dtypes
    assert rows(back) == rows(frame)


@pytest.mark.parametrize("payload_format", FORMATS)
def test_columns_are_added_by_the_write_that_brings_them(
    logs: Logs, spark: SparkSession, payload_format: str
) -> None:
    narrow = spark.range(3).selectExpr("id", "named_struct('x', id) AS s")
    logs.write(narrow, payloadFormat=payload_format)
    wider = spark.range(3, 5).selectExpr(
        "parse_json('7') AS v", "named_struct('y', 'new', 'x', id) AS s", "id"
    )
    with pytest.raises(Exception, match=r"(?s)BK_SCHEMA_MISMATCH.*v: is variant"):
        logs.write(wider)

    logs.write(wider, mergeSchema=True)
    logs.write(range(5, 6), mergeSchema=True)

    back = logs.read()
    assert back.schema.simpleString() == ("struct<id:bigint,s:struct<x:bigint,y:string>,v:variant>")
    assert rows(back.selectExpr("id", "s.x", "s.y", "cast(v AS int)")) == [
        "Row(id=0, x=0, y=None, v=None)",
        "Row(id=1, x=1, y=None, v=None)",
        "Row(id=2, x=2, y=None, v=None)",
        "Row(id=3, x=3, y='new', v=7)",
        "Row(id=4, x=4, y='new', v=7)",
        "Row(id=5, x=None, y=None, v=None)",
    ]
    assert back.where("s.y IS NOT NULL AND id >= 4").count() == 1


def test_the_documented_code_reads_avro_entries_without_spark(
    logs: Logs,
    spark: SparkSession,
    cluster: LocalCluster,
    repository: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    frame = spark.range(3).selectExpr("id", "cast(id / 2 AS decimal(5,2)) AS `a price`")
    logs.write(frame.coalesce(1), payloadFormat="avro")
    text = (repository / "docs/spark.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import io\n.*?)```", text, re.DOTALL)
    code = code.replace("zk+hierarchical://127.0.0.1:2181/ledgers", cluster.metadata_service_uri)
    capsys.readouterr()

    exec(code.replace('"orders"', repr(logs.log)), {})

    assert capsys.readouterr().out.splitlines() == [
        f"{{'id': {n}, 'a_u20_price': Decimal('{n / 2:.2f}')}}" for n in range(3)
    ]
