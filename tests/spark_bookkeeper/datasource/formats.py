"""Every payload format mirrors the others: the same rows, written and read back in any of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_bookkeeper.datasource.write.plan import WritePlan
from spark_bookkeeper.log.format.epoch import Job, TaskMessage
from tests.spark_bookkeeper.datasource.rows import RAW, raw_batch
from tests.spark_bookkeeper.datasource.world import FakeSpark

EVERY_FORMAT = pytest.mark.parametrize("world", ["arrow", "avro", "raw"], indirect=True)
"""Plays a test once in each format."""


class MirroredSpark(FakeSpark):
    """Writes a test's rows in one format, and shows them as the test wrote them.

    A raw log has one value in each row: there it is the row's number, as text.
    """

    def __init__(self, payload_format: str) -> None:
        super().__init__()
        self.payload_format = payload_format

    @property
    def is_raw(self) -> bool:
        return self.payload_format == "raw"

    def plan(self, schema: StructType, *, is_overwrite: bool = False, **options: str) -> WritePlan:
        options = {"payloadformat": self.payload_format, **options}
        if self.is_raw and "id" in schema.names:
            schema = RAW
        return super().plan(schema, is_overwrite=is_overwrite, **options)

    def read_planned(self, *found: Any, **how: Any) -> pa.Table:
        table = super().read_planned(*found, **how)
        if not self.is_raw or not table.num_columns:
            return table
        return table.append_column("id", [[int(each) for each in table["value"].to_pylist()]])

    def _run(
        self, plan: WritePlan, job: Job, partition: int, batches: list[pa.RecordBatch]
    ) -> TaskMessage:
        if self.is_raw:
            batches = [
                raw_batch(*(b"%d" % each for each in rows["id"].to_pylist()))
                if "id" in rows.schema.names
                else rows
                for rows in batches
            ]
        return super()._run(plan, job, partition, batches)
