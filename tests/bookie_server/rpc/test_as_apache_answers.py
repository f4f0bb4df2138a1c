"""A bookie that is asked what Apache's was asked answers what Apache's answered, byte for byte; where it does not, this says how."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.wire.digest import master_key
from bookie_server.wire.record import encode_lac_packet
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.frames import is_of_v2
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.bookie_server.wire.rpc.transcripts import CLOSED, SILENCE, Exchange, exchanges
from tests.doubles.records import CRC32C
from tests.doubles.rpc_peers import RpcPeer, ServedRpc, serving_rpc
from tests.doubles.waits import until

pytestmark = pytest.mark.integration

KEEPS_THE_FIRST = "an entry is stored once, and what differs is refused"
OTHER_STATUS = {
    # title: (status, why)
    "ADD_ENTRY again, other bytes": (RpcStatus.EIO, KEEPS_THE_FIRST),
    "ADD_ENTRY whose fields say entry 9 but whose body is entry 1": (
        RpcStatus.EBADREQ,
        "what it says of itself contradicts itself",
    ),
}
NOT_COMPARED = {
    "READ_ENTRY after a conflicting add": KEEPS_THE_FIRST,
    "READ_ENTRY 1 after that": "there is none",
    "GET_LIST_OF_ENTRIES": "entry 1 was not stored",
    "GET_BOOKIE_INFO both": "every disk has its own size",
}
MEANWHILE = "waits; meanwhile another connection "


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedRpc]:
    async with serving_rpc(tmp_path) as served:
        yield served


def status_of(frame: bytes) -> RpcStatus:
    body = frame[4:]
    return v2.parse_answer(body).status if is_of_v2(body) else v3.parse_answer(body).status


@pytest.mark.parametrize("storage", ["db", "sorted"])
@pytest.mark.parametrize("transcript", ["v3_basic", "v3_fencing", "v2_basic"])
async def test_a_transcript_comes_out_as_it_was_recorded(
    served: ServedRpc, storage: str, transcript: str
) -> None:
    peers: dict[int, RpcPeer] = {}
    for exchange in exchanges(f"{storage}/{transcript}.txt"):
        if exchange.connection not in peers:
            peers[exchange.connection] = await served.connect()
        peer = peers[exchange.connection]
        answer = await peer.ask(exchange.sent)
        if exchange.received == CLOSED:
            assert answer is None, exchange
            continue
        assert answer is not None, exchange
        if exchange.title in OTHER_STATUS:
            assert status_of(answer) is OTHER_STATUS[exchange.title][0], exchange
        elif exchange.title not in NOT_COMPARED and exchange.received != SILENCE:
            assert answer.hex() == exchange.sent_back.hex(), exchange


# -- long polls, which wait for what others do ------------------------------------------------------------------

LONG_POLLS = {
    storage: {each.title: each for each in exchanges(f"{storage}/v3_long_poll.txt")}
    for storage in ("db", "sorted")
}


def without_time(answer: v3.Answer) -> v3.Answer:
    assert isinstance(answer.reply, messages.ReadReply)
    return replace(answer, reply=replace(answer.reply, lac_update_ms=None))


def entry_in(exchange: Exchange) -> bytes:
    """The entry that an answer brought."""
    reply = v3.parse_answer(exchange.response).reply
    assert isinstance(reply, messages.ReadReply)
    assert reply.body is not None
    return bytes(reply.body)


def an_add(entry: bytes) -> bytes:
    """Adds an entry, which says itself which one it is."""
    ids = int.from_bytes(entry[:8]), int.from_bytes(entry[8:16])
    add = messages.AddEntry(*ids, master_key(b"passwd"), entry)
    return b"".join(v3.encode_request(1, add))


@pytest.mark.parametrize("storage", ["db", "sorted"])
async def test_long_polls_are_answered_as_they_were(served: ServedRpc, storage: str) -> None:
    polls = LONG_POLLS[storage]
    waiting, doing = await served.connect(), await served.connect()

    async def is_answered(title: str) -> None:
        answer, wanted = await waiting.ask(polls[title].sent), polls[title]
        assert answer is not None
        assert answer.hex() == wanted.sent_back.hex(), title

    async def is_answered_behind(title: str, act: bytes) -> None:
        await waiting.send(polls[title].sent)
        await until(lambda: served.bookie.lac_watch.waiter_count == 1)
        assert (answered := await doing.ask(act)) is not None
        assert status_of(answered) is RpcStatus.EOK
        answer = await waiting.receive()
        assert answer is not None
        found, wanted = v3.parse_answer(answer[4:]), v3.parse_answer(polls[title].response)
        assert without_time(found) == without_time(wanted), title
        assert isinstance(found.reply, messages.ReadReply)
        has_waited_for_entry = found.reply.body is not None
        assert (found.reply.lac_update_ms is not None) == has_waited_for_entry

    await is_answered("unknown ledger")
    first = entry_in(
        polls["LAC already beyond previousLAC: answered at once with entry previousLAC+1"]
    )
    second = entry_in(polls[f"{MEANWHILE}adds entry 2 with LAC 1"])
    third = entry_in(polls[f"{MEANWHILE}writes the explicit LAC 2"])
    ledger_id = int.from_bytes(first[:8])
    await doing.ask(an_add(first))
    await is_answered("no news: answered after timeOut with EOK, maxLAC -1, entry -1, no body")
    await doing.ask(an_add(second))
    await is_answered("LAC already beyond previousLAC: answered at once with entry previousLAC+1")
    await is_answered_behind(f"{MEANWHILE}adds entry 2 with LAC 1", an_add(third))
    packet = encode_lac_packet(CRC32C, ledger_id, 2)
    write_lac = messages.WriteLac(ledger_id, 2, master_key(b"passwd"), packet)
    await is_answered_behind(
        f"{MEANWHILE}writes the explicit LAC 2", b"".join(v3.encode_request(1, write_lac))
    )
    fence = messages.ReadEntry(ledger_id, -1, master_key(b"passwd"), flag=messages.READ_FLAG_FENCE)
    await is_answered_behind(f"{MEANWHILE}fences", b"".join(v3.encode_request(2, fence)))
    await is_answered("PIGGYBACK without previousLAC")
    await is_answered("PIGGYBACK with an entry id")
