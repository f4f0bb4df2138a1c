"""What clients that speak Apache's protocol ask a bookie, and what they are answered."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bookie_server.wire.digest import master_key
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.doubles.records import records
from tests.doubles.rpc_peers import RpcPeer

PASSWORD_KEY = master_key(b"passwd")
LEDGER = 7
MIB = 1024 * 1024


def entry(entry_id: int, payload: bytes, ledger_id: int = LEDGER) -> bytes:
    return bytes(records([payload], entry_id, ledger_id=ledger_id))[4:]


def add(
    entry_id: int,
    payload: bytes,
    version: int,
    *,
    key: bytes = PASSWORD_KEY,
    ledger_id: int = LEDGER,
    flag: int | None = None,
) -> bytes:
    """An add's frame."""
    body = entry(entry_id, payload, ledger_id)
    request = messages.AddEntry(ledger_id, entry_id, key, body, flag=flag)
    return frame_of(request, version, entry_id)


def frame_of(request: messages.Request, version: int, number: int = 1) -> bytes:
    if version == v3.VERSION:
        return b"".join(v3.encode_request(number, request))
    assert isinstance(request, v2.Request)
    return b"".join(v2.encode_request(request))


async def answers_of(peer: RpcPeer, count: int, version: int) -> list[tuple[int, RpcStatus]]:
    """Entry and status of so many answers to adds and reads, as they come."""
    found: list[tuple[int, RpcStatus]] = []
    for _ in range(count):
        frame = await peer.receive()
        assert frame is not None
        parse = v3.parse_answer if version == v3.VERSION else v2.parse_answer
        answer = parse(frame[4:])
        assert isinstance(answer.reply, messages.AddReply | messages.ReadReply)
        found.append((answer.reply.entry_id, answer.status))
    return found


def all_ok(entry_ids: Iterable[int]) -> list[tuple[int, RpcStatus]]:
    return [(entry_id, RpcStatus.EOK) for entry_id in entry_ids]


async def read(peer: RpcPeer, entry_id: int) -> messages.ReadReply:
    frame = await peer.ask(frame_of(messages.ReadEntry(LEDGER, entry_id), v3.VERSION))
    assert frame is not None
    reply = v3.parse_answer(frame[4:]).reply
    assert isinstance(reply, messages.ReadReply)
    return reply


both_versions = pytest.mark.parametrize("version", [v2.VERSION, v3.VERSION])
