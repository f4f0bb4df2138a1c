"""Logs of plain values: one entry is one row, its payload the value, byte for byte.

Such a log is what writers outside Spark append to. There is no envelope round a value, so that any
BookKeeper consumer reads what was written, and none is needed: the row of an entry follows from
where its ledger begins, and its time is that of its range. Spark reads the log as one binary column
``value``. Logs of other payload formats hold many rows in an entry; they are Spark's alone to write.
"""

from __future__ import annotations

from spark_bookkeeper.log.errors import LogPayloadError
from spark_bookkeeper.log.format.model import LogHead, LogSettings

RAW = "raw"
# Spelt out, because making it takes Arrow, which this layer does without; a test compares it.
RAW_SCHEMA = (
    b'{"arrow":"'
    b"/////3AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAEAAAAUAAAA"
    b"EAAUAAgABgAHAAwAAAAQABAAAAAAAAEEEAAAABwAAAAEAAAAAAAAAAUAAAB2YWx1ZQAAAAQABAAEAAAA"
    b'",'
    b'"spark":{"fields":[{"metadata":{},"name":"value","nullable":true,"type":"binary"}],'
    b'"type":"struct"},"version":1}'
)
"""The schema a log of plain values is created with: as the data source encodes one column
``value`` of binary."""


def settings_and_schema(settings: LogSettings | None, schema: bytes) -> tuple[LogSettings, bytes]:
    """What a log is created with: of plain values unless a schema or settings say otherwise."""
    chosen = settings or (LogSettings() if schema else LogSettings(payload_format=RAW))
    if not schema and chosen.payload_format == RAW:
        return chosen, RAW_SCHEMA
    return chosen, schema


def require_raw(log: str, head: LogHead) -> None:
    """Refuse a log whose entries are not plain values, one row each.

    Raises:
        LogPayloadError: the log has another payload format.
    """
    if head.settings.payload_format != RAW:
        raise LogPayloadError(log, head.settings.payload_format)
