"""BookieClient over Apache's protocol: adds and plain reads in version 2, recovery and all else in version 3.

Apache's bookies answer some questions before it is safe to believe them:

* READ_LAC says ENOENTRY whatever the reason for having nothing is; so that is asked again as a read of the last entry.
* That an entry is absent is told to one that fences before the fence is durable. It counts once a FORCE_LEDGER behind
  it is answered: that waits for all that was journalled before.
* A batch read ends at the first entry that is not there without a word: what lies behind was not reached.
* A list of entries is not answered at all by some kinds of storage; then what is held is found by reading.

Who answers at the address cannot be asked: the protocol has no word for it.
Source: Apache BookKeeper 4.18.0, as it was seen to answer (tests/golden/apache).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from bookie_server.carrier.connection import Connection
from bookie_server.carrier.sockets import connect
from bookie_server.client.interface import BookieClient
from bookie_server.client.message_stream import MessageStream, StreamEndedError
from bookie_server.client.opener import OpenBytes, Opener
from bookie_server.client.read_stream import unreachable
from bookie_server.client.rpc.adds import RpcAdds
from bookie_server.client.rpc.lists import RpcLists
from bookie_server.client.rpc.reads import RpcReads
from bookie_server.client.rpc.requests import Batches, Questions
from bookie_server.client.rpc.start_tls import start_tls
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.write_stream import WriteStream
from bookie_server.core.explicit_lac import lac_of_packet
from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    LongPoll,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
)
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.sections import record_of
from bookie_server.wire.rpc.statuses import RpcStatus, meaning_of
from bookkeeper_metadata.foundation.tls.contexts import Tls
from bookkeeper_metadata.model import NO_ENTRY_ID


class RpcBookieClient(BookieClient):
    """Connects on first use; must be made and used on one event loop."""

    def __init__(
        self,
        bookie_id: str,
        open_bytes: OpenBytes,
        settings: ConnectionSettings,
        version: int = v2.VERSION,
        *,
        random: Random | None = None,
        greet: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        """``version`` is that of adds and plain reads; of recovery's, and of all else, it is 3.

        ``greet`` is what comes first on each connection, if anything does.
        """
        self.bookie_id = bookie_id
        self._timeout_s = settings.read_timeout_ms / 1000
        self._add_timeout_s = settings.add_timeout_ms / 1000
        self._opener = Opener(bookie_id, open_bytes, settings, random)
        self._greet = greet
        open_adds = partial(self._open_adds, version)
        self._writes = WriteStream(open_adds, settings, bookie_id)
        # An answer of version 2 does not tell the adds of a writer from those of its recovery.
        open_recovery = partial(self._open_adds, v3.VERSION)
        self._recovery_writes = WriteStream(open_recovery, settings, bookie_id)
        open_requests = partial(self._opener.open, greet, is_patient=False)
        self._questions = Questions(open_requests)
        self._batches = Batches(open_requests)
        self._reads = RpcReads(
            self._ask,
            self._is_forced_since,
            lambda: self._questions.connection_number,
            partial(self._batches.ask, timeout_s=self._timeout_s),
            has_batches=version == v2.VERSION,
        )
        self._lists = RpcLists(self._ask, self.read, self._is_there)
        self._is_closed = False

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        writes = self._recovery_writes if section.is_recovery else self._writes
        writes.write(section, done)

    async def read(self, request: ReadRequest) -> ReadReply:
        return unreachable(request) if self._is_closed else await self._reads.read(request)

    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        if request.long_poll is not None:
            return await self._poll(request.ledger_id, request.long_poll)
        if not request.is_fencing:
            return await self._read_lac(request.ledger_id)
        flag, key = messages.READ_FLAG_FENCE, request.master_key
        ledger_id, connection = request.ledger_id, self._questions.connection_number
        last = messages.ReadEntry(ledger_id, NO_ENTRY_ID, key, flag=flag)
        fenced = await self._last_entry(last)
        is_denied = fenced.status.is_evidence_of_absence
        if is_denied and not await self._is_forced_since(connection, ledger_id):
            return ReadLacReply(Status.UNKNOWN)
        if fenced.status is Status.OK or is_denied:
            # A hint, which its writer left; whoever recovers is glad to have it, and can do without.
            hint = await self._ask(messages.ReadLac(ledger_id))
            packet = _packet_in(hint)
            status = Status.OK if packet is not None else fenced.status
            return ReadLacReply(status, fenced.last_entry, packet)
        return fenced

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        lac = lac_of_packet(packet)
        answer = await self._ask(messages.WriteLac(ledger_id, lac, master_key, packet))
        return _status_of(answer)

    async def info(self) -> BookieInfo | None:
        wanted = messages.INFO_TOTAL_BYTES | messages.INFO_FREE_BYTES
        answer = await self._ask(messages.GetInfo(wanted))
        reply = answer.reply if answer is not None else None
        if answer is None or answer.status is not RpcStatus.EOK:
            return None
        if not isinstance(reply, messages.InfoReply):
            return None
        return BookieInfo(
            self.bookie_id,
            disk_total_bytes=reply.total_bytes or 0,
            disk_free_bytes=reply.free_bytes or 0,
        )

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        return await self._lists.page(ledger_id, first_entry)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            streams = (self._writes, self._recovery_writes, self._questions, self._batches)
            await asyncio.gather(*(stream.close() for stream in streams))

    # -- the LAC ----------------------------------------------------------------------------------

    async def _read_lac(self, ledger_id: int) -> ReadLacReply:
        answer = await self._ask(messages.ReadLac(ledger_id))
        if answer is None:
            return ReadLacReply(Status.UNREACHABLE)
        if answer.status is RpcStatus.ENOENTRY:
            return await self._last_entry(messages.ReadEntry(ledger_id, NO_ENTRY_ID))
        reply = answer.reply
        if answer.status is not RpcStatus.EOK or not isinstance(reply, messages.LacReply):
            return ReadLacReply(_status_of(answer))
        last = record_of(reply.last_entry) if reply.last_entry is not None else None
        return ReadLacReply(Status.OK, last, _packet_in(answer))

    async def _last_entry(self, request: messages.ReadEntry) -> ReadLacReply:
        answer = await self._ask(request)
        reply = answer.reply if answer is not None else None
        if answer is None or answer.status is not RpcStatus.EOK:
            return ReadLacReply(_status_of(answer))
        if not isinstance(reply, messages.ReadReply) or reply.body is None:
            return ReadLacReply(Status.UNREACHABLE)
        return ReadLacReply(Status.OK, record_of(reply.body))

    async def _poll(self, ledger_id: int, poll: LongPoll) -> ReadLacReply:
        """Wait for news; what comes with them is a number and an entry, so their proof is asked for."""
        answer = await self._ask(
            messages.ReadEntry(
                ledger_id,
                NO_ENTRY_ID,
                previous_lac=poll.previous_lac,
                timeout_ms=poll.timeout_ms,
                flag=messages.READ_FLAG_PIGGYBACK,
            ),
            waits_ms=poll.timeout_ms,
        )
        reply = answer.reply if answer is not None else None
        if answer is None or answer.status is not RpcStatus.EOK:
            return ReadLacReply(_status_of(answer))
        if not isinstance(reply, messages.ReadReply):
            return ReadLacReply(Status.UNREACHABLE)
        if reply.max_lac is None or reply.max_lac <= poll.previous_lac:
            return ReadLacReply(Status.OK)
        proof = await self._read_lac(ledger_id)
        if reply.body is None or not poll.size_bytes_max:
            return proof
        return ReadLacReply(
            proof.status, proof.last_entry, proof.explicit_lac, record_of(reply.body)
        )

    # -- connections ------------------------------------------------------------------------------

    async def _ask(
        self, request: messages.Request, priority: int = 0, waits_ms: int = 0
    ) -> v3.Answer | None:
        """The answer to a request; ``None`` if there is none in time."""
        if self._is_closed:
            return None
        return await self._questions.ask((request, priority), self._timeout_s + waits_ms / 1000)

    async def _is_there(self) -> bool:
        return await self.info() is not None

    async def _is_forced_since(self, connection: int, ledger_id: int) -> bool:
        """Whether all that was journalled of the ledger by what came by that connection is durable.

        By another one it would be another process that answers, which may have lost a fence.
        """
        answer = await self._ask(messages.ForceLedger(ledger_id))
        is_forced = answer is not None and answer.status is RpcStatus.EOK
        return is_forced and self._questions.connection_number == connection

    async def _open_adds(self, version: int) -> MessageStream:
        try:
            connection = await self._opener.open(self._greet, is_patient=True)
            return RpcAdds(connection, version, self._add_timeout_s)
        except ConnectionError as error:
            raise StreamEndedError(str(error)) from error


def _status_of(answer: v3.Answer | None) -> Status:
    return Status.UNREACHABLE if answer is None else meaning_of(answer.status)


def _packet_in(answer: v3.Answer | None) -> bytes | None:
    reply = answer.reply if answer is not None else None
    if not isinstance(reply, messages.LacReply) or reply.packet is None:
        return None
    return bytes(reply.packet)


def rpc_over_tcp(
    bookie_id: str,
    address: str,
    settings: ConnectionSettings,
    version: int = v2.VERSION,
    tls: Tls | None = None,
) -> RpcBookieClient:
    """The client of the bookie that listens for Apache's protocol at ``host:port``; in clear without ``tls``."""
    host, _, port = address.rpartition(":")
    open_bytes = partial(connect, host, int(port))
    greet = None if tls is None else partial(start_tls, tls=tls, host=host)
    return RpcBookieClient(bookie_id, open_bytes, settings, version, greet=greet)
