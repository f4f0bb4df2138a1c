"""BookieService: a bookie's answers to its clients' messages, whatever carries them; no decisions.

What breaks a limit is answered BAD_REQUEST; what does not parse is refused.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bookie_server.bookie import Bookie
from bookie_server.core.roles import Roles
from bookie_server.memory.budget import Room
from bookie_server.memory.frames import FramesInProgress, PromisedMemory
from bookie_server.memory.slots import Places, SharedPlaces, Slots
from bookie_server.serving.adds import AddCarrier, AddStream, F
from bookie_server.serving.reads import (
    COPIES_OF_REPLY,
    READS_IN_FLIGHT_MAX,
    ReadLimits,
    Reads,
    SendReply,
)
from bookie_server.serving.refusal import RefusedError
from bookie_server.wire import codec
from bookie_server.wire.envelope import Reason
from bookie_server.wire.messages import BookieInfo, Method, Status

_AUDIT = logging.getLogger("bookie_server.audit")
"""Who was refused what; the name never changes, so that it can be kept by itself."""


class DiskUsage(NamedTuple):
    """In bytes."""

    total: int
    used: int
    free: int


PLACES_OF_EACH, PLACES_SHARED = 16, 8_192
"""Requests that wait as tasks, of about 4 KiB each: of every connection, reads and others apart, and of all of them beside; and
as many long polls."""


class BookieService:
    """What carriers serve of one :class:`Bookie`; ``client`` names a connection in all of it.

    ``identity`` is what the bookie answers to ``Info``, its numbers aside; the disk it reports is that
    of ``directory``, the first for ledgers.
    """

    def __init__(
        self, bookie: Bookie, identity: BookieInfo, directory: str, roles: Roles | None = None
    ) -> None:
        """``roles``: ``None`` where clients are not asked who they are."""
        self.identity = identity
        self._roles = roles
        self.bookie = bookie
        self.memory = PromisedMemory(bookie.adds_in_progress, bookie)
        self.listing = asyncio.Lock()
        """Held by whoever lists a whole ledger's entries in one answer."""
        self.is_draining = False
        """Set when the bookie stops: no more frames are taken from streams."""
        self._directory = directory
        self._asking_disk: asyncio.Future[Any] | None = None
        self._slots_of_reads = Slots(READS_IN_FLIGHT_MAX)
        self._places = SharedPlaces(PLACES_OF_EACH, PLACES_SHARED)
        self._places_of_polls = SharedPlaces(PLACES_OF_EACH, PLACES_SHARED)
        self._methods: Mapping[Method, Callable[[bytes, Room], Awaitable[bytes]]] = {
            Method.READ_LAC: self._read_lac,
            Method.WRITE_LAC: self._write_lac,
            Method.INFO: self._info,
            Method.LIST_ENTRIES: self._list_entries,
        }

    @property
    def has_roles(self) -> bool:
        """Whether it matters who clients are."""
        return self._roles is not None

    def authorize(self, client: str, common_name: str, method: Method | None = None) -> None:
        """Look whether whoever has this certificate may make such a request; ``None``: may use the connection at all.

        Raises:
            RefusedError: it may not.
        """
        if self._roles is None or self._roles.allow(common_name, method):
            return
        request = "CONNECT" if method is None else method.name
        _AUDIT.warning("refused. peer=%s name=%r request=%s", client, common_name, request)
        detail = f"the certificate's name may not do that; name={common_name!r} request={request}"
        raise RefusedError(Reason.NOT_ALLOWED, detail)

    async def serve_adds(self, client: str, carrier: AddCarrier[F]) -> None:
        """Serve a stream of adds to its end.

        Raises:
            RefusedError: it is ended from here, and the carrier tells the client why.
        """
        in_progress = FramesInProgress(self.memory, client)
        stream = AddStream(self.bookie, in_progress, carrier, lambda: self.is_draining)
        try:
            await stream.serve()
        except RefusedError as refused:
            self._count(refused)
            raise

    def reads(
        self,
        client: str,
        send: SendReply,
        *,
        parked_max: int = READS_IN_FLIGHT_MAX,
        is_gone: Callable[[], bool] = lambda: False,
        takes_parts: bool = False,
    ) -> Reads:
        """What serves a stream of reads; ``is_gone`` and ``takes_parts`` are those of its limits."""
        slots, places = self.slots_of_reads(client), self.places(parked_max)
        limits = ReadLimits(slots, places, is_gone, takes_parts)
        return Reads(self.bookie, client, limits, send)

    def places(self, most: int) -> Places:
        """What a connection may ask for before it is served, over all kinds of work that takes them."""
        return self._places.of_connection(most)

    def places_of_polls(self, most: int) -> Places:
        """What a connection may have of requests that wait for others' adds, until their answers are sent."""
        return self._places_of_polls.of_connection(most)

    def slots_of_reads(self, client: str) -> asyncio.Semaphore:
        """How many reads of the client are executed at once, over all its streams."""
        return self._slots_of_reads.of(client)

    async def disk_usage(self) -> DiskUsage:
        """Of the first directory for ledgers."""
        # A sick disk may keep this waiting: not the loop with it, and no more than one of the threads that everybody uses.
        if self._asking_disk is None or self._asking_disk.done():
            asking = asyncio.to_thread(shutil.disk_usage, self._directory)
            self._asking_disk = asyncio.ensure_future(asking)
        return DiskUsage(*await asyncio.shield(self._asking_disk))

    def room_for_reply(self, client: str) -> Room:
        """Room of a reply, to be given back when the client has it."""
        return self.bookie.reads_in_progress.room(client)

    async def answer(self, method: Method, data: bytes, room: Room) -> bytes:
        """The reply to one request; ``room`` is what it takes until it is sent.

        Raises:
            RefusedError: it is no request.
        """
        try:
            return await self._methods[method](data, room)
        except codec.BadRequestError as refused:
            return refused.reply
        except codec.MalformedFrameError as error:
            raise self.malformed(error) from error

    def malformed(self, error: codec.MalformedFrameError) -> RefusedError:
        """Count it, and say it to the client."""
        refused = RefusedError(Reason.MALFORMED, str(error))
        self._count(refused)
        return refused

    def _count(self, refused: RefusedError) -> None:
        self.bookie.measures.malformed_count += refused.reason is Reason.MALFORMED

    async def _read_lac(self, data: bytes, room: Room) -> bytes:
        loop, measures = asyncio.get_running_loop(), self.bookie.measures
        request = codec.parse_read_lac_request(data)
        started_s = loop.time()
        reply = await self.bookie.read_lac(request, room)
        measures.read_bytes += len(reply.records)
        # To wait for news is what a long poll is for.
        if request.long_poll is None:
            refusal = None if reply.status is Status.OK else reply.status.name
            measures.lac_reads.add(loop.time() - started_s, refusal)
        frame = codec.encode_read_lac_reply(reply)
        room.resize(COPIES_OF_REPLY * len(frame))
        return frame

    async def _write_lac(self, data: bytes, _: Room) -> bytes:
        ledger_id, master_key, packet = codec.parse_write_lac_request(data)
        return codec.encode_status(await self.bookie.write_lac(ledger_id, master_key, packet))

    async def _info(self, data: bytes, _: Room) -> bytes:
        codec.parse_info_request(data)
        disk = await self.disk_usage()
        info = replace(
            self.identity,
            ledger_count=len(self.bookie.storage.contents.ledgers),
            disk_total_bytes=disk.total,
            disk_free_bytes=disk.free,
            limbo_count=self.bookie.measures.limbo_count,
        )
        return codec.encode_info(info)

    async def _list_entries(self, data: bytes, _: Room) -> bytes:
        request = codec.parse_list_entries_request(data)
        return codec.encode_entry_list(self.bookie.list_entries(request))
