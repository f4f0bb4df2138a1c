"""The ``DataSource`` behind ``format("bookkeeper")``: options in, readers and writers out.

Pickled between Spark's processes, so it holds nothing but the options as given. Imports Arrow and
the client only when a method needs them.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from spark_bookkeeper.datasource.errors import source_errors
from spark_bookkeeper.datasource.options.parse import (
    parse_read_options,
    parse_schema_options,
    parse_stream_read_options,
    parse_write_options,
)


class BookKeeperSource(spark.DataSource):  # type: ignore[misc, unused-ignore]
    """One ``load()`` or ``save()``; every error it lets out is a reported one."""

    is_copy = False
    """Whether it was pickled: Spark asks a fresh one for the writer that goes to the tasks, and a
    copy for the one that commits."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.is_copy = True

    @classmethod
    def name(cls) -> str:
        """The name users write in ``format(…)``."""
        return "bookkeeper"

    @source_errors()
    def schema(self) -> StructType:
        """The columns of the log or ledgers, asked of the cluster."""
        from spark_bookkeeper.datasource.read.batch import read_schema

        return read_schema(parse_schema_options(self.options, os.environ))

    @source_errors()
    def reader(self, schema: StructType) -> spark.DataSourceReader:
        """A batch read of what is committed when it is planned."""
        from spark_bookkeeper.datasource.read.batch import open_batch_read

        return open_batch_read(parse_read_options(self.options, os.environ), schema)

    @source_errors()
    def writer(self, schema: StructType, overwrite: bool) -> spark.DataSourceWriter:
        """A batch write, planned: the log exists, the schema fits, an epoch is drawn."""
        from spark_bookkeeper.datasource.write.batch import plan_batch_write

        options = parse_write_options(self.options, os.environ)
        return plan_batch_write(options, schema, is_overwrite=overwrite)

    @source_errors()
    def streamReader(self, schema: StructType) -> spark.DataSourceStreamReader:  # noqa: N802
        """A streaming read of what is committed as it comes."""
        from spark_bookkeeper.datasource.read.stream import open_stream_read

        return open_stream_read(parse_stream_read_options(self.options, os.environ), schema)

    @source_errors()
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> spark.DataSourceStreamWriter:
        """A micro-batch's writer, planned unless Spark made it for a commit (see ``is_copy``)."""
        from spark_bookkeeper.datasource.write.stream import BookKeeperStreamWriter

        options = parse_write_options(self.options, os.environ, is_stream=True)
        writer = BookKeeperStreamWriter(options, schema, is_overwrite=overwrite)
        if not self.is_copy:
            writer.plan()
        return writer
