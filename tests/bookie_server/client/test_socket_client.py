"""A client of bookies that break the protocol on plain sockets: each question gets one sound answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from bookie_server.carrier.sockets import listen
from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import SocketBookieClient, over_tcp
from bookie_server.wire import add_frames, codec
from bookie_server.wire.envelope import (
    REPLY_KINDS,
    Head,
    Kind,
    Reason,
    encode_farewell,
    encode_head,
)
from bookie_server.wire.limits import FRAME_SIZE_MAX, HEADER_SIZE_MAX
from bookie_server.wire.messages import (
    BookieInfo,
    EntryList,
    IdRange,
    LongPoll,
    ReadLacReply,
    ReadLacRequest,
    ReadRequest,
    SectionReply,
    Status,
    StoredReply,
)
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.raw_sockets import Message, RawPeer, message, welcome
from tests.doubles.records import KEY, encoded_section, write
from tests.doubles.served_sockets import complaints_of
from tests.doubles.waits import until
from tests.patience import seconds

pytestmark = pytest.mark.integration

TIMEOUT_S = seconds(0.4)
SHORT = ConnectionSettings(
    add_timeout_ms=int(1000 * TIMEOUT_S),
    read_timeout_ms=int(1000 * TIMEOUT_S),
    reconnect_timeout_ms=int(500 * TIMEOUT_S),
)
LONG = ConnectionSettings(
    add_timeout_ms=60_000, read_timeout_ms=60_000, reconnect_timeout_ms=60_000
)
READ = ReadRequest(ledger_id=7, first_entry=0, last_entry=3)
POLL = ReadLacRequest(7, long_poll=LongPoll(previous_lac=-1, timeout_ms=20_000))
ABSENT = StoredReply((), (IdRange(0, 3, Status.NO_LEDGER),), -1)
SOUND = {
    Kind.FRAME: add_frames.encode_write_reply([SectionReply(7, 0, 0, False, Status.OK)]),
    Kind.READ: codec.encode_read_reply(0, ABSENT),
    Kind.READ_LAC: codec.encode_read_lac_reply(ReadLacReply(Status.NO_LEDGER)),
    Kind.WRITE_LAC: codec.encode_status(Status.OK),
    Kind.INFO: codec.encode_info(BookieInfo("bad:1")),
    Kind.LIST_ENTRIES: codec.encode_entry_list(EntryList(Status.NO_LEDGER)),
}
"""What a bookie that has nothing says."""
FAREWELL = message(Kind.FAREWELL, encode_farewell(Reason.MALFORMED, "so there"))

Conduct = Callable[[RawPeer], Awaitable[None]]
"""What a bookie does behind a client's hello; it ends the connection when it returns."""


@dataclass
class BadBookie:
    """Treats each connection as told; those beyond the last conduct like the last."""

    conducts: Collection[Conduct]
    heard: list[Message] = field(default_factory=list)
    connection_count: int = 0

    async def serve(self, peer: RawPeer) -> None:
        number, self.connection_count = self.connection_count, self.connection_count + 1
        conducts = list(self.conducts)
        peer.heard = self.heard
        try:
            assert (await peer.take()).kind is Kind.HELLO
            await conducts[min(number, len(conducts) - 1)](peer)
        except ConnectionError:
            pass  # the client is gone
        finally:
            peer.close()


@asynccontextmanager
async def client_of(
    *conducts: Conduct, settings: ConnectionSettings = SHORT
) -> AsyncIterator[tuple[SocketBookieClient, BadBookie]]:
    bookie, serving = BadBookie(conducts), set[asyncio.Task[None]]()
    loop = asyncio.get_running_loop()

    async def accept() -> None:
        while True:
            connected, _ = await loop.sock_accept(listener)
            serving.add(asyncio.create_task(bookie.serve(RawPeer(connected))))

    with listen("127.0.0.1", 0) as listener:
        serving.add(asyncio.create_task(accept()))
        _, port = listener.getsockname()
        client = over_tcp("bad:1", f"127.0.0.1:{port}", settings)
        try:
            yield client, bookie
        finally:
            await client.close()
            await end_tasks(serving)


def reply_to(asked: Message) -> bytes:
    """The sound one."""
    kind = REPLY_KINDS.get(asked.kind, Kind.WRITE_REPLY)
    return message(kind, SOUND[asked.kind], asked.number)


def with_bytes(sent: bytes, *, stays: bool = True) -> Conduct:
    """Say this to the hello, and then nothing, or nothing but the end."""

    async def conduct(peer: RawPeer) -> None:
        await peer.send(sent)
        while stays and await peer.receive():
            pass

    return conduct


def with_replies(reply: Callable[[Message], bytes], *, stays: bool = True) -> Conduct:
    """Welcome the client, and reply to whatever it asks."""

    async def conduct(peer: RawPeer) -> None:
        await peer.send(welcome())
        while (asked := await peer.receive()) is not None:
            await peer.send(reply(asked))
            if not stays:
                return

    return conduct


sound = with_replies(reply_to)


async def ask_everything(client: BookieClient) -> list[object]:
    """One of each question, all at once; what is said of the entries."""
    told: list[Status] = []
    client.write(encoded_section([b"x"]), told.append)
    fence = ReadLacRequest(7, is_fencing=True, master_key=KEY)
    read, lac, packet, info, page = await asyncio.gather(
        client.read(READ),
        client.read_lac(fence),
        client.write_lac(7, KEY, bytes(20)),
        client.info(),
        client.list_page(7, 0),
    )
    await until(lambda: bool(told))
    return [told, read.runs, read.missing, lac.status, packet, info, page.status]


UNREACHABLE = Status.UNREACHABLE
NOTHING_KNOWN = [
    [UNREACHABLE],
    (),
    (IdRange(0, 3, UNREACHABLE),),
    UNREACHABLE,
    UNREACHABLE,
    None,
    UNREACHABLE,
]
GREETINGS = {
    "the end": with_bytes(b"", stays=False),
    "silence": with_bytes(b""),
    "a farewell": with_bytes(FAREWELL),
    "another protocol": with_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "too much": with_bytes(encode_head(Head(Kind.WELCOME, HEADER_SIZE_MAX + 1))),
    "half a welcome": with_bytes(welcome("bad:1")[:-1]),
    "half a welcome, and the end": with_bytes(welcome("bad:1")[:-1], stays=False),
    "no protobuf": with_bytes(message(Kind.WELCOME, b"\xff" * 40)),
    "a reply": with_bytes(message(Kind.WRITE_REPLY, SOUND[Kind.FRAME])),
    "another bookie": with_bytes(welcome("bad:2") + message(Kind.WRITE_REPLY, SOUND[Kind.FRAME])),
}
REPLIES: dict[str, Conduct] = {
    "the end": with_replies(lambda _: b"", stays=False),
    "silence": with_replies(lambda _: b""),
    "a farewell": with_replies(lambda _: FAREWELL),
    "another protocol": with_replies(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "too much": with_replies(
        lambda asked: encode_head(Head(Kind.READ_REPLY, FRAME_SIZE_MAX + 1, asked.number))
    ),
    "much, not sent": with_replies(
        lambda asked: encode_head(Head(Kind.READ_REPLY, FRAME_SIZE_MAX, asked.number))
    ),
    "half a reply, and the end": with_replies(lambda asked: reply_to(asked)[:-1], stays=False),
    "to what nobody asked": with_replies(
        lambda asked: message(
            Kind.READ_REPLY if asked.number else Kind.WELCOME, SOUND[Kind.READ], asked.number + 99
        )
    ),
    "of another kind": with_replies(
        lambda asked: message(Kind.WRITE_REPLY if asked.number else Kind.INFO_REPLY, b"", asked.number)
    ),
    "that it came to nothing": with_replies(lambda asked: message(Kind.NOTHING, b"", asked.number)),
    "no protobuf": with_replies(
        lambda asked: message(
            REPLY_KINDS.get(asked.kind, Kind.WRITE_REPLY), b"\xff" * 40, asked.number
        )
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("conduct", GREETINGS.values(), ids=GREETINGS)
async def test_who_is_not_welcomed_knows_nothing_and_sends_nothing(
    conduct: Conduct, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(conduct) as (client, bookie):
        assert await ask_everything(client) == NOTHING_KNOWN
        assert {each.kind for each in bookie.heard} == {Kind.HELLO}

    assert complaints_of(caplog) == []


@pytest.mark.slow
@pytest.mark.parametrize("conduct", REPLIES.values(), ids=REPLIES)
async def test_what_is_no_reply_says_nothing_of_what_was_asked(
    conduct: Conduct, caplog: pytest.LogCaptureFixture
) -> None:
    """Never that there is no such entry."""
    async with client_of(conduct) as (client, _):
        assert await ask_everything(client) == NOTHING_KNOWN

    assert complaints_of(caplog) == []


async def test_sound_replies_are_taken_in_any_order_and_once() -> None:
    asked: list[Message] = []

    def reply(one: Message) -> bytes:
        if one.kind in (Kind.FRAME, Kind.READ):
            return 3 * reply_to(one)
        asked.append(one)
        return b"".join(2 * reply_to(each) for each in reversed(asked) if len(asked) == 4)

    async with client_of(with_replies(reply), settings=LONG) as (client, _):
        told, runs, missing, lac, packet, info, page = await ask_everything(client)

    assert told == [Status.OK]
    assert (runs, missing) == ((), ABSENT.missing)
    assert (lac, packet, page) == (Status.NO_LEDGER, Status.OK, Status.NO_LEDGER)
    assert info == BookieInfo("bad:1")


# -- bookies that come to their senses ---------------------------------------------------------------

SENSELESS = {
    **{f"greets with {name}": conduct for name, conduct in GREETINGS.items()},
    **{f"replies {name}": conduct for name, conduct in REPLIES.items()},
}
SILENT = ("silence", "not sent", "half a welcome", "nobody")
"""Words for those that the client must wait for."""


@pytest.mark.parametrize(
    "name", [name for name in SENSELESS if not any(each in name for each in SILENT)]
)
async def test_an_add_is_sent_again_to_a_bookie_that_comes_to_its_senses(name: str) -> None:
    conduct = SENSELESS[name]
    async with client_of(conduct, conduct, sound, settings=LONG) as (client, bookie):
        assert await write(client, encoded_section([b"x"])) is Status.OK
        assert bookie.connection_count == 3


STAYING = (
    "replies that it came to nothing",
    "replies no protobuf",
    "replies to what nobody asked",
    "replies silence",
    "replies much, not sent",
)
"""Their bookie is there as far as anybody but the kernel can tell, and its messages can be told apart."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SENSELESS)
async def test_a_read_after_nonsense_is_answered(name: str) -> None:
    """By another connection where the first cannot be trusted any more, or says nothing."""
    async with client_of(SENSELESS[name], sound) as (client, bookie):
        first = await client.read(READ)
        assert [part.status for part in first.missing] == [UNREACHABLE]
        if name in STAYING:
            return
        # The sound one has time, however slow the machine is, and is not waited for.
        opener = client._opener
        opener._timeout_s, opener._open_again_s = LONG.reconnect_timeout_ms / 1000, 0
        assert (await client.read(READ)).missing == ABSENT.missing
        assert bookie.connection_count == 2


async def test_a_bookie_that_dies_between_two_requests_is_found_again() -> None:
    mortal = with_replies(reply_to, stays=False)
    async with client_of(mortal, settings=LONG) as (client, bookie):
        for count in range(1, 4):
            assert (await client.read(READ)).missing == ABSENT.missing
            await until(lambda: client._requests._connection is None)
            assert bookie.connection_count == count


async def test_behind_a_farewell_nothing_more_is_asked_on_the_connection() -> None:
    """Requests that followed waited for their timeout where the bookie took its time to go."""

    def last_word(asked: Message) -> bytes:
        return reply_to(asked) + FAREWELL

    async with client_of(with_replies(last_word), settings=LONG) as (client, bookie):
        for count in range(1, 4):
            assert (await client.read(READ)).missing == ABSENT.missing
            await until(lambda: client._requests._connection is None)
            assert bookie.connection_count == count


@pytest.mark.parametrize("reason", [Reason.NO_ROOM, Reason.MALFORMED])
async def test_a_bookie_that_makes_room_for_others_does_not_count_as_away(reason: Reason) -> None:
    away: list[bool] = []
    farewell = message(Kind.FAREWELL, encode_farewell(reason, ""))

    async def crowded(peer: RawPeer) -> None:
        away.append(client._writes._lost_since_s is not None)
        await peer.send(welcome())
        frame = await peer.take()
        await peer.send(farewell if len(away) < 4 else reply_to(frame))
        await peer.receive()

    async with client_of(crowded, settings=LONG) as (client, _):
        assert await write(client, encoded_section([b"x"])) is Status.OK

    is_away = reason is not Reason.NO_ROOM
    assert away == [False, is_away, is_away, is_away]


async def test_who_waits_no_longer_says_so_and_takes_no_late_reply() -> None:
    async with client_of(with_replies(lambda asked: reply_to(asked) if asked.kind is Kind.READ else b""),
                         settings=LONG) as (client, bookie):  # fmt: skip
        waiting = asyncio.create_task(client.read_lac(POLL))
        await until(lambda: len(bookie.heard) == 2)
        await end_tasks([waiting])
        await until(lambda: len(bookie.heard) == 3)
        assert (await client.read(READ)).missing == ABSENT.missing

    _, poll, given_up, *_ = bookie.heard
    assert (given_up.kind, given_up.number) == (Kind.GIVE_UP, poll.number)


async def test_a_closed_client_answers_what_was_asked_and_asks_no_more() -> None:
    async with client_of(with_replies(lambda _: b""), settings=LONG) as (client, bookie):
        waiting = asyncio.create_task(ask_everything(client))
        await until(lambda: len(bookie.heard) == 2 + 6)
        await client.close()
        assert await waiting == NOTHING_KNOWN
        assert await ask_everything(client) == NOTHING_KNOWN
        assert len(bookie.heard) == 2 + 6


@pytest.mark.slow
@pytest.mark.parametrize("host", ["a..b", "x" * 70, "127.0.0.1"])
async def test_an_address_where_nobody_can_be_is_unreachable(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Names come from the registry, and some of them cannot even be looked up."""
    client = over_tcp("b:1", f"{host}:1", SHORT)

    for _ in range(2):
        assert await ask_everything(client) == NOTHING_KNOWN
        assert client._writes._runner is not None
        assert not client._writes._runner.done()

    await client.close()
    assert complaints_of(caplog) == []
