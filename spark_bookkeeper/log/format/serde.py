"""Between the values of a log and the bytes of its znodes: format versions 1 and 2.

Encoding is deterministic, so equal values are equal bytes. Most fields have one name in a value and
in its message, and are copied by it; the others are named below. Whatever does not parse, or has a
format version this build does not know, is :class:`bookkeeper_metadata.errors.MetadataCorruptError` naming
the node; nothing is ever guessed or dropped. Version 2 adds a head's retention and ranges that were
rewritten from several; a node that has neither is written as version 1, but for the head, which keeps
2 once it had it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import DigestType
from spark_bookkeeper.log.format import log_pb2 as pb
from spark_bookkeeper.log.format.epoch import StoredTxn, Token, TokenChild, TokenState, Txn
from spark_bookkeeper.log.format.model import (
    KEEP_ALL,
    Chunk,
    ChunkRef,
    Cursor,
    Garbage,
    GarbageReason,
    LedgerRange,
    LogHead,
    LogSettings,
    LogState,
    OpenLedger,
    Retention,
)
from spark_bookkeeper.log.format.serde_columns import column_to_pb, columns_from_pb

FORMAT_VERSION = 1
"""Of every node that uses nothing newer."""
REWRITTEN_VERSION = 2
"""Of heads that were retained or rewritten, and of chunks and garbage with rewritten ranges."""
M = TypeVar("M", bound=Message)
T = TypeVar("T")


class _Fields:
    """The fields of a dataclass that its message has by the same names: all except ``besides``."""

    def __init__(self, of: Any, *besides: str) -> None:
        self._names = [field.name for field in fields(of) if field.name not in besides]
        self.values: Callable[[object], tuple[Any, ...]] = attrgetter(*self._names)

    def named(self, of: object) -> dict[str, Any]:
        """The fields of a value or a message, by name."""
        return dict(zip(self._names, self.values(of), strict=True))


_PARTS = ("chunks", "ranges")
_HEAD = _Fields(LogHead, "state", "settings", "open_ledger", "retention", *_PARTS)
_SETTINGS = _Fields(LogSettings, "digest_type")
_OPEN_LEDGER = _Fields(OpenLedger)
_TOKEN = _Fields(Token, "state", "txn", "timeout_ms")
_TOKEN_CHILD = _Fields(TokenChild)
_TXN = _Fields(StoredTxn)
_CURSOR = _Fields(Cursor)
_REF = _Fields(ChunkRef)
_VERSIONED = (pb.Head, pb.Chunk, pb.Garbage)
"""Of which there is a second version."""


def encode_head(head: LogHead) -> bytes:
    """The value of ``head``."""
    settings, opened, kept = head.settings, head.open_ledger, head.retention
    return _encode(
        pb.Head,
        **_HEAD.named(head),
        retention=None if kept == KEEP_ALL else pb.Retention(**asdict(kept)),
        **_parts_to_pb(head),
        state=f"LOG_{head.state.name}",
        settings=pb.Settings(**_SETTINGS.named(settings), digest_type=settings.digest_type.value),
        open_ledger=None if opened is None else pb.OpenLedger(**_OPEN_LEDGER.named(opened)),
    )


def parse_head(path: str, value: bytes) -> LogHead:
    """The head in ``value``.

    Raises:
        MetadataCorruptError: it is none, or breaks its own rules.
    """

    def build(message: pb.Head) -> LogHead:
        made, has_open = message.settings, message.HasField("open_ledger")
        return LogHead(
            **_HEAD.named(message),
            **_parts_from_pb(message),
            state=LogState(message.state),
            retention=_retention_from_pb(message.retention),
            settings=LogSettings(**_SETTINGS.named(made), digest_type=DigestType(made.digest_type)),
            open_ledger=OpenLedger(*_OPEN_LEDGER.values(message.open_ledger)) if has_open else None,
        )

    return _parse(path, value, pb.Head(), build)


def encode_chunk(chunk: Chunk) -> bytes:
    """The value of a chunk."""
    return _encode(
        pb.Chunk,
        format_version=_version_of(chunk.ranges),
        level=chunk.level,
        **_parts_to_pb(chunk),
    )


def parse_chunk(path: str, value: bytes, columns: Collection[str] | None = None) -> Chunk:
    """The chunk in ``value``; of column ranges only ``columns`` are kept (``None``: all).

    Raises:
        MetadataCorruptError: it is none.
    """

    def build(message: pb.Chunk) -> Chunk:
        return Chunk(message.level, **_parts_from_pb(message, columns))

    return _parse(path, value, pb.Chunk(), build)


def encode_token(token: Token) -> bytes:
    """The value of a token."""
    return _encode(
        pb.Token,
        **_TOKEN.named(token),
        state=f"TOKEN_{token.state.name}",
        app_id=token.txn.app_id if token.txn else "",
        app_version=token.txn.version if token.txn else 0,
        timeout_ms=token.timeout_ms,
    )


def parse_token(path: str, value: bytes) -> Token:
    """The token in ``value``.

    Raises:
        MetadataCorruptError: it is none.
    """

    def build(message: pb.Token) -> Token:
        return Token(
            **_TOKEN.named(message),
            state=TokenState(message.state),
            # No application's id is empty. Collection compares id and version; the rest is not
            # stored.
            txn=Txn(message.app_id, message.app_version) if message.app_id else None,
            timeout_ms=message.timeout_ms if message.HasField("timeout_ms") else None,
        )

    return _parse(path, value, pb.Token(), build)


def encode_token_child(child: TokenChild) -> bytes:
    """The value of a token's child."""
    return _encode(pb.TokenChild, **_TOKEN_CHILD.named(child))


def parse_token_child(path: str, value: bytes) -> TokenChild:
    """The token's child in ``value``.

    Raises:
        MetadataCorruptError: it is none.
    """
    return _parse(
        path, value, pb.TokenChild(), lambda message: TokenChild(*_TOKEN_CHILD.values(message))
    )


def encode_txn(txn: StoredTxn) -> bytes:
    """The value of an application's transaction node."""
    return _encode(pb.Txn, **_TXN.named(txn))


def parse_txn(path: str, value: bytes) -> StoredTxn:
    """The transaction in ``value``.

    Raises:
        MetadataCorruptError: it is none.
    """
    return _parse(path, value, pb.Txn(), lambda message: StoredTxn(*_TXN.values(message)))


def encode_cursor(cursor: Cursor) -> bytes:
    """The value of a consumer's node."""
    return _encode(pb.Cursor, **_CURSOR.named(cursor))


def parse_cursor(path: str, value: bytes) -> Cursor:
    """The cursor in ``value``; raises MetadataCorruptError."""
    return _parse(path, value, pb.Cursor(), lambda message: Cursor(*_CURSOR.values(message)))


def encode_garbage(garbage: Garbage) -> bytes:
    """The value of a garbage entry."""
    return _encode(
        pb.Garbage,
        format_version=_version_of(garbage.ranges),
        **_parts_to_pb(garbage),
        reason=f"GARBAGE_{garbage.reason.name}",
        dropped_ms=garbage.dropped_ms,
        retention_ms=garbage.retention_ms,
    )


def parse_garbage(path: str, value: bytes) -> Garbage:
    """The garbage entry in ``value``.

    Raises:
        MetadataCorruptError: it is none.
    """

    def build(message: pb.Garbage) -> Garbage:
        return Garbage(
            GarbageReason(message.reason),
            message.dropped_ms,
            **_parts_from_pb(message),
            # 0 is a wish, too: not to keep it at all. Only when it is absent the collector decides.
            retention_ms=message.retention_ms if message.HasField("retention_ms") else None,
        )

    return _parse(path, value, pb.Garbage(), build)


def encode_name(log_id: int) -> bytes:
    """The value of a log's name: which log it stands for."""
    return _encode(pb.Name, log_id=log_id)


def parse_name(path: str, value: bytes) -> int:
    """The log id in ``value``.

    Raises:
        MetadataCorruptError: there is none.
    """
    return _parse(path, value, pb.Name(), lambda message: message.log_id)


def encode_schema(schema: bytes) -> bytes:
    """The value of a schema node; ``schema`` is opaque here."""
    return _encode(pb.Schema, schema=schema)


def parse_schema(path: str, value: bytes) -> bytes:
    """The schema in ``value``.

    Raises:
        MetadataCorruptError: there is none.
    """
    return _parse(path, value, pb.Schema(), lambda message: message.schema)


def range_to_pb(item: LedgerRange) -> pb.Range:
    """The range as a message; its ``ByteSize()`` decides how chunks are cut."""
    # Ranges are the one thing there are many of: written out, this takes half the time.
    return pb.Range(
        ledger_id=item.ledger_id,
        first_entry=item.first_entry,
        last_entry=item.last_entry,
        first_row=item.first_row,
        rows=item.rows,
        size_bytes=item.size_bytes,
        schema_id=item.schema_id,
        commit_ms=item.commit_ms,
        columns=[column_to_pb(column) for column in item.columns],
        first_commit_ms=item.first_commit_ms,
    )


def _version_of(ranges: Iterable[LedgerRange]) -> int:
    return (
        REWRITTEN_VERSION
        if any(item.first_commit_ms is not None for item in ranges)
        else FORMAT_VERSION
    )


def _retention_from_pb(message: pb.Retention) -> Retention:
    return Retention(
        time_ms=message.time_ms if message.HasField("time_ms") else None,
        size_bytes=message.size_bytes if message.HasField("size_bytes") else None,
        is_consumed_kept=message.is_consumed_kept,
    )


def _parts_to_pb(of: LogHead | Chunk | Garbage) -> dict[str, list[Any]]:
    return {
        "chunks": [pb.ChunkRef(**_REF.named(ref)) for ref in of.chunks],
        "ranges": [range_to_pb(item) for item in of.ranges],
    }


def _parts_from_pb(
    message: pb.Head | pb.Chunk | pb.Garbage, columns: Collection[str] | None = None
) -> dict[str, Any]:
    # The usual case, and a plan may parse 10^5 ranges: then not even a call for each.
    no_columns = columns is not None and not columns
    return {
        "chunks": tuple(ChunkRef(*_REF.values(ref)) for ref in message.chunks),
        "ranges": tuple(
            LedgerRange(
                item.ledger_id,
                item.first_entry,
                item.last_entry,
                item.first_row,
                item.rows,
                item.size_bytes,
                item.schema_id,
                item.commit_ms,
                () if no_columns else columns_from_pb(item.columns, columns),
                item.first_commit_ms if item.HasField("first_commit_ms") else None,
            )
            for item in message.ranges
        ),
    }


def _encode(kind: Callable[..., Message], **named: object) -> bytes:
    message = kind(**{"format_version": FORMAT_VERSION, **named})
    return message.SerializeToString(deterministic=True)


def _parse(path: str, value: bytes, message: M, build: Callable[[M], T]) -> T:
    """Parse, check the version, build; every defect of the bytes becomes one kind of error."""
    try:
        message.ParseFromString(value)
    except DecodeError as cause:
        raise MetadataCorruptError(path, f"not a protobuf message ({cause})") from cause
    # Looked at before anything is built: a later format may mean something else by these fields.
    version = getattr(message, "format_version", 0)
    newest = REWRITTEN_VERSION if isinstance(message, _VERSIONED) else FORMAT_VERSION
    if not FORMAT_VERSION <= version <= newest:
        raise MetadataCorruptError(
            path, f"format version {version}, this build reads up to {newest}"
        )
    try:
        return build(message)
    except (ValueError, ArithmeticError) as cause:
        # A text that is no decimal and a date beyond the calendar are ArithmeticErrors.
        raise MetadataCorruptError(path, str(cause)) from cause
