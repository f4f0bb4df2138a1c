"""What a log's metadata says, as documents with stable keys: for ``bookkeeper logs`` and the demo.

Reads the metadata store only, never a ledger.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.foundation.bounded import each
from spark_bookkeeper.admin.replication import READS_MAX, describe_short_ledgers
from spark_bookkeeper.datasource.options.model import TargetOptions, WriteOptions
from spark_bookkeeper.datasource.schema import parse_log_schema
from spark_bookkeeper.datasource.session import Session, open_session
from spark_bookkeeper.environment import given_client_settings
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.nodes.reads import CursorAt

_KEYS = ("ledger_id", "first_entry", "last_entry", "first_row", "rows", "size_bytes", "commit_ms")
"""What the document says of each range; its column bounds are left out."""
REPLICATION_LEDGERS_MAX = 1_000
"""Ledgers, the newest ones, whose replication the document tells: each costs a read of metadata."""


def session_with(uri: str, deleted_ledger_retention_ms: int | None = None) -> Session:
    """The log layer of the cluster at ``uri``, over this process's client.

    ``deleted_ledger_retention_ms``: how long what it drops is kept; by default each collection decides.
    """
    given = given_client_settings(os.environ)
    if deleted_ledger_retention_ms is None:
        return open_session(TargetOptions(metadata_service_uri=uri, client_settings=given))
    kept = WriteOptions(
        metadata_service_uri=uri,
        client_settings=given,
        deleted_ledger_retention_ms=deleted_ledger_retention_ms,
    )
    return open_session(kept)


def list_logs(session: Session) -> list[dict[str, Any]]:
    """A summary of every log of the cluster, sorted by name."""
    return [
        {key: value for key, value in summary.items() if key != "consumers"}
        for summary in session.run(_summarize_all(session, _summarize))
    ]


def survey_logs(session: Session) -> list[dict[str, Any]]:
    """The same with each log's consumers; of a log that cannot be read its name and the ``error``."""
    return session.run(_summarize_all(session, _summarize_or_say_why))


async def _summarize_all(
    session: Session, summarize: Callable[[Session, str], Awaitable[dict[str, Any]]]
) -> list[dict[str, Any]]:
    async def summarize_one(name: str) -> dict[str, Any] | None:
        try:
            return await summarize(session, name)
        except NoSuchLogError:
            return None  # deleted since it was listed

    names = await session.catalog.names()
    found = await each(summarize_one, names, concurrency_max=READS_MAX)
    return [summary for summary in found if summary is not None]


async def _summarize(session: Session, name: str) -> dict[str, Any]:
    nodes = await session.catalog.open(name)
    head = (await nodes.head()).head
    return {
        "log": name,
        "log_id": nodes.log_id,
        "base_row": head.base_row,
        "next_row": head.next_row,
        "rows": head.next_row - head.base_row,
        "size_bytes": sum(each.size_bytes for each in head.chunks)
        + sum(each.size_bytes for each in head.ranges),
        "last_commit_ms": head.last_commit_ms,
        "consumers": describe_consumers(await nodes.cursors(), head.next_row, session.clock_ms()),
    }


async def _summarize_or_say_why(session: Session, name: str) -> dict[str, Any]:
    try:
        return {**await _summarize(session, name), "error": None}
    except NoSuchLogError:
        raise
    except (MetadataCorruptError, ValueError) as error:
        # Nodes that somebody else made: no reason to show none of the others.
        return {"log": name, "error": f"{type(error).__name__}: {error}", "consumers": []}


def describe_log(session: Session, name: str) -> dict[str, Any]:
    """Everything about one log: settings, schema, rows, ranges, transactions, consumers.

    ``under_replicated``: those of its newest ledgers that may lack copies.

    Raises:
        NoSuchLogError: there is none of this name.
    """
    nodes = session.run(session.catalog.open(name))
    view = session.run(session.view(nodes.log_id, name).ranges())
    schema = session.run(nodes.schema(view.head.schema_id))
    transactions = session.run(nodes.txns())
    cursors = session.run(nodes.cursors())
    opened = [] if view.head.open_ledger is None else [view.head.open_ledger.ledger_id]
    newest = [*dict.fromkeys(each.ledger_id for each in view.ranges), *opened]
    newest = newest[-REPLICATION_LEDGERS_MAX:]
    return {
        "log": name,
        "log_id": nodes.log_id,
        "base_row": view.head.base_row,
        "next_row": view.head.next_row,
        "rows": view.to_row - view.from_row,
        "size_bytes": sum(each.size_bytes for each in view.ranges),
        "last_commit_ms": view.head.last_commit_ms,
        "settings": {
            **asdict(view.head.settings),
            "digest_type": view.head.settings.digest_type.name,
        },
        "retention": asdict(view.head.retention),
        "schema": _columns(schema),
        "ranges": [{key: getattr(each, key) for key in _KEYS} for each in view.ranges],
        "open_ledger": None if view.head.open_ledger is None else asdict(view.head.open_ledger),
        "under_replicated": session.run(describe_short_ledgers(session.ledgers, newest)),
        "transactions": {app: txn.version for app, txn in transactions.items()},
        "consumers": describe_consumers(cursors, view.head.next_row, session.clock_ms()),
    }


def describe_consumers(
    cursors: dict[str, CursorAt], next_row: int, now_ms: int
) -> list[dict[str, Any]]:
    """Each consumer's cursor with its lag: the committed rows that it has not read yet."""
    return [
        {
            "consumer": consumer,
            "row": at.cursor.row,
            "lag": max(0, next_row - at.cursor.row),
            "touched_ms": at.cursor.touched_ms,
            "timeout_ms": at.cursor.timeout_ms,
            "is_live": at.is_live(now_ms),
        }
        for consumer, at in sorted(cursors.items())
    ]


def _columns(schema: bytes | None) -> list[dict[str, str]]:
    if not schema:
        return []
    fields = parse_log_schema(schema).spark.fields
    return [{"column": each.name, "type": each.dataType.simpleString()} for each in fields]
