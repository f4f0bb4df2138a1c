"""Protocol 3: protocol buffers, a length in front of each, a number that the answer repeats.

    request  = header 1 · one of the requests 100..108
    response = header 1 · status 2 · one of the responses 100..108, which repeats the status
    header   = version 1 · operation 2 · number 3 · priority 4

What each message is made of stands in tables. Source: Apache ``BookkeeperProtocol.proto``, and what 4.18.0 was
seen to send (tests/golden/apache).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.rpc import messages
from bookie_server.wire.rpc.frames import with_length
from bookie_server.wire.rpc.protobuf import (
    Value,
    encode_head,
    encode_message,
    encode_number,
    encode_varint,
    fields_of,
    signed,
)
from bookie_server.wire.rpc.statuses import RpcStatus, parse_status

VERSION = 3
HEADER, STATUS = 1, 2


@dataclass(frozen=True, slots=True)
class _Layout:
    """A message: its field in the frame, what it is as a value, and the fields of that by name, ascending."""

    number: int
    make: Any
    numbers: Mapping[str, int]
    of_bytes: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


def _layout(
    number: int, make: Any, of_bytes: str = "", optional: str = "", **numbers: int
) -> _Layout:
    return _Layout(number, make, numbers, frozenset(of_bytes.split()), frozenset(optional.split()))


_REQUESTS = {
    1: _layout(
        100,
        messages.ReadEntry,
        "master_key",
        "master_key previous_lac timeout_ms flag",
        ledger_id=1,
        entry_id=2,
        master_key=3,
        previous_lac=4,
        timeout_ms=5,
        flag=100,
    ),
    2: _layout(
        101,
        messages.AddEntry,
        "master_key body",
        "write_flags flag",
        ledger_id=1,
        entry_id=2,
        master_key=3,
        body=4,
        write_flags=5,
        flag=100,
    ),
    5: _layout(102, messages.Authenticate, "plugin payload", plugin=1, payload=2),
    6: _layout(
        103,
        messages.WriteLac,
        "master_key body",
        ledger_id=1,
        last_add_confirmed=2,
        master_key=3,
        body=4,
    ),
    7: _layout(104, messages.ReadLac, ledger_id=1),
    8: _layout(105, messages.GetInfo, optional="requested", requested=1),
    9: _layout(106, messages.StartTls),
    10: _layout(107, messages.ForceLedger, ledger_id=1),
    11: _layout(108, messages.ListEntries, ledger_id=1),
}
"""By operation."""

_REPLIES = {
    1: _layout(
        100,
        messages.ReadReply,
        "body",
        "body max_lac lac_update_ms",
        ledger_id=2,
        entry_id=3,
        body=4,
        max_lac=5,
        lac_update_ms=6,
    ),
    2: _layout(101, messages.AddReply, ledger_id=2, entry_id=3),
    5: _layout(102, messages.Authenticate, "plugin payload", plugin=1, payload=2),
    6: _layout(103, messages.LedgerReply, ledger_id=2),
    7: _layout(
        104,
        messages.LacReply,
        "packet last_entry",
        "packet last_entry",
        ledger_id=2,
        packet=3,
        last_entry=4,
    ),
    8: _layout(
        105, messages.InfoReply, optional="total_bytes free_bytes", total_bytes=2, free_bytes=3
    ),
    9: _layout(106, messages.StartTls),
    10: _layout(107, messages.LedgerReply, ledger_id=2),
    11: _layout(108, messages.ListReply, "entries", "entries", ledger_id=2, entries=3),
}
_WITHOUT_STATUS = frozenset({messages.Authenticate, messages.StartTls})
"""Answers that do not repeat the status."""
_OPERATIONS = {layout.make: operation for operation, layout in _REQUESTS.items()}
OPERATION_OF_ADD = _OPERATIONS[messages.AddEntry]
ADD, ADD_REPLY = (each[OPERATION_OF_ADD].number for each in (_REQUESTS, _REPLIES))
"""Fields of a frame."""


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in front of a request, and is repeated in front of its answer."""

    number: int
    operation: int


@dataclass(frozen=True, slots=True)
class Numbered:
    """A request as it came; ``refusal`` is the answer to one that cannot be served."""

    head: Head
    request: messages.Request | None
    priority: int = 0
    refusal: RpcStatus | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """``reply`` is ``None`` where the bookie does not know the operation."""

    head: Head
    status: RpcStatus
    reply: messages.Reply | None = None


def encode_request(number: int, request: messages.Request, priority: int = 0) -> tuple[Buffer, ...]:
    """A frame, as parts to send; bytes in ``request`` are not copied."""
    operation = _OPERATIONS[type(request)]
    layout = _REQUESTS[operation]
    header = _encode_header(Head(number, operation))
    if priority:
        header += encode_number(4, priority)
    body = encode_message(layout.number, _encode_fields(layout, request))
    return with_length((*encode_message(HEADER, (header,)), *body))


def parse_request(frame: Buffer) -> Numbered:
    """What a frame asks for; its bytes are shared, not copied.

    Raises:
        MalformedFrameError: it is none of protocol 3.
    """
    fields = fields_of(frame)
    head, version, priority = _parse_header(fields)
    layout = _REQUESTS.get(head.operation)
    if layout is None:
        return Numbered(head, None, priority, RpcStatus.EBADREQ)
    request = layout.make(**_parse_fields(layout, fields.get(layout.number)))
    refusal = RpcStatus.EBADVERSION if version != VERSION else None
    return Numbered(head, request, priority, refusal)


def encode_answer(answer: Answer) -> tuple[Buffer, ...]:
    """A frame, as parts to send; bytes in the reply are not copied."""
    status, reply = answer.status.value, answer.reply
    front = encode_message(HEADER, (_encode_header(answer.head),))
    parts: tuple[Buffer, ...] = (*front, encode_number(STATUS, status))
    if reply is not None:
        layout = _REPLIES[answer.head.operation]
        fields = _encode_fields(layout, reply)
        if type(reply) not in _WITHOUT_STATUS:
            fields = [encode_number(1, status), *fields]
        parts += encode_message(layout.number, fields)
    return with_length(parts)


def parse_answer(frame: Buffer) -> Answer:
    """What a frame answers; its bytes are shared, not copied.

    Raises:
        MalformedFrameError: it is no answer of protocol 3.
    """
    fields = fields_of(frame)
    head, version, _ = _parse_header(fields)
    if version != VERSION:
        raise MalformedFrameError(f"an answer of version {version}")
    status = parse_status(_number(fields, STATUS))
    layout = _REPLIES.get(head.operation)
    if layout is None or layout.number not in fields:
        return Answer(head, status)
    inner = fields[layout.number]
    if layout.make not in _WITHOUT_STATUS and status is RpcStatus.EOK:
        # A grant is one only where both say so.
        status = parse_status(_number(_message(inner), 1))
    return Answer(head, status, layout.make(**_parse_fields(layout, inner)))


def encode_front_of_head(operation: int) -> bytes:
    """A header but for its number, which is to follow."""
    return encode_number(1, VERSION) + encode_number(2, operation) + encode_varint(3 << 3)


def _encode_header(head: Head) -> bytes:
    return encode_front_of_head(head.operation) + encode_varint(head.number)


def _parse_header(fields: Mapping[int, Value]) -> tuple[Head, int, int]:
    """The head, the version, and the priority."""
    inner = _message(fields.get(HEADER))
    head = Head(_number(inner, 3), _number(inner, 2))
    return head, _number(inner, 1), _number(inner, 4) if 4 in inner else 0


def _encode_fields(layout: _Layout, value: Any) -> list[Buffer]:
    parts: list[Buffer] = []
    for name, number in layout.numbers.items():
        field = getattr(value, name)
        if field is None:
            continue
        if name in layout.of_bytes:
            parts += (encode_head(number, len(field)), field)
        else:
            parts.append(encode_number(number, field))
    return parts


def _parse_fields(layout: _Layout, encoded: Value | None) -> dict[str, Any]:
    fields = _message(encoded)
    values: dict[str, Any] = {}
    for name, number in layout.numbers.items():
        value = fields.get(number)
        if value is None:
            if name not in layout.optional:
                raise MalformedFrameError(f"a {layout.make.__name__} without {name}")
        elif isinstance(value, int) is (name in layout.of_bytes):
            raise MalformedFrameError(f"a {layout.make.__name__} whose {name} is of another type")
        else:
            values[name] = signed(value) if isinstance(value, int) else value
    return values


def _message(value: Value | None) -> Mapping[int, Value]:
    if not isinstance(value, memoryview):
        raise MalformedFrameError("a frame without one of its messages")
    return fields_of(value)


def _number(fields: Mapping[int, Value], field: int) -> int:
    value = fields.get(field)
    if not isinstance(value, int):
        raise MalformedFrameError(f"a number is missing. field={field}")
    return value
