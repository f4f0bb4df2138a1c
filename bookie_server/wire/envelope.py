"""The envelope of messages on a plain socket: a head of 16 bytes, and who talks to whom.

    uint16 kind · uint16 0 · uint32 size · uint64 number                  (big-endian)

The layout and the kinds are in bookie.proto. Pure: bytes in, bytes out; nothing is allocated by a size
that a peer claims.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum, unique

from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError, parse_message
from bookie_server.wire.limits import FRAME_SIZE_MAX, HEADER_SIZE_MAX
from bookie_server.wire.messages import Method

_HEAD = struct.Struct(">HHIQ")
HEAD_SIZE = _HEAD.size


@unique
class Kind(Enum):
    """What a message is; the numbers are the wire's."""

    HELLO = 1
    WELCOME = 2
    FAREWELL = 3
    FRAME = 16
    WRITE_REPLY = 17
    READ = 32
    READ_REPLY = 33
    READ_LAC = 34
    READ_LAC_REPLY = 35
    WRITE_LAC = 36
    WRITE_LAC_REPLY = 37
    INFO = 38
    INFO_REPLY = 39
    LIST_ENTRIES = 40
    LIST_ENTRIES_REPLY = 41
    GIVE_UP = 62
    NOTHING = 63

    @property
    def size_max(self) -> int:
        """Most bytes of such a message behind its head."""
        return FRAME_SIZE_MAX if self in _LARGE else HEADER_SIZE_MAX


_LARGE = frozenset(
    {
        Kind.FRAME,
        Kind.WRITE_REPLY,
        Kind.READ_REPLY,
        Kind.READ_LAC_REPLY,
        Kind.LIST_ENTRIES_REPLY,
    }
)
_KINDS = {kind.value: kind for kind in Kind}

REQUEST_KINDS = {
    Method.READ_LAC: Kind.READ_LAC,
    Method.WRITE_LAC: Kind.WRITE_LAC,
    Method.INFO: Kind.INFO,
    Method.LIST_ENTRIES: Kind.LIST_ENTRIES,
}
METHODS = {kind: method for method, kind in REQUEST_KINDS.items()}
REPLY_KINDS = {
    Kind.READ: Kind.READ_REPLY,
    Kind.READ_LAC: Kind.READ_LAC_REPLY,
    Kind.WRITE_LAC: Kind.WRITE_LAC_REPLY,
    Kind.INFO: Kind.INFO_REPLY,
    Kind.LIST_ENTRIES: Kind.LIST_ENTRIES_REPLY,
}


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in front of a message."""

    kind: Kind
    size_bytes: int
    """Of what follows."""
    number: int = 0


def encode_head(head: Head) -> bytes:
    """The 16 bytes."""
    return _HEAD.pack(head.kind.value, 0, head.size_bytes, head.number)


def parse_head(data: Buffer) -> Head:
    """Raises :class:`MalformedFrameError`: no head, or of a message that is too large."""
    number, zero, size_bytes, request = _HEAD.unpack(data)
    kind = _KINDS.get(number)
    if kind is None or zero:
        raise MalformedFrameError(f"a message of kind {number}, {zero}")
    if size_bytes > kind.size_max:
        raise MalformedFrameError(f"a {kind.name} of {size_bytes} bytes")
    return Head(kind, size_bytes, request)


@unique
class Purpose(Enum):
    """What a connection is for; the numbers are the wire's."""

    ADDS = 1
    REQUESTS = 2


@unique
class Reason(Enum):
    """Why a bookie ends a stream or a request; the numbers are the wire's."""

    MALFORMED = 1
    """What the client sent does not parse: what follows means nothing."""
    NO_ROOM = 2
    """Others need the room that the client keeps; it may come again."""
    NOT_MEANT = 3
    """The client means another bookie."""
    NOT_ALLOWED = 4
    """Whoever has the client's certificate may not do that."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Whom a client means, or who a bookie is; empty texts are not compared."""

    bookie_id: str
    instance_id: str
    """The cluster's."""
    version: str
    purpose: Purpose | None = None
    """The client's."""

    def means(self, bookie_id: str, instance_id: str) -> bool:
        """Whether this may be said to, or by, the bookie of this id and cluster."""
        pairs = ((self.bookie_id, bookie_id), (self.instance_id, instance_id))
        return all(not one or not other or one == other for one, other in pairs)


def encode_hello(hello: Hello) -> bytes:
    """The first message of either side."""
    return pb.Hello(
        bookie_id=hello.bookie_id,
        instance_id=hello.instance_id,
        version=hello.version,
        purpose=hello.purpose.name if hello.purpose is not None else "NOTHING",
    ).SerializeToString()


def parse_hello(data: bytes) -> Hello:
    """Raises :class:`MalformedFrameError`; a purpose that is not known here is ``None``."""
    message = parse_message(pb.Hello(), data)
    purpose = next((each for each in Purpose if each.value == message.purpose), None)
    return Hello(message.bookie_id, message.instance_id, message.version, purpose)


def encode_farewell(reason: Reason, detail: str) -> bytes:
    """A bookie's last message."""
    return pb.Farewell(reason=reason.name, detail=detail).SerializeToString()


def parse_farewell(data: bytes) -> tuple[Reason | None, str]:
    """Why, if that is known here, and for people. Raises :class:`MalformedFrameError`."""
    message = parse_message(pb.Farewell(), data)
    reason = next((each for each in Reason if each.value == message.reason), None)
    return reason, message.detail
