"""Protocol 2: numbers at fixed places, big-endian, and no number that tells an answer's request.

    request = head · AUTH: message | ADD: key[20] · entry | others: int64 ledger · int64 entry [ · key[20] ]
    answer  = head · int32 status · int64 ledger · int64 entry · body       (AUTH: head · message)
    head    = int8 version · int8 operation · int16 flags

A batch read has more: int64 number · int32 count · int64 bytes in front of the key, and in the answer the
number in front of the body. Source: Apache ``BookieProtocol`` and ``BookieProtoEncoding``; what 4.18.0 was
seen to send (tests/golden/apache).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.digest import MASTER_KEY_SIZE
from bookie_server.wire.record import HEADER_SIZE
from bookie_server.wire.rpc import messages
from bookie_server.wire.rpc.frames import with_length
from bookie_server.wire.rpc.protobuf import encode_head, fields_of
from bookie_server.wire.rpc.statuses import RpcStatus, parse_status_of_v2

VERSION = 2
ADD, READ, AUTH, BATCH = 1, 2, 3, 7
_FENCE, FLAG_RECOVERY, _HIGH_PRIORITY = 1, 2, 4
_HEAD = struct.Struct(">bbh")
_READ = struct.Struct(">bbhqq")
_BATCH = struct.Struct(">bbhqqqiq")
_ANSWER = struct.Struct(">bbhiqq")
_NUMBER = struct.Struct(">q")
_IDS = struct.Struct(">qq")
_ENTRY_AT = _HEAD.size + MASTER_KEY_SIZE

Request = messages.AddEntry | messages.ReadEntry | messages.BatchRead | messages.Authenticate
Reply = messages.AddReply | messages.ReadReply | messages.BatchReply | messages.Authenticate


@dataclass(frozen=True, slots=True)
class Answer:
    """An authentication's has no status on the wire: EOK."""

    status: RpcStatus
    reply: Reply
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came; ``refusal`` is the answer to one that cannot be served."""

    request: Request
    priority: int = 0
    version: int = VERSION
    refusal: RpcStatus | None = None


def encode_request(request: Request, priority: int = 0) -> tuple[Buffer, ...]:
    """A frame, as parts to send; bytes in ``request`` are not copied."""
    urgent = _HIGH_PRIORITY if priority else 0
    parts: tuple[Buffer, ...]
    match request:
        case messages.AddEntry():
            flags = urgent | (FLAG_RECOVERY if request.is_recovery else 0)
            parts = (
                _HEAD.pack(VERSION, ADD, flags),
                request.master_key,
                request.body,
            )
        case messages.ReadEntry(ledger_id, entry_id, master_key):
            flags = urgent | (_FENCE if request.is_fencing else 0)
            parts = (_READ.pack(VERSION, READ, flags, ledger_id, entry_id),)
            if request.is_fencing:
                parts += (master_key or b"",)
        case messages.BatchRead(ledger_id, first, number, count_max, size_max, master_key):
            flags = urgent | (_FENCE if request.is_fencing else 0)
            ids = ledger_id, first, number, count_max, size_max
            parts = (_BATCH.pack(VERSION, BATCH, flags, *ids),)
            if request.is_fencing:
                parts += (master_key or b"",)
        case messages.Authenticate():
            parts = (_HEAD.pack(VERSION, AUTH, 0), *_encode_authentication(request))
    return with_length(parts)


def parse_request(frame: Buffer) -> Asked:
    """What a frame asks for; its bytes are shared, not copied.

    Raises:
        MalformedFrameError: it is none of protocol 2, or of an operation that only others have.
    """
    view = memoryview(frame)
    _need(view, _HEAD.size)
    version, operation, flags = _HEAD.unpack_from(view)
    request: Request
    if operation == ADD:
        _need(view, _ENTRY_AT + HEADER_SIZE)
        body = view[_ENTRY_AT:]
        ledger_id, entry_id = _IDS.unpack_from(body)
        flag = messages.ADD_FLAG_RECOVERY if flags & FLAG_RECOVERY else None
        key = view[_HEAD.size : _ENTRY_AT]
        request = messages.AddEntry(ledger_id, entry_id, key, body, flag=flag)
    elif operation == READ:
        _need(view, _READ.size)
        *_, ledger_id, entry_id = _READ.unpack_from(view)
        key_of_fence = _key_of(view, _READ.size, flags)
        flag = messages.READ_FLAG_FENCE if flags & _FENCE else None
        request = messages.ReadEntry(ledger_id, entry_id, key_of_fence, flag=flag)
    elif operation == BATCH:
        _need(view, _BATCH.size)
        key_of_fence = _key_of(view, _BATCH.size, flags)
        *_, ledger_id, entry_id, number, count_max, size_max = _BATCH.unpack_from(view)
        request = messages.BatchRead(
            ledger_id, entry_id, number, count_max, size_max, key_of_fence, bool(flags & _FENCE)
        )
    elif operation == AUTH:
        request = _parse_authentication(view[_HEAD.size :])
    else:
        raise MalformedFrameError(f"operation {operation} of protocol 2")
    priority = messages.PRIORITY_HIGH if flags & _HIGH_PRIORITY else 0
    refusal = None if version == VERSION else RpcStatus.EBADVERSION
    return Asked(request, priority, version, refusal)


def encode_answer(answer: Answer) -> tuple[Buffer, ...]:
    """A frame, as parts to send; bytes in the reply are not copied."""
    version, code, reply = answer.version, answer.status.number_in_v2, answer.reply
    parts: tuple[Buffer, ...]
    match reply:
        case messages.AddReply(ledger_id, entry_id):
            parts = (_ANSWER.pack(version, ADD, 0, code, ledger_id, entry_id),)
        case messages.ReadReply(ledger_id, entry_id, body):
            parts = (_ANSWER.pack(version, READ, 0, code, ledger_id, entry_id), body or b"")
        case messages.BatchReply(ledger_id, first, number, body):
            front = _ANSWER.pack(version, BATCH, 0, code, ledger_id, first)
            parts = (front + _NUMBER.pack(number), body)
        case messages.Authenticate():
            parts = (_HEAD.pack(version, AUTH, 0), *_encode_authentication(reply))
    return with_length(parts)


def parse_answer(frame: Buffer) -> Answer:
    """What a frame answers; its bytes are shared, not copied.

    Raises:
        MalformedFrameError: it is no answer of protocol 2.
    """
    view = memoryview(frame)
    _need(view, _HEAD.size)
    version, operation, _ = _HEAD.unpack_from(view)
    if operation == AUTH:
        return Answer(RpcStatus.EOK, _parse_authentication(view[_HEAD.size :]), version)
    _need(view, _ANSWER.size)
    code, ledger_id, entry_id = _ANSWER.unpack_from(view)[3:]
    status = parse_status_of_v2(code)
    body = view[_ANSWER.size :]
    reply: Reply
    if operation == ADD:
        reply = messages.AddReply(ledger_id, entry_id)
    elif operation == READ:
        reply = messages.ReadReply(ledger_id, entry_id, body if status is RpcStatus.EOK else None)
    elif operation == BATCH:
        _need(body, _NUMBER.size)
        (number,) = _NUMBER.unpack_from(body)
        reply = messages.BatchReply(ledger_id, entry_id, number, body[_NUMBER.size :])
    else:
        raise MalformedFrameError(f"an answer to operation {operation} of protocol 2")
    return Answer(status, reply, version)


def _need(view: memoryview, size_bytes: int) -> None:
    if len(view) < size_bytes:
        raise MalformedFrameError(f"a frame of {len(view)} bytes that needs {size_bytes}")


def _key_of(view: memoryview, at: int, flags: int) -> memoryview | None:
    if not flags & _FENCE:
        return None
    _need(view, at + MASTER_KEY_SIZE)
    return view[at : at + MASTER_KEY_SIZE]


def _encode_authentication(message: messages.Authenticate) -> tuple[Buffer, ...]:
    plugin, payload = message.plugin, message.payload
    return (encode_head(1, len(plugin)), plugin, encode_head(2, len(payload)), payload)


def _parse_authentication(encoded: memoryview) -> messages.Authenticate:
    fields = fields_of(encoded)
    plugin, payload = fields.get(1), fields.get(2)
    if not isinstance(plugin, memoryview) or not isinstance(payload, memoryview):
        raise MalformedFrameError("an authentication without plugin or payload")
    return messages.Authenticate(plugin, payload)
