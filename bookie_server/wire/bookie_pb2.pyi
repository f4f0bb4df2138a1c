from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[Status]
    OK: _ClassVar[Status]
    NO_ENTRY: _ClassVar[Status]
    NO_LEDGER: _ClassVar[Status]
    FENCED: _ClassVar[Status]
    UNAUTHORIZED: _ClassVar[Status]
    READ_ONLY: _ClassVar[Status]
    BAD_REQUEST: _ClassVar[Status]
    CONFLICT: _ClassVar[Status]
    NOT_REACHED: _ClassVar[Status]
    BUSY: _ClassVar[Status]
    LIMBO: _ClassVar[Status]
    DELETED: _ClassVar[Status]

class DigestType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[DigestType]
    CRC32: _ClassVar[DigestType]
    HMAC: _ClassVar[DigestType]
    CRC32C: _ClassVar[DigestType]
    DUMMY: _ClassVar[DigestType]

class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOTHING: _ClassVar[Purpose]
    ADDS: _ClassVar[Purpose]
    REQUESTS: _ClassVar[Purpose]

class FarewellReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NO_REASON: _ClassVar[FarewellReason]
    MALFORMED: _ClassVar[FarewellReason]
    NO_ROOM: _ClassVar[FarewellReason]
    NOT_MEANT: _ClassVar[FarewellReason]
    NOT_ALLOWED: _ClassVar[FarewellReason]
UNKNOWN: Status
OK: Status
NO_ENTRY: Status
NO_LEDGER: Status
FENCED: Status
UNAUTHORIZED: Status
READ_ONLY: Status
BAD_REQUEST: Status
CONFLICT: Status
NOT_REACHED: Status
BUSY: Status
LIMBO: Status
DELETED: Status
NONE: DigestType
CRC32: DigestType
HMAC: DigestType
CRC32C: DigestType
DUMMY: DigestType
NOTHING: Purpose
ADDS: Purpose
REQUESTS: Purpose
NO_REASON: FarewellReason
MALFORMED: FarewellReason
NO_ROOM: FarewellReason
NOT_MEANT: FarewellReason
NOT_ALLOWED: FarewellReason

class SectionHeader(_message.Message):
    __slots__ = ("ledger_id", "master_key", "is_recovery", "digest_type")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_TYPE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    master_key: bytes
    is_recovery: bool
    digest_type: DigestType
    def __init__(self, ledger_id: _Optional[int] = ..., master_key: _Optional[bytes] = ..., is_recovery: bool = ..., digest_type: _Optional[_Union[DigestType, str]] = ...) -> None: ...

class SectionReply(_message.Message):
    __slots__ = ("ledger_id", "first_entry", "last_entry", "status", "is_recovery")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERY_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry: int
    last_entry: int
    status: Status
    is_recovery: bool
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry: _Optional[int] = ..., last_entry: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ..., is_recovery: bool = ...) -> None: ...

class WriteReply(_message.Message):
    __slots__ = ("sections",)
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    sections: _containers.RepeatedCompositeFieldContainer[SectionReply]
    def __init__(self, sections: _Optional[_Iterable[_Union[SectionReply, _Mapping[str, object]]]] = ...) -> None: ...

class Stripe(_message.Message):
    __slots__ = ("ensemble_size", "write_quorum", "index")
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ensemble_size: int
    write_quorum: int
    index: int
    def __init__(self, ensemble_size: _Optional[int] = ..., write_quorum: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("request_id", "ledger_id", "first_entry", "last_entry", "stripe", "is_fencing", "master_key", "size_bytes_max")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    STRIPE_FIELD_NUMBER: _ClassVar[int]
    IS_FENCING_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    ledger_id: int
    first_entry: int
    last_entry: int
    stripe: Stripe
    is_fencing: bool
    master_key: bytes
    size_bytes_max: int
    def __init__(self, request_id: _Optional[int] = ..., ledger_id: _Optional[int] = ..., first_entry: _Optional[int] = ..., last_entry: _Optional[int] = ..., stripe: _Optional[_Union[Stripe, _Mapping[str, object]]] = ..., is_fencing: bool = ..., master_key: _Optional[bytes] = ..., size_bytes_max: _Optional[int] = ...) -> None: ...

class IdRange(_message.Message):
    __slots__ = ("first_entry", "last_entry", "status")
    FIRST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    first_entry: int
    last_entry: int
    status: Status
    def __init__(self, first_entry: _Optional[int] = ..., last_entry: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ...) -> None: ...

class ReadReplyHeader(_message.Message):
    __slots__ = ("request_id", "last_add_confirmed", "missing")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    last_add_confirmed: int
    missing: _containers.RepeatedCompositeFieldContainer[IdRange]
    def __init__(self, request_id: _Optional[int] = ..., last_add_confirmed: _Optional[int] = ..., missing: _Optional[_Iterable[_Union[IdRange, _Mapping[str, object]]]] = ...) -> None: ...

class ReadLacRequest(_message.Message):
    __slots__ = ("ledger_id", "is_fencing", "master_key", "long_poll")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    IS_FENCING_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    LONG_POLL_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    is_fencing: bool
    master_key: bytes
    long_poll: LongPoll
    def __init__(self, ledger_id: _Optional[int] = ..., is_fencing: bool = ..., master_key: _Optional[bytes] = ..., long_poll: _Optional[_Union[LongPoll, _Mapping[str, object]]] = ...) -> None: ...

class LongPoll(_message.Message):
    __slots__ = ("previous_lac", "timeout_ms", "size_bytes_max")
    PREVIOUS_LAC_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    previous_lac: int
    timeout_ms: int
    size_bytes_max: int
    def __init__(self, previous_lac: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., size_bytes_max: _Optional[int] = ...) -> None: ...

class ReadLacReply(_message.Message):
    __slots__ = ("status", "last_entry", "explicit_lac", "records")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_LAC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    last_entry: bytes
    explicit_lac: bytes
    records: bytes
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., last_entry: _Optional[bytes] = ..., explicit_lac: _Optional[bytes] = ..., records: _Optional[bytes] = ...) -> None: ...

class WriteLacRequest(_message.Message):
    __slots__ = ("ledger_id", "master_key", "packet")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    PACKET_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    master_key: bytes
    packet: bytes
    def __init__(self, ledger_id: _Optional[int] = ..., master_key: _Optional[bytes] = ..., packet: _Optional[bytes] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, str]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InfoReply(_message.Message):
    __slots__ = ("bookie_id", "instance_id", "version", "ledger_count", "disk_total_bytes", "disk_free_bytes", "limbo_count")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_COUNT_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMBO_COUNT_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    instance_id: str
    version: str
    ledger_count: int
    disk_total_bytes: int
    disk_free_bytes: int
    limbo_count: int
    def __init__(self, bookie_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., version: _Optional[str] = ..., ledger_count: _Optional[int] = ..., disk_total_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., limbo_count: _Optional[int] = ...) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ("ledger_id", "first_entry", "ranges_max")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    RANGES_MAX_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry: int
    ranges_max: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry: _Optional[int] = ..., ranges_max: _Optional[int] = ...) -> None: ...

class ListEntriesReply(_message.Message):
    __slots__ = ("status", "held", "next_entry", "damaged_count")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    NEXT_ENTRY_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    status: Status
    held: _containers.RepeatedCompositeFieldContainer[IdRange]
    next_entry: int
    damaged_count: int
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., held: _Optional[_Iterable[_Union[IdRange, _Mapping[str, object]]]] = ..., next_entry: _Optional[int] = ..., damaged_count: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("bookie_id", "instance_id", "version", "purpose")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    instance_id: str
    version: str
    purpose: Purpose
    def __init__(self, bookie_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., version: _Optional[str] = ..., purpose: _Optional[_Union[Purpose, str]] = ...) -> None: ...

class Farewell(_message.Message):
    __slots__ = ("reason", "detail")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    reason: FarewellReason
    detail: str
    def __init__(self, reason: _Optional[_Union[FarewellReason, str]] = ..., detail: _Optional[str] = ...) -> None: ...
