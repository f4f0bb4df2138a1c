"""The small HTTP server of metrics and health: what it answers, and whom it lets wait."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import json
import socket
import socketserver
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from bookkeeper_metadata.foundation import http_server
from bookkeeper_metadata.foundation.http_server import (
    Answer,
    Asked,
    HttpServer,
    RefusedError,
    health_route,
    json_answer,
    metrics_route,
)
from bookkeeper_metadata.foundation.listening import PortUnavailableError
from bookkeeper_metadata.foundation.tls.contexts import Tls
from tests.doubles.certificates import Authority
from tests.patience import Deadline

HOST = "127.0.0.1"
PAUSE = threading.Event()
"""Never set: to let threads go on for a while."""


def broken(_: Asked) -> Answer:
    raise ValueError("a secret path")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    routes = {"/a": lambda _: json_answer({"b": 1}), "/broken": broken, "/b/*": refusing}
    running = HttpServer(HOST, 0, routes)
    yield running
    running.close()


def refusing(asked: Asked) -> Answer:
    raise RefusedError(HTTPStatus.CONFLICT, f"no {asked.name} of {asked.query['x']}")


def get(server: HttpServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://{HOST}:{server.port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_a_route_answers_whatever_is_asked_behind_it(server: HttpServer) -> None:
    for path in ("/a", "/a?x=1"):
        status, body = get(server, path)
        assert status == HTTPStatus.OK
        assert json.loads(body) == {"b": 1}


def test_over_tls_nothing_is_said_in_clear(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = Tls(authority.files("bookie"))
    running = HttpServer(HOST, 0, {"/a": lambda _: json_answer({"b": 1})}, tls=tls)
    try:
        context = ssl.create_default_context(cafile=str(authority.trust_path))
        address = f"https://{HOST}:{running.port}/a"
        # Whoever says nothing keeps nobody waiting.
        with (
            socket.create_connection((HOST, running.port)),
            urllib.request.urlopen(address, timeout=30, context=context) as answer,
        ):
            assert json.loads(answer.read()) == {"b": 1}
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            get(running, "/a")
        strangers = ssl.create_default_context()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(address, timeout=30, context=strangers)
    finally:
        running.close()


def test_who_does_not_come_to_terms_over_tls_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_CONNECTION_S_MAX", 0.2)
    tls = Tls(Authority(tmp_path).files("bookie"))
    running = HttpServer(HOST, 0, {}, tls=tls)
    try:
        with socket.create_connection((HOST, running.port), timeout=30) as silent:
            assert silent.recv(1) == b""
    finally:
        running.close()


def test_a_head_has_no_body(server: HttpServer) -> None:
    assert get(server, "/a", "HEAD") == (200, b"")


def test_other_methods_are_refused(server: HttpServer) -> None:
    assert get(server, "/a", "DELETE")[0] == HTTPStatus.NOT_IMPLEMENTED


def test_an_error_is_not_told_to_the_client(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    status, body = get(server, "/broken")

    assert status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert b"secret" not in body
    assert "a secret path" in caplog.text
    assert get(server, "/a")[0] == HTTPStatus.OK


def dripping(server: HttpServer, count: int) -> list[socket.socket]:
    """Clients in the middle of a request."""
    clients = [socket.create_connection((HOST, server.port), timeout=30) for _ in range(count)]
    for client in clients:
        client.sendall(b"GET /a HTTP/1.1\r\nX: ")
    return clients


def test_beyond_a_number_of_connections_the_oldest_is_cut_off(server: HttpServer) -> None:
    threads = threading.active_count()
    clients = dripping(server, 100)
    try:
        # Nobody waits for them.
        assert get(server, "/a")[0] == HTTPStatus.OK
        with contextlib.suppress(ConnectionResetError):
            assert clients[0].recv(1) == b""
        deadline = Deadline(30)
        while threading.active_count() > threads + 33:
            assert not deadline.has_passed
    finally:
        for each in clients:
            each.close()


def test_a_connection_has_a_limited_time_however_busy_it_is(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_CONNECTION_S_MAX", 0.3)
    (client,) = dripping(server, 1)
    with client, contextlib.suppress(OSError):
        deadline = Deadline(30)
        while not deadline.has_passed:
            client.sendall(b"x")
            PAUSE.wait(0.02)

    assert not deadline.has_passed


def test_a_close_waits_for_no_client() -> None:
    running = HttpServer(HOST, 0, {})
    clients = dripping(running, 40)
    begun_s = time.monotonic()

    running.close()

    assert time.monotonic() - begun_s < 5
    for each in clients:
        # Cut off, or reset with what it had sent.
        with each, contextlib.suppress(ConnectionResetError):
            assert each.recv(1) == b""


def test_without_descriptors_it_does_not_spin(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def fail(_: object) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(socketserver.TCPServer, "get_request", fail)
    with socket.create_connection((HOST, server.port), timeout=30):
        PAUSE.wait(0.5)

    assert 0 < tries <= 20


def test_one_scrape_is_made_at_a_time_and_shown_to_who_asks_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_SCRAPE_WAIT_S", 0.05)
    made: list[int] = []
    going_on = threading.Event()

    def scrape(_: CollectorRegistry) -> bytes:
        made.append(len(made))
        going_on.wait(30)
        return b"%d" % made[-1]

    monkeypatch.setattr(http_server, "generate_latest", scrape)
    route = metrics_route(CollectorRegistry())
    first = threading.Thread(target=route, args=(Asked(),))
    first.start()
    deadline = Deadline(30)
    while not made:
        assert not deadline.has_passed
    busy = route(Asked())
    going_on.set()
    first.join()

    assert busy.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert [route(Asked()).body, route(Asked()).body] == [b"0", b"0"]
    PAUSE.wait(0.3)
    assert route(Asked()).body == b"1"


async def test_a_loop_that_is_stuck_or_gone_is_ill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "STUCK_AFTER_S", 0.1)
    route = health_route(asyncio.get_running_loop(), lambda: {"a": 1})

    well = await asyncio.to_thread(route, Asked())
    stuck = route(Asked())  # by this very call
    failed = health_route(asyncio.get_running_loop(), lambda: {"a": 1}, lambda: "a disk")
    gone = asyncio.new_event_loop()
    gone.close()

    assert well.status == HTTPStatus.OK
    for found, reason in (
        (stuck, "no answer"),
        (await asyncio.to_thread(failed, Asked()), "a disk"),
        (health_route(gone, lambda: {"a": 1})(Asked()), "ended"),
    ):
        assert found.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert reason in json.loads(found.body)["reason"]


def test_a_port_that_is_taken_is_an_error(server: HttpServer) -> None:
    with pytest.raises(PortUnavailableError) as error:
        HttpServer(HOST, server.port, {}, setting="port")

    assert (error.value.address, error.value.setting) == (f"{HOST}:{server.port}", "port")


def test_a_route_with_a_star_is_told_what_stands_for_it(server: HttpServer) -> None:
    status, body = get(server, "/b/c%20d?x=1&y=2")

    assert status == HTTPStatus.CONFLICT
    assert json.loads(body) == {"error": "no c d of 1"}
    assert get(server, "/b/c/d?x=1")[0] == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost", HTTPStatus.OK),
        ("127.0.0.1:80", HTTPStatus.OK),
        ("[::1]:8080", HTTPStatus.OK),
        ("evil.example:80", HTTPStatus.MISDIRECTED_REQUEST),
        ("localhost.evil.example", HTTPStatus.MISDIRECTED_REQUEST),
        ("", HTTPStatus.MISDIRECTED_REQUEST),
    ],
)
def test_a_private_server_answers_to_its_own_name_only(name: str, status: HTTPStatus) -> None:
    """A stranger's page whose name leads to loopback could read the cluster through its visitor's browser."""
    server = HttpServer(HOST, 0, {"/a": lambda _: json_answer({})}, is_private=True)
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    connection.request("GET", "/a", headers={"Host": name})
    answer = connection.getresponse()
    connection.close()
    server.close()

    assert answer.status == status
    assert "default-src 'self'" in (answer.getheader("Content-Security-Policy") or "")
