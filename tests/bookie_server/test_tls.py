"""A bookie with TLS, over every carrier: who may do what, what is refused in clear, and certificates that are replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from bookie_server.client.relay import RelayedBookieClient
from bookie_server.core.roles import Roles
from bookie_server.serving import acceptor
from bookie_server.wire.messages import ReadRequest, Status
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.statuses import RpcStatus
from bookkeeper_metadata.endpoints import BOOKIE_RPC, SOCKET
from bookkeeper_metadata.foundation.tls import contexts
from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from tests.doubles.certificates import HOST, Authority
from tests.doubles.records import encoded_section, write
from tests.doubles.secured_bookie import (
    IMPATIENT,
    SETTINGS,
    Secured,
    audited,
    each_carrier,
    serving,
)
from tests.doubles.waits import until, until_read
from tests.patience import seconds

pytestmark = pytest.mark.integration

LEDGER = 7


@each_carrier
async def test_a_client_adds_and_reads_and_is_not_told_what_a_bookie_holds(
    carrier: str, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    client = secured.client(carrier, secured.authority.files("task"))
    assert await write(client, encoded_section([b"secret"], 0)) is Status.OK
    reply = await client.read(ReadRequest(ledger_id=LEDGER, first_entry=0, last_entry=0))
    assert bytes(reply.runs[0].record(0)).endswith(b"secret")
    listed = await client.list_page(LEDGER, 0)
    assert listed.status in (Status.UNREACHABLE, Status.UNAUTHORIZED)
    assert not listed.held
    (line,) = audited(caplog)
    assert "name='task' request=LIST_ENTRIES" in line


@each_carrier
@pytest.mark.parametrize("name", ["bookie", "admin"])
async def test_bookies_and_operators_are_told(carrier: str, name: str, secured: Secured) -> None:
    client = secured.client(carrier, secured.authority.files(name))
    assert await write(client, encoded_section([b"secret"], 0)) is Status.OK
    listed = await client.list_page(LEDGER, 0)
    assert [(each.first_entry, each.last_entry) for each in listed.held] == [(0, 0)]


@each_carrier
async def test_a_name_without_a_role_is_refused_everything(
    carrier: str, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    client = secured.client(carrier, secured.authority.files("nobody"), IMPATIENT)
    assert await write(client, encoded_section([b"secret"], 0)) is Status.UNREACHABLE
    reply = await client.read(ReadRequest(ledger_id=LEDGER, first_entry=0, last_entry=0))
    assert [each.status for each in reply.missing] == [Status.UNREACHABLE]
    assert await client.info() is None
    assert LEDGER not in secured.bookie.storage.contents.ledgers
    assert audited(caplog)
    assert all("name='nobody'" in line for line in audited(caplog))


@pytest.mark.parametrize(
    ("carrier", "who"),
    [
        *product(("sockets", "rpc-v2", "rpc-v3"), ("without a certificate", "nobody")),
        ("grpc", "nobody"),
    ],
)
async def test_a_client_is_told_once_why_it_may_do_nothing(
    carrier: str, who: str, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    authority = secured.authority
    files = authority.files("nobody") if who == "nobody" else authority.trust_only
    client = secured.client(carrier, files, IMPATIENT)
    for _ in range(3):
        assert await client.info() is None
        assert await write(client, encoded_section([b"x"], 0)) is Status.UNREACHABLE
    told = [line for line in caplog.messages if "do not agree" in line]
    assert len(told) == 1, caplog.messages


async def test_those_who_come_to_no_terms_make_room_for_those_who_do(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKES_MAX", 2)
    host, _, port = secured.ports.socket_address.rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
    async with asyncio.timeout(seconds(8)):
        assert await silent[0][0].read(1) == b"", "the one that has taken longest goes"
    client = secured.client("sockets", secured.authority.files("task"))
    assert await client.info()
    for _, writer in silent:
        writer.close()


@each_carrier
@pytest.mark.parametrize("who", ["in clear", "without a certificate", "of a stranger"])
async def test_who_is_not_vouched_for_is_refused_everything(
    carrier: str, who: str, secured: Secured, tmp_path: Path
) -> None:
    files = None
    if who == "without a certificate":
        files = secured.authority.trust_only
    elif who == "of a stranger":
        unknown = Authority(tmp_path / "stranger").files("admin")
        files = replace(unknown, trust_path=str(secured.authority.trust_path))
    client = secured.client(carrier, files, IMPATIENT)
    assert await write(client, encoded_section([b"secret"], 0)) is Status.UNREACHABLE
    assert await client.info() is None
    assert LEDGER not in secured.bookie.storage.contents.ledgers


@each_carrier
async def test_a_bookie_that_is_not_vouched_for_hears_nothing(
    carrier: str, secured: Secured, tmp_path: Path
) -> None:
    """Whoever has taken its address must not be told a ledger's password, nor its entries."""
    client = secured.client(carrier, Authority(tmp_path / "other").files("task"), IMPATIENT)
    assert await write(client, encoded_section([b"secret"], 0)) is Status.UNREACHABLE
    assert LEDGER not in secured.bookie.storage.contents.ledgers


START_TLS = b"".join(v3.encode_request(1, messages.StartTls()))
INFO = b"".join(v3.encode_request(2, messages.GetInfo(1)))


async def test_apaches_protocol_in_clear_is_told_that_it_may_not(secured: Secured) -> None:
    peer = await secured.peer()
    answer = await peer.ask(INFO)
    assert answer is not None
    assert v3.parse_answer(memoryview(answer)[4:]).status is RpcStatus.EUA
    assert await peer.receive() is None


async def test_version_2_in_clear_is_ended(secured: Secured) -> None:
    peer = await secured.peer()
    frame = b"".join(v2.encode_request(messages.ReadEntry(LEDGER, 0)))
    assert await peer.ask(frame) is None


@pytest.mark.parametrize("behind", [INFO, b"\x16\x03\x01", b"x"])
async def test_what_was_said_in_clear_behind_start_tls_is_never_heard(
    behind: bytes, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody between the two may add requests to the client's START_TLS; over TLS they would be the client's."""
    monkeypatch.setattr(acceptor, "HANDSHAKE_WITHIN_S", 0.5)
    peer = await secured.peer()
    await peer.send(START_TLS + behind)
    answer = await peer.receive()
    assert answer is not None
    assert v3.parse_answer(memoryview(answer)[4:]).status is RpcStatus.EOK
    files = secured.authority.files("admin")
    context = contexts.Tls(files).client_context()

    async def go_on() -> None:
        await peer.writer.start_tls(context, server_hostname=HOST)
        peer.writer.write(INFO)
        await peer.reader.readexactly(1)

    with pytest.raises((OSError, EOFError, TimeoutError)):
        await asyncio.wait_for(go_on(), seconds(20))
    assert not secured.ports.service.memory.budget.used_bytes


@pytest.mark.parametrize("frame", [INFO, b"".join(v2.encode_request(messages.ReadEntry(7, 0)))])
async def test_while_a_cluster_is_changed_over_clear_text_is_taken(
    frame: bytes, tmp_path: Path
) -> None:
    async with serving(tmp_path / "open", is_only=False, roles=Roles()) as secured:
        peer = await secured.peer()
        assert await peer.ask(frame)
        # In parts, as it may come.
        for byte in frame:
            await peer.send(bytes([byte]))
        assert await peer.receive()
        client = secured.client("rpc-v3", secured.authority.files("task"))
        assert await client.info()
        clear = secured.client("rpc-v2", None, replace(SETTINGS, tls_only=False))
        assert await write(clear, encoded_section([b"secret" * 200], 0)) is Status.OK


@pytest.mark.parametrize("protocol", [SOCKET, BOOKIE_RPC])
@pytest.mark.parametrize("said", [b"", START_TLS[:7], START_TLS])
async def test_who_does_not_come_to_terms_is_sent_away(
    protocol: str, said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_WITHIN_S", 0.2)
    async with serving(tmp_path) as secured:
        endpoint = secured.ports.endpoint(protocol)
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(said)
        with suppress(ConnectionError):
            async with asyncio.timeout(seconds(20)):
                while await reader.read(1_000):
                    pass
        writer.close()


@each_carrier
async def test_replaced_certificates_are_used_without_a_restart(
    carrier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "_LOOK_AGAIN_S", 0.0)
    async with serving(tmp_path) as secured:
        await _is_answered(secured, carrier, secured.authority.files("task"))
        # Everybody is vouched for by somebody else from now on.
        renewed = Authority(secured.authority.place)
        for name in ("bookie", "task"):
            renewed.files(name)
        await _is_answered(secured, carrier, renewed.files("admin"))
        # The former connection goes on until it ends; a new one of the same client has the new certificate.
        first = secured.clients[0]
        await secured.ports.stop_connections()
        assert await until_read(first.info, lambda info: info is not None)


async def _is_answered(secured: Secured, carrier: str, files: TlsFiles) -> None:
    assert await secured.client(carrier, files).info()


async def test_files_that_do_not_fit_together_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(contexts, "_LOOK_AGAIN_S", 0.0)
    caplog.set_level(logging.INFO)
    async with serving(tmp_path) as secured:
        task = secured.authority.files("task")
        certificate = secured.authority.place / "bookie.pem"
        key = secured.authority.place / "bookie.key"
        old = certificate.read_bytes(), key.read_bytes()
        secured.authority.files("bookie")
        new = certificate.read_bytes(), key.read_bytes()
        certificate.write_bytes(new[0])
        key.write_bytes(old[1])
        await _is_answered(secured, "sockets", task)
        await _is_answered(secured, "sockets", task)
        unused = [each for each in caplog.records if "are not used" in each.getMessage()]
        assert len(unused) == 1, "it is said once"
        key.write_bytes(new[1])
        os.utime(key, ns=(1, 1))
        await _is_answered(secured, "sockets", task)
        assert any("are used from now on" in each.getMessage() for each in caplog.records)
        served = ssl.get_server_certificate  # what a stranger sees, too
        host, _, port = secured.ports.socket_address.rpartition(":")
        shown = await asyncio.to_thread(served, (host, int(port)))
        assert ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(new[0].decode())


async def test_where_nobody_connects_nothing_is_left(secured: Secured) -> None:
    client = secured.client("sockets", secured.authority.files("task"))
    assert await client.info()
    await client.close()
    await until(lambda: not secured.ports.service.bookie.reads_in_progress.used_bytes)


async def test_a_forked_process_speaks_grpc_over_tls_by_its_relay(secured: Secured) -> None:
    files = secured.authority.files("task")
    client = RelayedBookieClient("b:1", secured.ports.grpc_address, SETTINGS, "", files)
    secured.clients.append(client)
    assert await client.info() is not None
    assert await write(client, encoded_section([b"secret"], 0)) is Status.OK
