"""Makes Spark find ``format("bookkeeper")`` without registration: it imports every ``pyspark_*``.

One such module that fails at import switches off every Python data source on the machine, so this
one imports nothing but PySpark's own class, and whatever is missing is reported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc, unused-ignore]
    """``bookkeeper``: logs and ledgers as tables; all work is done by the class it stands for."""

    _is_copy = False

    @classmethod
    def name(cls) -> str:
        """The name users write in ``format(…)``."""
        return "bookkeeper"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Spark plans a stream's write with a fresh source and commits with a pickled one.
        self._is_copy = True

    def _source(self) -> DataSource:
        from spark_bookkeeper.datasource.source import BookKeeperSource

        source = BookKeeperSource(self.options)
        source.is_copy = self._is_copy
        return source

    def schema(self) -> StructType | str:
        """The columns of the log or ledgers that the options name."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return self._source().reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write, planned."""
        return self._source().writer(schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read."""
        return self._source().streamReader(schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A streaming write."""
        return self._source().streamWriter(schema, overwrite)
