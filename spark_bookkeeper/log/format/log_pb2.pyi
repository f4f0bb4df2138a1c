from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_STATE_UNSPECIFIED: _ClassVar[LogState]
    LOG_LIVE: _ClassVar[LogState]
    LOG_DELETING: _ClassVar[LogState]

class TokenState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOKEN_STATE_UNSPECIFIED: _ClassVar[TokenState]
    TOKEN_LIVE: _ClassVar[TokenState]
    TOKEN_COMMITTED: _ClassVar[TokenState]
    TOKEN_DEAD: _ClassVar[TokenState]

class GarbageReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GARBAGE_REASON_UNSPECIFIED: _ClassVar[GarbageReason]
    GARBAGE_OVERWRITE: _ClassVar[GarbageReason]
    GARBAGE_TRUNCATE: _ClassVar[GarbageReason]
    GARBAGE_EMPTY_TAIL: _ClassVar[GarbageReason]
    GARBAGE_REWRITE: _ClassVar[GarbageReason]
LOG_STATE_UNSPECIFIED: LogState
LOG_LIVE: LogState
LOG_DELETING: LogState
TOKEN_STATE_UNSPECIFIED: TokenState
TOKEN_LIVE: TokenState
TOKEN_COMMITTED: TokenState
TOKEN_DEAD: TokenState
GARBAGE_REASON_UNSPECIFIED: GarbageReason
GARBAGE_OVERWRITE: GarbageReason
GARBAGE_TRUNCATE: GarbageReason
GARBAGE_EMPTY_TAIL: GarbageReason
GARBAGE_REWRITE: GarbageReason

class Scalar(_message.Message):
    __slots__ = ("boolean", "integer", "real", "text", "binary", "decimal", "date_days", "timestamp_us", "timestamp_ntz_us")
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    DATE_DAYS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_NTZ_US_FIELD_NUMBER: _ClassVar[int]
    boolean: bool
    integer: int
    real: float
    text: str
    binary: bytes
    decimal: str
    date_days: int
    timestamp_us: int
    timestamp_ntz_us: int
    def __init__(self, boolean: bool = ..., integer: _Optional[int] = ..., real: _Optional[float] = ..., text: _Optional[str] = ..., binary: _Optional[bytes] = ..., decimal: _Optional[str] = ..., date_days: _Optional[int] = ..., timestamp_us: _Optional[int] = ..., timestamp_ntz_us: _Optional[int] = ...) -> None: ...

class ColumnRange(_message.Message):
    __slots__ = ("column", "minimum", "maximum", "nulls")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    NULLS_FIELD_NUMBER: _ClassVar[int]
    column: str
    minimum: Scalar
    maximum: Scalar
    nulls: int
    def __init__(self, column: _Optional[str] = ..., minimum: _Optional[_Union[Scalar, _Mapping[str, object]]] = ..., maximum: _Optional[_Union[Scalar, _Mapping[str, object]]] = ..., nulls: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("ledger_id", "first_entry", "last_entry", "first_row", "rows", "size_bytes", "schema_id", "commit_ms", "columns", "first_commit_ms")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    FIRST_COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry: int
    last_entry: int
    first_row: int
    rows: int
    size_bytes: int
    schema_id: int
    commit_ms: int
    columns: _containers.RepeatedCompositeFieldContainer[ColumnRange]
    first_commit_ms: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry: _Optional[int] = ..., last_entry: _Optional[int] = ..., first_row: _Optional[int] = ..., rows: _Optional[int] = ..., size_bytes: _Optional[int] = ..., schema_id: _Optional[int] = ..., commit_ms: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[ColumnRange, _Mapping[str, object]]]] = ..., first_commit_ms: _Optional[int] = ...) -> None: ...

class ChunkRef(_message.Message):
    __slots__ = ("epoch", "serial", "level", "first_row", "rows", "ranges", "size_bytes", "last_commit_ms")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    serial: int
    level: int
    first_row: int
    rows: int
    ranges: int
    size_bytes: int
    last_commit_ms: int
    def __init__(self, epoch: _Optional[int] = ..., serial: _Optional[int] = ..., level: _Optional[int] = ..., first_row: _Optional[int] = ..., rows: _Optional[int] = ..., ranges: _Optional[int] = ..., size_bytes: _Optional[int] = ..., last_commit_ms: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("format_version", "level", "ranges", "chunks")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    level: int
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    chunks: _containers.RepeatedCompositeFieldContainer[ChunkRef]
    def __init__(self, format_version: _Optional[int] = ..., level: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping[str, object]]]] = ..., chunks: _Optional[_Iterable[_Union[ChunkRef, _Mapping[str, object]]]] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("ensemble_size", "write_quorum", "ack_quorum", "digest_type", "payload_format", "compression", "entry_bytes")
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ACK_QUORUM_FIELD_NUMBER: _ClassVar[int]
    DIGEST_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    ENTRY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: int
    payload_format: str
    compression: str
    entry_bytes: int
    def __init__(self, ensemble_size: _Optional[int] = ..., write_quorum: _Optional[int] = ..., ack_quorum: _Optional[int] = ..., digest_type: _Optional[int] = ..., payload_format: _Optional[str] = ..., compression: _Optional[str] = ..., entry_bytes: _Optional[int] = ...) -> None: ...

class OpenLedger(_message.Message):
    __slots__ = ("ledger_id", "first_row", "opened_ms")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    OPENED_MS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_row: int
    opened_ms: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_row: _Optional[int] = ..., opened_ms: _Optional[int] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("time_ms", "size_bytes", "is_consumed_kept")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_CONSUMED_KEPT_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    size_bytes: int
    is_consumed_kept: bool
    def __init__(self, time_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ..., is_consumed_kept: bool = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("format_version", "state", "name", "settings", "base_row", "next_row", "overwritten_row", "schema_id", "last_commit_ms", "chunks", "ranges", "open_ledger", "retention")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    BASE_ROW_FIELD_NUMBER: _ClassVar[int]
    NEXT_ROW_FIELD_NUMBER: _ClassVar[int]
    OVERWRITTEN_ROW_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    OPEN_LEDGER_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    state: LogState
    name: str
    settings: Settings
    base_row: int
    next_row: int
    overwritten_row: int
    schema_id: int
    last_commit_ms: int
    chunks: _containers.RepeatedCompositeFieldContainer[ChunkRef]
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    open_ledger: OpenLedger
    retention: Retention
    def __init__(self, format_version: _Optional[int] = ..., state: _Optional[_Union[LogState, str]] = ..., name: _Optional[str] = ..., settings: _Optional[_Union[Settings, _Mapping[str, object]]] = ..., base_row: _Optional[int] = ..., next_row: _Optional[int] = ..., overwritten_row: _Optional[int] = ..., schema_id: _Optional[int] = ..., last_commit_ms: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[ChunkRef, _Mapping[str, object]]]] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping[str, object]]]] = ..., open_ledger: _Optional[_Union[OpenLedger, _Mapping[str, object]]] = ..., retention: _Optional[_Union[Retention, _Mapping[str, object]]] = ...) -> None: ...

class Name(_message.Message):
    __slots__ = ("format_version", "log_id")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    log_id: int
    def __init__(self, format_version: _Optional[int] = ..., log_id: _Optional[int] = ...) -> None: ...

class Schema(_message.Message):
    __slots__ = ("format_version", "schema")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    schema: bytes
    def __init__(self, format_version: _Optional[int] = ..., schema: _Optional[bytes] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("format_version", "state", "job", "app_id", "app_version", "created_ms", "changed_ms", "schema", "timeout_ms")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    APP_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    state: TokenState
    job: str
    app_id: str
    app_version: int
    created_ms: int
    changed_ms: int
    schema: bytes
    timeout_ms: int
    def __init__(self, format_version: _Optional[int] = ..., state: _Optional[_Union[TokenState, str]] = ..., job: _Optional[str] = ..., app_id: _Optional[str] = ..., app_version: _Optional[int] = ..., created_ms: _Optional[int] = ..., changed_ms: _Optional[int] = ..., schema: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class Runs(_message.Message):
    __slots__ = ("query_ids", "rows", "commit_ms", "shown_ms", "query", "batch_id")
    QUERY_IDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    SHOWN_MS_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    query_ids: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedScalarFieldContainer[int]
    commit_ms: _containers.RepeatedScalarFieldContainer[int]
    shown_ms: _containers.RepeatedScalarFieldContainer[int]
    query: _containers.RepeatedScalarFieldContainer[int]
    batch_id: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, query_ids: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[int]] = ..., commit_ms: _Optional[_Iterable[int]] = ..., shown_ms: _Optional[_Iterable[int]] = ..., query: _Optional[_Iterable[int]] = ..., batch_id: _Optional[_Iterable[int]] = ...) -> None: ...

class TokenChild(_message.Message):
    __slots__ = ("format_version", "ledger_id", "partition", "task_attempt_id")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TASK_ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    ledger_id: int
    partition: int
    task_attempt_id: int
    def __init__(self, format_version: _Optional[int] = ..., ledger_id: _Optional[int] = ..., partition: _Optional[int] = ..., task_attempt_id: _Optional[int] = ...) -> None: ...

class Txn(_message.Message):
    __slots__ = ("format_version", "version", "query_id", "epoch", "commit_ms")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    version: int
    query_id: str
    epoch: int
    commit_ms: int
    def __init__(self, format_version: _Optional[int] = ..., version: _Optional[int] = ..., query_id: _Optional[str] = ..., epoch: _Optional[int] = ..., commit_ms: _Optional[int] = ...) -> None: ...

class Garbage(_message.Message):
    __slots__ = ("format_version", "reason", "dropped_ms", "chunks", "ranges", "retention_ms")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DROPPED_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    reason: GarbageReason
    dropped_ms: int
    chunks: _containers.RepeatedCompositeFieldContainer[ChunkRef]
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    retention_ms: int
    def __init__(self, format_version: _Optional[int] = ..., reason: _Optional[_Union[GarbageReason, str]] = ..., dropped_ms: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[ChunkRef, _Mapping[str, object]]]] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping[str, object]]]] = ..., retention_ms: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("format_version", "row", "touched_ms", "timeout_ms")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    TOUCHED_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    row: int
    touched_ms: int
    timeout_ms: int
    def __init__(self, format_version: _Optional[int] = ..., row: _Optional[int] = ..., touched_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...
