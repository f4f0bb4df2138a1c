"""SQL and the writers that go by tables: what works, and in Spark's own words what does not.

The README and docs/spark.md quote the errors here. Spark's session catalog keeps a table's format
and columns but none of its options, so a table of ``USING bookkeeper`` names no log by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_bookkeeper import LocalCluster
from tests.spark.conftest import PUSHDOWN, Logs, conf

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLE = "a_table"


class Sql(Logs):
    """Statements about one log; ``{options}`` and ``{with_}`` stand for its name and cluster."""

    def run(self, statement: str) -> DataFrame:
        options = ", ".join(f"{key} '{value}'" for key, value in self.options().items())
        with_ = ", ".join(f"{key}='{value}'" for key, value in self.options().items())
        return self.spark.sql(statement.format(options=f"({options})", with_=with_, table=TABLE))


@pytest.fixture
def sql(spark: SparkSession, cluster: LocalCluster, log: str) -> Iterator[Sql]:
    """A log of the ids 0, 1, 2 named after the test, and a table of its columns without options."""
    made = Sql(spark, cluster.metadata_service_uri, log)
    made.write(range(3))
    spark.sql(f"CREATE TABLE {TABLE} (id bigint) USING bookkeeper")
    yield made
    spark.sql(f"DROP TABLE {TABLE}")


def test_a_temporary_view_is_appended_to_and_overwritten(sql: Sql) -> None:
    sql.run("CREATE OR REPLACE TEMPORARY VIEW a_view USING bookkeeper OPTIONS {options}")

    sql.run("INSERT INTO a_view SELECT id FROM range(3, 5)")
    assert sql.run("SELECT count(*), sum(id) FROM a_view").collect()[0] == (5, 10)
    sql.run("INSERT INTO a_view VALUES (7)")
    assert sql.ids() == [0, 1, 2, 3, 4, 7]
    # The view itself stays as its first query found it; its own rows are no exception.
    assert sql.run("SELECT count(*), sum(id) FROM a_view").collect()[0] == (5, 10)
    sql.run("INSERT OVERWRITE a_view SELECT id FROM range(2)")

    assert sql.ids() == [0, 1]


def test_a_temporary_view_stays_as_it_was_at_its_first_query(sql: Sql) -> None:
    """Spark keeps the plan of a Python source; a filter that is pushed down makes it plan again."""
    sql.run("CREATE OR REPLACE TEMPORARY VIEW a_view USING bookkeeper OPTIONS {options}")
    assert sql.spark.table("a_view").count() == 3

    sql.write(range(3, 5))
    assert sql.spark.table("a_view").count() == 3
    sql.run("REFRESH TABLE a_view")
    assert sql.run("SELECT id FROM a_view WHERE id >= 0").count() == 3
    with conf(sql.spark, PUSHDOWN, "true"):
        assert sql.spark.table("a_view").count() == 3
        assert sql.run("SELECT id FROM a_view WHERE id >= 0").count() == 5

    assert sql.ids() == [0, 1, 2, 3, 4]


def test_a_dataframe_and_a_view_over_it_stay_as_they_were_at_their_first_action(sql: Sql) -> None:
    frame, loaded_again = sql.read(), sql.read()
    table = sql.spark.read.options(**sql.options()).table(TABLE)
    frame.createOrReplaceTempView("a_view")
    assert (frame.count(), table.count()) == (3, 3)

    sql.write(range(3, 5))

    assert (frame.count(), sql.spark.table("a_view").count(), table.count()) == (3, 3, 3)
    assert loaded_again.count() == 5, "a DataFrame without an action so far is not planned yet"
    assert sql.read().count() == 5


@pytest.mark.parametrize("kind", ["VIEW", "TEMPORARY VIEW"])
def test_a_view_of_a_select_with_sees_what_comes_later(sql: Sql, kind: str) -> None:
    sql.run(
        f"CREATE OR REPLACE {kind} a_following_view AS SELECT * FROM {{table}} WITH ({{with_}})"
    )
    try:
        assert sql.spark.table("a_following_view").count() == 3

        sql.write(range(3, 5))
        assert sql.spark.table("a_following_view").count() == 5
        sql.write(range(1), mode="overwrite")

        assert sql.run("SELECT id FROM a_following_view WHERE id >= 0").count() == 1
    finally:
        sql.run("DROP VIEW a_following_view")


def test_select_with_and_insert_with_name_the_log_in_the_statement(sql: Sql) -> None:
    sql.run("INSERT INTO {table} WITH ({with_}) SELECT id FROM range(3, 5)")

    found = sql.run("SELECT id FROM {table} WITH ({with_}, startingOffsets='{{\"row\":1}}')")

    assert sorted(row.id for row in found.collect()) == [1, 2, 3, 4]
    sql.run("INSERT OVERWRITE {table} WITH ({with_}) SELECT id FROM range(9)")
    assert sql.ids() == list(range(9))


def test_with_adds_nothing_to_a_temporary_view(sql: Sql) -> None:
    """Spark resolves the view first and drops the clause without a word."""
    sql.run("CREATE OR REPLACE TEMPORARY VIEW a_view USING bookkeeper OPTIONS {options}")

    assert sql.run("SELECT id FROM a_view WITH (startingOffsets='latest')").count() == 3
    assert sql.run("SELECT id FROM {table} WITH ({with_}, startingOffsets='latest')").count() == 0


def test_table_writers_pass_their_options_on(sql: Sql) -> None:
    two = sql.spark.range(3, 5)

    two.writeTo(TABLE).options(**sql.options()).append()
    assert sql.ids() == [0, 1, 2, 3, 4]
    assert sql.spark.read.options(**sql.options()).table(TABLE).count() == 5
    two.write.format("bookkeeper").mode("append").options(**sql.options()).saveAsTable(TABLE)
    assert sql.ids() == [0, 1, 2, 3, 3, 4, 4]
    two.write.format("bookkeeper").options(**sql.options()).insertInto(TABLE)
    assert len(sql.ids()) == 9
    two.writeTo(TABLE).options(**sql.options()).overwrite(sf.lit(True))

    assert sql.ids() == [3, 4]


LOST = r"(?s)BK_OPTION_INVALID.*Spark drops the OPTIONS of a CREATE TABLE"


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("SELECT * FROM {table}", LOST),
        ("INSERT INTO {table} VALUES (1)", LOST),
        ("SELECT * FROM bookkeeper.`a-log`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"),
        ("DELETE FROM {table} WHERE id = 1", "Table does not support deletes: bookkeeper"),
        ("TRUNCATE TABLE {table}", "Table does not support truncates: bookkeeper"),
        ("INSERT INTO {table} WITH ({with_}) PARTITION (id = 1) VALUES (1)", "PARTITION"),
    ],
)
def test_statements_that_spark_refuses(sql: Sql, statement: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        sql.run(statement).collect()

    assert sql.ids() == [0, 1, 2]


def test_the_options_of_create_table_do_not_arrive(sql: Sql) -> None:
    sql.run("DROP TABLE IF EXISTS with_options")
    sql.run("CREATE TABLE with_options USING bookkeeper OPTIONS {options}")
    try:
        assert sql.spark.table("with_options").columns == ["id"]
        with pytest.raises(AnalysisException, match=LOST):
            sql.spark.table("with_options").count()
        assert sql.spark.read.options(**sql.options()).table("with_options").count() == 3
    finally:
        sql.run("DROP TABLE with_options")


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda frame: frame.mode("append").partitionBy("id").save(), "partitioning"),
        (lambda frame: frame.mode("append").bucketBy(2, "id").save(), "bucketBy"),
        (lambda frame: frame.mode("ignore").save(), '"Ignore" mode'),
        (lambda frame: frame.mode("errorifexists").save(), '"ErrorIfExists" mode'),
    ],
)
def test_writers_that_spark_refuses(sql: Sql, write: Callable[[object], None], says: str) -> None:
    writer = sql.spark.range(1).write.format("bookkeeper").options(**sql.options())

    with pytest.raises((AnalysisException, IllegalArgumentException), match=says):
        write(writer)

    assert sql.ids() == [0, 1, 2]


def test_insert_into_without_a_format_loses_its_options(sql: Sql) -> None:
    with pytest.raises(AnalysisException, match=LOST):
        sql.spark.range(1).write.options(**sql.options()).insertInto(TABLE)

    assert sql.ids() == [0, 1, 2]


def test_overwriting_by_partition_is_refused(sql: Sql) -> None:
    writer = sql.spark.range(1).writeTo(TABLE).options(**sql.options())

    with pytest.raises(AnalysisException, match=r"UNSUPPORTED_FEATURE\.TABLE_OPERATION"):
        writer.overwritePartitions()
