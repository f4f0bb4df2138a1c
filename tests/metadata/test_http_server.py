"""The small HTTP server of metrics and health: what it answers, and whom it lets wait."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from bookkeeper_metadata.foundation import http_server
from bookkeeper_metadata.foundation.http_server import Answer, HttpServer, json_answer

HOST = "127.0.0.1"


def broken() -> Answer:
    raise ValueError("a secret path")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    routes = {"/a": lambda: json_answer({"b": 1}), "/broken": broken}
    running = HttpServer(HOST, 0, routes)
    yield running
    running.close()


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


def test_connections_that_say_nothing_have_no_thread_beyond_a_number(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server._Handler, "timeout", 0.2)
    threads = threading.active_count()
    idle = [socket.create_connection((HOST, server.port)) for _ in range(60)]
    try:
        # Answered once those before it have been silent for too long.
        assert get(server, "/a")[0] == HTTPStatus.OK
        assert threading.active_count() <= threads + 32
    finally:
        for each in idle:
            each.close()


def test_a_port_that_is_taken_is_an_error(server: HttpServer) -> None:
    with pytest.raises(OSError, match="in use"):
        HttpServer(HOST, server.port, {})
