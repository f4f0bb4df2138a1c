"""Somebody between a client and a bookie who downgrades, repeats, changes or cuts: over TLS he can only keep them apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from bookie_server.client.connecting import connect_to
from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import AUTO, RPC_V2, RPC_V3, ConnectionSettings
from bookie_server.wire.messages import BookieInfo, ReadRequest, Status
from bookie_server.wire.rpc import messages, v3
from bookie_server.wire.rpc.statuses import RpcStatus
from bookkeeper_metadata.endpoints import BOOKIE_RPC, GRPC, SOCKET
from tests.doubles.certificates import Authority, serving_with, settings_of
from tests.doubles.records import encoded_section, write
from tests.doubles.serving import Ports, serving_all
from tests.doubles.storage import running_bookie

pytestmark = pytest.mark.integration

LEDGER = 7
PAYLOAD = b"between us" * 300
SETTINGS = ConnectionSettings(
    read_timeout_ms=2_000, add_timeout_ms=2_000, reconnect_timeout_ms=1_000
)
CARRIERS = {
    "grpc": (GRPC, AUTO),
    "sockets": (SOCKET, AUTO),
    "rpc-v2": (BOOKIE_RPC, RPC_V2),
    "rpc-v3": (BOOKIE_RPC, RPC_V3),
}
Tamper = Callable[[bytes], bytes]


@dataclass
class Between:
    """Passes on what comes, each way as it likes; keeps what a client said."""

    host: str
    port: int
    to_bookie: Tamper = bytes
    to_client: Tamper = bytes
    said: list[bytes] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, back = await asyncio.open_connection(self.host, self.port)
            try:
                await asyncio.gather(
                    self._pass(reader, back, lambda data: self.to_bookie(data), keeps=True),
                    self._pass(there, writer, lambda data: self.to_client(data)),
                )
            finally:
                back.close()
        writer.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tamper: Tamper,
        *,
        keeps: bool = False,
    ) -> None:
        try:
            while data := await reader.read(64 * 1024):
                if keeps:
                    self.said.append(data)
                writer.write(tamper(data))
                await writer.drain()
        finally:
            writer.close()


@dataclass
class Scene:
    ports: Ports
    authority: Authority
    between: Between
    client: BookieClient
    ledgers: Callable[[], set[int]]


@asynccontextmanager
async def scene(place: Path, carrier: str) -> AsyncIterator[Scene]:
    protocol, bookie_protocol = CARRIERS[carrier]
    authority = Authority(place / "certificates")
    tls = serving_with(authority.files("bookie"))
    async with (
        running_bookie(place) as bookie,
        serving_all(bookie, BookieInfo("b:1"), place, tls) as ports,
    ):
        endpoint = ports.endpoint(protocol)
        between = Between(endpoint.host, endpoint.port)
        server = await asyncio.start_server(between.meet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        settings = replace(SETTINGS, **settings_of(authority.files("task")))
        client = connect_to(
            "b:1", replace(endpoint, port=port), settings, bookie_protocol=bookie_protocol
        )
        try:
            yield Scene(
                ports, authority, between, client, lambda: set(bookie.storage.contents.ledgers)
            )
        finally:
            await client.close()
            server.close()


each_carrier = pytest.mark.parametrize("carrier", list(CARRIERS))


@each_carrier
async def test_he_reads_nothing(carrier: str, tmp_path: Path) -> None:
    async with scene(tmp_path, carrier) as met:
        assert await write(met.client, encoded_section([PAYLOAD], 0)) is Status.OK
        said = b"".join(met.between.said)
        assert len(said) > len(PAYLOAD)
        assert b"between us" not in said


@each_carrier
@pytest.mark.parametrize("seed", range(4))
async def test_what_he_changes_is_refused_on_either_side(
    carrier: str, seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    async with scene(tmp_path, carrier) as met:
        assert await write(met.client, encoded_section([PAYLOAD], 0)) is Status.OK

        def change(data: bytes) -> bytes:
            at = random.randrange(len(data))
            return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]

        side = "to_bookie" if seed % 2 else "to_client"
        setattr(met.between, side, change)
        if side == "to_bookie":
            assert await write(met.client, encoded_section([b"another"], 0, ledger_id=8)) is (
                Status.UNREACHABLE
            )
            assert met.ledgers() == {LEDGER}
        else:
            request = ReadRequest(ledger_id=LEDGER, first_entry=0, last_entry=0)
            reply = await met.client.read(request)
            assert [each.status for each in reply.missing] == [Status.UNREACHABLE]
        setattr(met.between, side, bytes)
        request = ReadRequest(ledger_id=LEDGER, first_entry=0, last_entry=0)
        async with asyncio.timeout(60):
            while not (reply := await met.client.read(request)).runs:
                pass
        assert bytes(reply.runs[0].record(0)).endswith(PAYLOAD)


@each_carrier
async def test_what_he_repeats_is_heard_by_nobody(carrier: str, tmp_path: Path) -> None:
    """All that a client said, its handshake and its adds, once more on a connection of his own."""
    async with scene(tmp_path, carrier) as met:
        assert await write(met.client, encoded_section([PAYLOAD], 0)) is Status.OK
        said = list(met.between.said)
        adds = met.ports.service.bookie.measures.adds
        before = adds.granted.count, adds.failed.count
        reader, writer = await asyncio.open_connection(met.between.host, met.between.port)
        for data in said:
            writer.write(data)
        writer.write_eof()
        with suppress(OSError):
            async with asyncio.timeout(60):
                while await reader.read(64 * 1024):
                    pass
        writer.close()
        assert (adds.granted.count, adds.failed.count) == before


START_TLS = b"".join(v3.encode_request(0, messages.StartTls()))


@pytest.mark.parametrize("carrier", ["rpc-v2", "rpc-v3"])
@pytest.mark.parametrize("says", ["no", "yes", "nothing"])
async def test_start_tls_cannot_be_taken_away(carrier: str, says: str, tmp_path: Path) -> None:
    """He answers for the bookie that there is no TLS, or that there is, and waits for what is said in clear then."""
    async with scene(tmp_path, carrier) as met:
        status = RpcStatus.EOK if says == "yes" else RpcStatus.EBADREQ
        head = v3.parse_request(memoryview(START_TLS)[4:]).head
        answer = b"".join(v3.encode_answer(v3.Answer(head, status, messages.StartTls())))
        met.between.to_bookie = lambda data: b"" if data == START_TLS else data
        met.between.to_client = lambda data: data
        heard: list[bytes] = []

        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.read(1_000))
            writer.write(b"" if says == "nothing" else answer)
            with suppress(OSError):
                while data := await reader.read(64 * 1024):
                    heard.append(data)
            writer.close()

        server = await asyncio.start_server(pretend, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        protocol, bookie_protocol = CARRIERS[carrier]
        settings = replace(SETTINGS, **settings_of(met.authority.files("task")))
        endpoint = replace(met.ports.endpoint(protocol), port=port)
        client = connect_to("b:1", endpoint, settings, bookie_protocol=bookie_protocol)
        section = encoded_section([PAYLOAD], 0)
        assert await write(client, section) is Status.UNREACHABLE
        await client.close()
        server.close()
        assert heard
        assert all(b"between us" not in data for data in heard)
        # A client whose time is over may end a connection before it has said anything.
        assert all(data in {b"", START_TLS} or data[:1] == b"\x16" for data in heard), (
            "a handshake at most"
        )
