"""HttpServer: answers a few GETs of operators and of Prometheus, in threads of its own.

It must never cost the process what it is there for: it serves few connections at a time, each with a time
limit, and lets the others wait in the kernel, where they take no descriptors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_LOGGER = logging.getLogger(__name__)
STUCK_AFTER_S = 5.0
"""An event loop that answers no sooner is stuck."""
_CONNECTIONS_MAX = 32
_TIMEOUT_S = 5.0
"""A connection that says nothing for so long makes room for another."""


class Answer(NamedTuple):
    """What is sent."""

    status: HTTPStatus
    content_type: str
    body: bytes


Route = Callable[[], Answer]
"""Answers a GET; called in any of the server's threads."""


def json_answer(document: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """A JSON document."""
    body = json.dumps(document, indent=2).encode() + b"\n"
    return Answer(status, "application/json", body)


def metrics_route(registry: CollectorRegistry) -> Route:
    """Shows what a registry collects, in Prometheus' text format."""
    return lambda: Answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry))


def registry_of_process() -> CollectorRegistry:
    """A registry that has what any process of Python can tell of itself: memory, descriptors, CPU."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def health_route(
    loop: asyncio.AbstractEventLoop,
    state: Callable[[], Mapping[str, Any]],
    failure: Callable[[], str | None] = lambda: None,
) -> Route:
    """Shows ``state``; 503 where ``failure`` names one, or the event loop does not answer."""

    async def come_round() -> None:
        """The event loop has."""

    def answer() -> Answer:
        reason = failure()
        try:
            asyncio.run_coroutine_threadsafe(come_round(), loop).result(STUCK_AFTER_S)
        except TimeoutError:
            reason = f"no answer within {STUCK_AFTER_S:.0f} s"
        if reason is None:
            return json_answer(state())
        return json_answer({**state(), "reason": reason}, HTTPStatus.SERVICE_UNAVAILABLE)

    return answer


class HttpServer:
    """Serves ``routes`` by their paths from its making on, until ``close``.

    ``port`` 0 takes a free one.

    Raises:
        OSError: the port cannot be had.
    """

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        self._server = _Server(host, port, routes)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="http", kwargs={"poll_interval": 0.1}
        )
        self._thread.daemon = True
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    # A stop waits for nobody who is slow to take an answer.
    block_on_close = False

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self._slots = threading.Semaphore(_CONNECTIONS_MAX)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._slots.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # The client went away, or is too slow.
        _LOGGER.debug("connection ended. peer=%s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT_S
    server_version = "bookkeeper"
    sys_version = ""

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer())

    def _answer(self) -> Answer:
        route = self.server.routes.get(urlsplit(self.path).path)
        if route is None:
            known = sorted(self.server.routes)
            return json_answer({"error": "not found", "paths": known}, HTTPStatus.NOT_FOUND)
        try:
            return route()
        except Exception:
            _LOGGER.exception("no answer. path=%s", self.path)
            return json_answer({"error": "internal error"}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        _LOGGER.debug("http. %s", format % args)
