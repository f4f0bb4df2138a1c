"""A bookie over plain sockets: connections of adds, and connections of requests.

The first message of a connection says whom its client means and what it is for; nothing else is read
of one that means another bookie. Not to read on is the back pressure: the kernel's buffers fill, and then
the client's. Room for a message is taken when its head has come, and memory only then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from bookie_server.carrier.connection import Connection, ConnectionEndedError
from bookie_server.memory.budget import Room
from bookie_server.serving.acceptor import Acceptor
from bookie_server.serving.noted import Noted
from bookie_server.serving.outbox import Outbox
from bookie_server.serving.refusal import RefusedError
from bookie_server.serving.server_tls import ServerTls
from bookie_server.serving.service import BookieService
from bookie_server.serving.socket_adds import AddConnection
from bookie_server.wire import codec
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.envelope import (
    METHODS,
    REPLY_KINDS,
    Head,
    Hello,
    Kind,
    Purpose,
    Reason,
    encode_farewell,
    encode_head,
    encode_hello,
    parse_hello,
)
from bookie_server.wire.messages import ReadLacReply, Status
from bookkeeper_metadata.foundation.tasks import end_tasks, has_failed

HELLO_WITHIN_S = 10.0
"""A connection that has not said what it is for by then is ended."""
FAREWELL_WITHIN_S = 1.0
"""So long a client that is refused may take to hear why."""
REQUESTS_IN_FLIGHT_MAX = 1_000
"""Requests of one connection that are served at once, and as many long polls; the others wait in the kernel's buffers."""
_TOO_MANY_POLLS = codec.encode_read_lac_reply(ReadLacReply(Status.BUSY))
_ASKED = frozenset({Kind.READ, Kind.GIVE_UP, *METHODS})
_LOGGER = logging.getLogger(__name__)


class SocketService(Acceptor):
    """See the module."""

    def __init__(
        self, service: BookieService, *, connections_max: int, tls: ServerTls | None = None
    ) -> None:
        super().__init__(connections_max, None if tls is None else tls.context)
        self._service = service
        self._missed = Noted()

    async def _talk(self, connection: Connection) -> None:
        try:
            await self._serve(connection)
        except ConnectionEndedError:
            pass  # whom the answers were for will ask again
        except RefusedError as refused:
            await self._part(connection, refused)
        except MalformedFrameError as error:
            await self._part(connection, self._service.malformed(error))
        except Exception:
            # A defect ends this connection, and none of the others.
            _LOGGER.exception("connection ended. peer=%s", connection.peer)
        finally:
            connection.close()

    async def _serve(self, connection: Connection) -> None:
        hello = await self._greet(connection)
        if hello is None:
            return
        if hello.purpose is Purpose.ADDS:
            await self._service.serve_adds(connection.peer, AddConnection(connection))
        elif hello.purpose is Purpose.REQUESTS:
            await _Requests(self._service, connection).serve()
        else:
            raise MalformedFrameError("a connection of no purpose known here")

    async def _greet(self, connection: Connection) -> Hello | None:
        """Who comes, and what for; ``None``: nobody did, or too slowly."""
        try:
            async with asyncio.timeout(HELLO_WITHIN_S):
                head = await connection.receive_head()
                if head is None:
                    return None
                if head.kind is not Kind.HELLO:
                    raise MalformedFrameError(f"a {head.kind.name} before any hello")
                hello = parse_hello(bytes(await connection.receive_body(head.size_bytes)))
        except TimeoutError:
            return None
        own = self._service.identity
        if not hello.means(own.bookie_id, own.instance_id):
            whom = f"this is bookie {own.bookie_id} of instance {own.instance_id}"
            # A stranger's words: they may be long, and have line ends.
            meant = f"{hello.bookie_id!r:.200} of {hello.instance_id!r:.200}"
            raise RefusedError(Reason.NOT_MEANT, f"{whom}; meant {meant}")
        self._service.authorize(connection.peer, connection.common_name)
        answer = Hello(own.bookie_id, own.instance_id, own.version)
        connection.send(Kind.WELCOME, (encode_hello(answer),))
        return hello

    async def _part(self, connection: Connection, refused: RefusedError) -> None:
        """Tell the client why, and wait a little for it to go: whoever closes first may take back what it said last."""
        # Who means another bookie looks for it again and again.
        if refused.reason is not Reason.NOT_MEANT or self._missed.is_news(refused.detail):
            _LOGGER.warning("connection refused. peer=%s detail=%s", connection.peer, refused)
        connection.send(Kind.FAREWELL, (encode_farewell(refused.reason, refused.detail),))
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_WITHIN_S):
                await connection.discard_all()


class _Requests:
    """One connection of reads and other requests; replies go out as they come to be."""

    def __init__(self, service: BookieService, connection: Connection) -> None:
        self._service = service
        self._connection = connection
        # Its own: a fence waits for no reads that are not begun.
        self._places = service.places(REQUESTS_IN_FLIGHT_MAX)
        self._places_of_polls = service.places_of_polls(REQUESTS_IN_FLIGHT_MAX)
        self._reads = service.reads(
            connection.peer,
            self._send_of_read,
            parked_max=REQUESTS_IN_FLIGHT_MAX,
            is_gone=lambda: connection.has_ended,
            takes_parts=True,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: dict[int, asyncio.Task[None]] = {}
        """By the numbers of the requests, reads aside."""
        self._outbox = Outbox(connection, service.room_for_reply)

    async def serve(self) -> None:
        """Serve until the client goes.

        Raises:
            MalformedFrameError: something was no request; what came before is answered.
            ConnectionEndedError: nobody is there any more.
        """
        malformed: MalformedFrameError | None = None
        try:
            try:
                while (head := await self._connection.receive_head()) is not None:
                    await self._take(head)
            except MalformedFrameError as error:
                malformed = error
            # Who has gone wants no news any more; what it reads it may take still.
            for task in self._unanswered.values() if malformed is None else ():
                task.cancel()
            await self._reads.finish()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if malformed is not None:
                raise malformed
        finally:
            await self._reads.close()
            await end_tasks(self._tasks)

    async def _take(self, head: Head) -> None:
        number = head.number
        # Before a byte of it is taken into memory.
        if head.kind not in _ASKED or (head.kind is Kind.GIVE_UP and head.size_bytes):
            raise MalformedFrameError(f"a {head.kind.name} of {head.size_bytes} among requests")
        data = bytes(await self._connection.receive_body(head.size_bytes))
        if head.kind is Kind.READ:
            await self._reads.take(data, number)
        elif head.kind is Kind.GIVE_UP:
            if number in self._unanswered:
                self._unanswered[number].cancel()
        elif number in self._unanswered:
            raise MalformedFrameError(f"request {number} twice")
        elif head.kind is Kind.READ_LAC and codec.is_long_poll(data):
            if give_back := await self._places_of_polls.take_free():
                self._begin(head, data, give_back)
            else:
                await self._send(REPLY_KINDS[head.kind], number, _TOO_MANY_POLLS)
        else:
            self._begin(head, data, await self._places.take())

    def _begin(self, head: Head, data: bytes, give_back: Callable[[], None]) -> None:
        task = asyncio.create_task(self._answer(head, data), name="answer")
        self._tasks.add(task)
        self._unanswered[head.number] = task
        task.add_done_callback(partial(self._on_done, head.number, give_back))

    def _on_done(
        self, number: int, give_back: Callable[[], None], task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        if self._unanswered.get(number) is task:
            del self._unanswered[number]
        give_back()
        has_failed(task)  # the connection has ended, and says so

    async def _answer(self, head: Head, data: bytes) -> None:
        with self._service.room_for_reply(self._connection.peer) as room:
            kind, method = REPLY_KINDS[head.kind], METHODS[head.kind]
            try:
                self._service.authorize(self._connection.peer, self._connection.common_name, method)
                reply = await self._service.answer(method, data, room)
            except RefusedError as refused:
                _LOGGER.warning(
                    "request refused. peer=%s detail=%s", self._connection.peer, refused
                )
                kind, reply = Kind.NOTHING, b""
            except Exception:
                # A defect ends the request it comes from, and no other.
                _LOGGER.exception("request failed. kind=%s", head.kind.name)
                kind, reply = Kind.NOTHING, b""
            # From here on nobody can give it up: its bytes are in memory until the client has taken them.
            del self._unanswered[head.number]
            await self._send(kind, head.number, reply)

    async def _send_of_read(self, number: int, parts: Sequence[Buffer], _: Room | None) -> None:
        await self._send(Kind.READ_REPLY, number, *parts)

    async def _send(self, kind: Kind, number: int, *parts: Buffer) -> None:
        head = Head(kind, sum(map(len, parts)), number)
        await self._outbox.send((encode_head(head), *parts))
