"""Answers to adds, which go out one for each entry: many at once, as bytes of one message.

The same as :mod:`bookie_server.wire.rpc.v2` and ``v3`` encode, with what all have in common encoded once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from bookie_server.wire.messages import SectionReply, Status
from bookie_server.wire.rpc import v2, v3
from bookie_server.wire.rpc.incoming import RpcSectionReply
from bookie_server.wire.rpc.protobuf import encode_head, encode_number, encode_varint
from bookie_server.wire.rpc.statuses import RpcStatus, answer_of
from bookkeeper_metadata.foundation.invariant import invariant

_LENGTH = struct.Struct(">i")
_V2_ANSWER = struct.Struct(">ibbhiqq")
_V2_SIZE = _V2_ANSWER.size - _LENGTH.size
_WRITER_GOES_ELSEWHERE = {Status.DELETED: RpcStatus.EFENCED, Status.LIMBO: RpcStatus.EIO}


def answer_to_add(status: Status) -> RpcStatus:
    """How a bookie says it to a writer: of a deleted ledger as of one that was fenced, and of limbo, for which
    Apache's writers have no case, as of a disk that fails."""
    return _WRITER_GOES_ELSEWHERE.get(status) or answer_of(status)


def encode_add_replies(replies: Sequence[SectionReply]) -> bytes:
    """The answers to all entries of these sections, in order."""
    frames: list[bytes] = []
    for reply in replies:
        invariant(isinstance(reply, RpcSectionReply), "whose client knows nothing of sections")
        assert isinstance(reply, RpcSectionReply)
        frames += _of_v3(reply) if reply.numbers else _of_v2(reply)
    return b"".join(frames)


def _of_v2(reply: RpcSectionReply) -> Iterator[bytes]:
    code = answer_to_add(reply.status).number_in_v2
    for entry_id in reply.entry_ids:
        yield _V2_ANSWER.pack(_V2_SIZE, v2.VERSION, v2.ADD, 0, code, reply.ledger_id, entry_id)


def _of_v3(reply: RpcSectionReply) -> Iterator[bytes]:
    status = answer_to_add(reply.status).value
    head_front = v3.encode_front_of_head(v3.OPERATION_OF_ADD)
    status_part = encode_number(v3.STATUS, status)
    body_front = encode_number(1, status) + encode_number(2, reply.ledger_id) + b"\x18"
    for number, entry_id in zip(reply.numbers, reply.entry_ids, strict=True):
        head = head_front + encode_varint(number)
        body = body_front + encode_varint(entry_id)
        frame = b"".join(
            (
                encode_head(v3.HEADER, len(head)),
                head,
                status_part,
                encode_head(v3.ADD_REPLY, len(body)),
                body,
            )
        )
        yield _LENGTH.pack(len(frame)) + frame
