"""Between the values of a log and the bytes of its znodes: format version 1.

Encoding is deterministic, so equal values are equal bytes. Whatever does not parse, or has a
format version this build does not know, is :class:`bookkeeper_metadata.errors.MetadataCorruptError` naming
the node; nothing is ever guessed or dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import DigestType
from spark_bookkeeper.log.format import log_pb2 as pb
from spark_bookkeeper.log.format.epoch import StoredTxn, Token, TokenChild, TokenState, Txn
from spark_bookkeeper.log.format.model import (
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
)
from spark_bookkeeper.log.format.serde_columns import column_to_pb, columns_from_pb

FORMAT_VERSION = 1
M = TypeVar("M", bound=Message)
T = TypeVar("T")


def encode_head(head: LogHead) -> bytes:
    """The value of ``head``."""
    settings = head.settings
    message = pb.Head(
        format_version=FORMAT_VERSION,
        state=f"LOG_{head.state.name}",
        name=head.name,
        settings=pb.Settings(
            ensemble_size=settings.ensemble_size,
            write_quorum=settings.write_quorum,
            ack_quorum=settings.ack_quorum,
            digest_type=settings.digest_type.value,
            payload_format=settings.payload_format,
            compression=settings.compression,
            entry_bytes=settings.entry_bytes,
        ),
        base_row=head.base_row,
        next_row=head.next_row,
        overwritten_row=head.overwritten_row,
        schema_id=head.schema_id,
        last_commit_ms=head.last_commit_ms,
        chunks=[_ref_to_pb(ref) for ref in head.chunks],
        ranges=[range_to_pb(item) for item in head.ranges],
    )
    if head.open_ledger is not None:
        opened = head.open_ledger
        message.open_ledger.ledger_id = opened.ledger_id
        message.open_ledger.first_row = opened.first_row
        message.open_ledger.opened_ms = opened.opened_ms
    return _bytes(message)


def parse_head(path: str, value: bytes) -> LogHead:
    """The head in ``value``.

    Raises:
        MetadataCorruptError: it is none, or breaks its own rules.
    """

    def build(message: pb.Head) -> LogHead:
        made = message.settings
        opened = message.open_ledger
        return LogHead(
            name=message.name,
            settings=LogSettings(
                ensemble_size=made.ensemble_size,
                write_quorum=made.write_quorum,
                ack_quorum=made.ack_quorum,
                digest_type=DigestType(made.digest_type),
                payload_format=made.payload_format,
                compression=made.compression,
                entry_bytes=made.entry_bytes,
            ),
            state=LogState(message.state),
            base_row=message.base_row,
            next_row=message.next_row,
            overwritten_row=message.overwritten_row,
            schema_id=message.schema_id,
            last_commit_ms=message.last_commit_ms,
            chunks=_refs_from_pb(message.chunks),
            ranges=_ranges_from_pb(message.ranges, None),
            open_ledger=OpenLedger(opened.ledger_id, opened.first_row, opened.opened_ms)
            if message.HasField("open_ledger")
            else None,
        )

    return _parse(path, value, pb.Head(), build)


def encode_chunk(chunk: Chunk) -> bytes:
    """The value of a chunk."""
    return _bytes(
        pb.Chunk(
            format_version=FORMAT_VERSION,
            level=chunk.level,
            ranges=[range_to_pb(item) for item in chunk.ranges],
            chunks=[_ref_to_pb(ref) for ref in chunk.chunks],
        )
    )


def parse_chunk(path: str, value: bytes, columns: Collection[str] | None = None) -> Chunk:
    """The chunk in ``value``; of column ranges only ``columns`` are kept (``None``: all).

    Raises:
        MetadataCorruptError: it is none.
    """

    def build(message: pb.Chunk) -> Chunk:
        return Chunk(
            message.level,
            _ranges_from_pb(message.ranges, columns),
            _refs_from_pb(message.chunks),
        )

    return _parse(path, value, pb.Chunk(), build)


def encode_token(token: Token) -> bytes:
    """The value of a token."""
    return _bytes(
        pb.Token(
            format_version=FORMAT_VERSION,
            state=f"TOKEN_{token.state.name}",
            job=token.job,
            app_id=token.txn.app_id if token.txn else "",
            app_version=token.txn.version if token.txn else 0,
            created_ms=token.created_ms,
            changed_ms=token.changed_ms,
            schema=token.schema,
            timeout_ms=token.timeout_ms,
        )
    )


def parse_token(path: str, value: bytes) -> Token:
    """The token in ``value``.

    Raises:
        MetadataCorruptError: it is none.
    """

    def build(message: pb.Token) -> Token:
        return Token(
            state=TokenState(message.state),
            job=message.job,
            txn=Txn(message.app_id, message.app_version) if message.app_id else None,
            created_ms=message.created_ms,
            changed_ms=message.changed_ms,
            schema=message.schema,
            timeout_ms=message.timeout_ms if message.HasField("timeout_ms") else None,
        )

    return _parse(path, value, pb.Token(), build)


def encode_token_child(child: TokenChild) -> bytes:
    """The value of a token's child."""
    return _bytes(
        pb.TokenChild(
            format_version=FORMAT_VERSION,
            ledger_id=child.ledger_id,
            partition=child.partition,
            task_attempt_id=child.task_attempt_id,
        )
    )


def parse_token_child(path: str, value: bytes) -> TokenChild:
    """The token's child in ``value``.

    Raises:
        MetadataCorruptError: it is none.
    """

    def build(message: pb.TokenChild) -> TokenChild:
        return TokenChild(message.partition, message.task_attempt_id, message.ledger_id)

    return _parse(path, value, pb.TokenChild(), build)


def encode_txn(txn: StoredTxn) -> bytes:
    """The value of an application's transaction node."""
    return _bytes(
        pb.Txn(
            format_version=FORMAT_VERSION,
            version=txn.version,
            query_id=txn.query_id,
            epoch=txn.epoch,
            commit_ms=txn.commit_ms,
        )
    )


def parse_txn(path: str, value: bytes) -> StoredTxn:
    """The transaction in ``value``.

    Raises:
        MetadataCorruptError: it is none.
    """

    def build(message: pb.Txn) -> StoredTxn:
        return StoredTxn(message.version, message.query_id, message.epoch, message.commit_ms)

    return _parse(path, value, pb.Txn(), build)


def encode_cursor(cursor: Cursor) -> bytes:
    """The value of a consumer's node."""
    return _bytes(
        pb.Cursor(
            format_version=FORMAT_VERSION,
            row=cursor.row,
            touched_ms=cursor.touched_ms,
            timeout_ms=cursor.timeout_ms,
        )
    )


def parse_cursor(path: str, value: bytes) -> Cursor:
    """The cursor in ``value``; raises MetadataCorruptError."""

    def build(message: pb.Cursor) -> Cursor:
        return Cursor(message.row, message.touched_ms, message.timeout_ms)

    return _parse(path, value, pb.Cursor(), build)


def encode_garbage(garbage: Garbage) -> bytes:
    """The value of a garbage entry."""
    return _bytes(
        pb.Garbage(
            format_version=FORMAT_VERSION,
            reason=f"GARBAGE_{garbage.reason.name}",
            dropped_ms=garbage.dropped_ms,
            chunks=[_ref_to_pb(ref) for ref in garbage.chunks],
            ranges=[range_to_pb(item) for item in garbage.ranges],
            retention_ms=garbage.retention_ms,
        )
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
            _refs_from_pb(message.chunks),
            _ranges_from_pb(message.ranges, None),
            message.retention_ms if message.HasField("retention_ms") else None,
        )

    return _parse(path, value, pb.Garbage(), build)


def encode_name(log_id: int) -> bytes:
    """The value of a log's name: which log it stands for."""
    return _bytes(pb.Name(format_version=FORMAT_VERSION, log_id=log_id))


def parse_name(path: str, value: bytes) -> int:
    """The log id in ``value``.

    Raises:
        MetadataCorruptError: there is none.
    """
    return _parse(path, value, pb.Name(), lambda message: message.log_id)


def encode_schema(schema: bytes) -> bytes:
    """The value of a schema node; ``schema`` is opaque here."""
    return _bytes(pb.Schema(format_version=FORMAT_VERSION, schema=schema))


def parse_schema(path: str, value: bytes) -> bytes:
    """The schema in ``value``.

    Raises:
        MetadataCorruptError: there is none.
    """
    return _parse(path, value, pb.Schema(), lambda message: message.schema)


def range_to_pb(item: LedgerRange) -> pb.Range:
    """The range as a message; its ``ByteSize()`` decides how chunks are cut."""
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
    )


def _ranges_from_pb(
    messages: Collection[pb.Range], columns: Collection[str] | None
) -> tuple[LedgerRange, ...]:
    no_columns = columns is not None and not columns
    return tuple(
        LedgerRange(
            message.ledger_id,
            message.first_entry,
            message.last_entry,
            message.first_row,
            message.rows,
            message.size_bytes,
            message.schema_id,
            message.commit_ms,
            () if no_columns else columns_from_pb(message.columns, columns),
        )
        for message in messages
    )


def _ref_to_pb(ref: ChunkRef) -> pb.ChunkRef:
    return pb.ChunkRef(
        epoch=ref.epoch,
        serial=ref.serial,
        level=ref.level,
        first_row=ref.first_row,
        rows=ref.rows,
        ranges=ref.ranges,
        size_bytes=ref.size_bytes,
        last_commit_ms=ref.last_commit_ms,
    )


def _refs_from_pb(messages: Collection[pb.ChunkRef]) -> tuple[ChunkRef, ...]:
    return tuple(
        ChunkRef(
            message.epoch,
            message.serial,
            message.level,
            message.first_row,
            message.rows,
            message.ranges,
            message.size_bytes,
            message.last_commit_ms,
        )
        for message in messages
    )


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _parse(path: str, value: bytes, message: M, build: Callable[[M], T]) -> T:
    """Parse, check the version, build; every defect of the bytes becomes one kind of error."""
    try:
        message.ParseFromString(value)
    except DecodeError as cause:
        raise MetadataCorruptError(path, f"not a protobuf message ({cause})") from cause
    version = getattr(message, "format_version", 0)
    if version != FORMAT_VERSION:
        raise MetadataCorruptError(
            path, f"format version {version}, this build reads {FORMAT_VERSION}"
        )
    try:
        return build(message)
    except (ValueError, ArithmeticError) as cause:
        raise MetadataCorruptError(path, str(cause)) from cause
