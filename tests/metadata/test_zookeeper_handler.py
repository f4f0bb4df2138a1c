"""What kazoo's thread is told: by TLS, of what is there to read and why it came to nothing; and of requests."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from bookkeeper_metadata.foundation.tls.contexts import Tls
from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from bookkeeper_metadata.store.zookeeper_handler import PollingHandler
from spark_bookkeeper.local.ports import LOOPBACK
from tests.patience import seconds

HOST = "localhost"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def handler(tmp_path: Path, authority: trustme.CA) -> PollingHandler:
    """Of a client that trusts the authority."""
    authority.cert_pem.write_to_path(tmp_path / "trust.pem")
    return PollingHandler(3 * seconds(10), Tls(TlsFiles(str(tmp_path / "trust.pem"))))


Serve = Callable[[bytes], int]


@pytest.fixture
def serve(authority: trustme.CA) -> Iterator[Serve]:
    """A server for one connection, with a certificate for ``localhost``, that sends this; returns its port."""
    listening = socket.create_server((LOOPBACK, 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    threads: list[threading.Thread] = []
    is_over = threading.Event()

    def start(sent: bytes) -> int:
        def run() -> None:
            with suppress(OSError):
                accepted, _ = listening.accept()
                with context.wrap_socket(accepted, server_side=True) as connection:
                    connection.sendall(sent)
                    is_over.wait()

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return int(listening.getsockname()[1])

    yield start
    is_over.set()
    listening.close()
    for thread in threads:
        thread.join()


def connect(handler: PollingHandler, port: int, hostname: str = HOST) -> Any:
    """As kazoo does, which has looked the name up already."""
    return handler.create_connection(
        address=(LOOPBACK, port), hostname=hostname, timeout=seconds(10), use_ssl=False
    )


def test_what_tls_has_taken_from_the_socket_is_there_to_read(
    handler: PollingHandler, serve: Serve
) -> None:
    """Two replies in one record: kazoo reads the first, and nothing more ever comes to the socket itself."""
    connection = connect(handler, serve(b"onetwo"))
    woken, waiting = socket.socketpair()
    handler.is_connected = lambda: True
    assert handler.select([connection, waiting], [], [], seconds(10))[0] == [connection]
    assert connection.recv(3) == b"one"

    assert handler.select([connection, waiting], [], [], seconds(10))[0] == [connection]
    # What is to be sent is not kept waiting by what is to be read.
    woken.send(b"x")
    assert handler.select([connection, waiting], [], [], seconds(10))[0] == [connection, waiting]
    assert connection.recv(3) == b"two"
    assert handler.select([connection], [], [], 0)[0] == []
    for each in (connection, woken, waiting):
        each.close()


def test_a_name_that_does_not_fit_ends_the_connection_and_is_noted(
    handler: PollingHandler, serve: Serve
) -> None:
    port = serve(b"")

    with pytest.raises(OSError, match="IP address mismatch"):
        connect(handler, port, hostname=LOOPBACK)

    assert "IP address mismatch" in handler.tls_failure


def test_nothing_to_read_yet_is_no_failure(handler: PollingHandler, serve: Serve) -> None:
    connection = connect(handler, serve(b""))
    connection.setblocking(0)

    with pytest.raises(ssl.SSLWantReadError):
        connection.recv(4)

    assert handler.tls_failure == ""
    connection.close()


def test_any_number_of_requests_may_be_told_of_before_the_first_is_heard(
    handler: PollingHandler,
) -> None:
    hears, tells = handler.create_socket_pair()
    handler.is_connected = lambda: True
    for _ in range(10_000):
        tells.send(b"\0")
    for _ in range(10_000):
        assert handler.select([hears], [], [], 0)[0] == [hears]
        assert hears.recv(1) == b"\0"
    assert handler.select([hears], [], [], 0)[0] == []
    tells.send(b"\0")
    assert handler.select([hears], [], [], 0)[0] == [hears]
    hears.close()


def test_what_a_forked_child_does_to_the_bell_keeps_no_thread_busy_and_none_waiting(
    handler: PollingHandler,
) -> None:
    """It has the sockets, and a count of its own."""
    hears, tells = handler.create_socket_pair()
    handler.is_connected = lambda: True
    hears._write_end.send(b"\0\0")
    assert handler.select([hears], [], [], 0)[0] == [hears]
    hears.recv(1)
    assert handler.select([hears], [], [], 0)[0] == []
    tells.send(b"\0")
    hears._read_end.recv(1)
    hears.recv(1)
    hears.close()
