"""What a log's metadata says, as documents with stable keys: for ``logs list``, ``show``, the demo.

Reads the metadata store only, never a ledger.
"""

from __future__ import annotations

from typing import Any

from metadata.connect import connect
from metadata.store import MetadataStore
from spark_bookkeeper.datasource.arrow_types import parse_log_schema
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.nodes import LogNodes
from spark_bookkeeper.log.paths import LogPaths
from spark_bookkeeper.log.reader import LogView
from spark_bookkeeper.log.serde import parse_name


async def list_logs(uri: str) -> list[dict[str, Any]]:
    """A summary of every log of the cluster, sorted by name."""
    store, root = await connect(uri)
    try:
        paths = LogPaths(root)
        found = []
        for name in await store.children(paths.names) or []:
            try:
                log_id = await _log_id(store, paths, name)
                head = (await LogView(store, paths, log_id, log=name).head()).head
            except NoSuchLogError:
                continue  # deleted since it was listed
            newest = head.ranges + head.chunks
            found.append(
                {
                    "log": name,
                    "log_id": log_id,
                    "base_row": head.base_row,
                    "next_row": head.next_row,
                    "rows": head.next_row - head.base_row,
                    "size_bytes": sum(each.size_bytes for each in newest),
                    "last_commit_ms": head.last_commit_ms,
                }
            )
        return found
    finally:
        await store.close()


async def describe_log(uri: str, name: str) -> dict[str, Any]:
    """Everything about one log: settings, schema, rows, ranges and transactions.

    Raises:
        NoSuchLogError: there is none of this name.
    """
    store, root = await connect(uri)
    try:
        paths = LogPaths(root)
        log_id = await _log_id(store, paths, name)
        nodes = LogNodes(store, paths, log_id, name)
        view = await LogView(store, paths, log_id, log=name).ranges()
        schema = await nodes.schema(view.head.schema_id)
        settings = view.head.settings
        return {
            "log": name,
            "log_id": log_id,
            "base_row": view.head.base_row,
            "next_row": view.head.next_row,
            "rows": view.to_row - view.from_row,
            "size_bytes": sum(each.size_bytes for each in view.ranges),
            "last_commit_ms": view.head.last_commit_ms,
            "settings": {
                "ensemble_size": settings.ensemble_size,
                "write_quorum": settings.write_quorum,
                "ack_quorum": settings.ack_quorum,
                "digest_type": settings.digest_type.name,
                "payload_format": settings.payload_format,
                "compression": settings.compression,
                "entry_bytes": settings.entry_bytes,
            },
            "schema": _columns(schema),
            "ranges": [
                {
                    "ledger_id": each.ledger_id,
                    "first_entry": each.first_entry,
                    "last_entry": each.last_entry,
                    "first_row": each.first_row,
                    "rows": each.rows,
                    "size_bytes": each.size_bytes,
                    "commit_ms": each.commit_ms,
                }
                for each in view.ranges
            ],
            "transactions": {app: txn.version for app, txn in (await nodes.txns()).items()},
        }
    finally:
        await store.close()


async def _log_id(store: MetadataStore, paths: LogPaths, name: str) -> int:
    path = paths.name(name)
    node = await store.get(path)
    if node is None:
        raise NoSuchLogError(name)
    return parse_name(path, node.value)


def _columns(schema: bytes | None) -> list[dict[str, str]]:
    if not schema:
        return []
    fields = parse_log_schema(schema).spark.fields
    return [{"column": each.name, "type": each.dataType.simpleString()} for each in fields]
