"""HttpServer: answers a few GETs of operators and of Prometheus, in threads of its own.

It must never cost the process what it is there for: it serves few connections at a time, each for a limited time,
and nothing waits for a client, least of all the end of the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from bookkeeper_metadata.foundation.listening import port_unavailable
from bookkeeper_metadata.foundation.tls.contexts import Tls

_LOGGER = logging.getLogger(__name__)
STUCK_AFTER_S = 5.0
"""An event loop that answers no sooner is stuck."""
_CONNECTIONS_MAX = 32
"""One more, and the oldest is cut off."""
_THREADS_MAX = 64
"""One more is not served."""
_CONNECTION_S_MAX = 10.0
"""However busily it is used: a client that drips its request has no more."""
_LOOK_S = 0.05
_SAFE_HEADERS = {
    "Cache-Control": "no-store",
    # What a page shows may come from anybody who writes metadata: none of it is a script, or leads elsewhere.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
}
_OWN_NAMES = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?")
_FRESH_S = 0.25
"""A scrape that is no older is shown again: to make one takes the interpreter from the event loop."""
_SCRAPE_WAIT_S = 1.0
"""Whoever has waited so long for another's scrape is told to come later."""


class Answer(NamedTuple):
    """What is sent."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Asked(NamedTuple):
    """What a GET says beside its path."""

    name: str = ""
    """What stands for the ``*`` of the route's path."""
    query: Mapping[str, str] = MappingProxyType({})


class RefusedError(Exception):
    """There is no answer to what was asked; the text says why, to whoever asked."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


MakeContext = Callable[[], ssl.SSLContext]
Route = Callable[[Asked], Answer]
"""Answers a GET; called in any of the server's threads. May raise :class:`RefusedError`."""


def json_answer(document: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """A JSON document."""
    body = json.dumps(document, indent=2).encode() + b"\n"
    return Answer(status, "application/json", body)


def metrics_route(registry: CollectorRegistry) -> Route:
    """Shows what a registry collects, in Prometheus' text format; four scrapes are made a second at most."""

    def scrape() -> Answer:
        return Answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry))

    return recent_route(scrape, _FRESH_S, _SCRAPE_WAIT_S)


def recent_route(make: Callable[[], Answer], age_s: float, wait_s: float) -> Route:
    """Shows the last answer again if it is no older, or no older than it took to make.

    One is made at a time, and who waits for longer is told to come later.
    """
    making = threading.Lock()
    last: tuple[float, Answer] | None = None

    def answer(_: Asked) -> Answer:
        nonlocal last
        # Where a disk keeps one waiting, the others must not wait with it.
        if not making.acquire(timeout=wait_s):
            return json_answer({"error": "busy"}, HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            begun_s = time.monotonic()
            if last is None or begun_s > last[0]:
                made = make()
                ended_s = time.monotonic()
                # Shown until then.
                last = ended_s + max(age_s, ended_s - begun_s), made
            return last[1]
        finally:
            making.release()

    return answer


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

    def answer(_: Asked) -> Answer:
        reason, come_round = failure(), threading.Event()
        try:
            loop.call_soon_threadsafe(come_round.set)
        except RuntimeError:
            reason = "it has ended"
        else:
            if not come_round.wait(STUCK_AFTER_S):
                reason = f"no answer within {STUCK_AFTER_S:.0f} s"
        if reason is None:
            return json_answer(state())
        return json_answer({**state(), "reason": reason}, HTTPStatus.SERVICE_UNAVAILABLE)

    return answer


class HttpServer:
    """Serves ``routes`` by their paths from its making on, until ``close``.

    ``port`` 0 takes a free one. A path that ends in ``/*`` is of everything one level below it. ``is_private``: nobody
    is answered who knows the server by another name than this machine's own, as a page of a stranger does whose name
    leads here. ``setting`` is the port's. ``tls``: over TLS alone; ``wants_certificate``: of whoever asks.

    Raises:
        PortUnavailableError: the port cannot be had.
    """

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Route],
        *,
        is_private: bool = False,
        setting: str = "http_port",
        tls: Tls | None = None,
        wants_certificate: bool = False,
    ) -> None:
        context: MakeContext | None = None
        if tls is not None:
            context = partial(tls.server_context, wants_certificate=wants_certificate)
        try:
            self._server = _Server(host, port, routes, is_private, context)
        except OSError as cause:
            raise port_unavailable(cause, host, port, setting) from cause
        self.port: int = self._server.server_address[1]
        serve = partial(self._server.serve_forever, _LOOK_S)
        threading.Thread(target=serve, name="http", daemon=True).start()

    def close(self) -> None:
        """Take no more connections, and cut off those that are open: nobody is waited for."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Route],
        is_private: bool,
        tls_context: MakeContext | None,
    ) -> None:
        self._tls_context = tls_context
        self.routes = routes
        self.is_private = is_private
        self._since_s: dict[socket.socket, float] = {}
        """Connections, the oldest first."""
        self._running = 0
        """Threads that answer somebody."""
        self._mutex = threading.Lock()
        self._closing = threading.Event()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            # Out of descriptors: whoever waits is still there at once, and again.
            self._closing.wait(_LOOK_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._mutex:
            if self._running >= _THREADS_MAX:
                # Cut off, they may still wait for what they were asked for.
                self.shutdown_request(request)
                return
            self._running += 1
            if len(self._since_s) >= _CONNECTIONS_MAX:
                self._cut_off(next(iter(self._since_s)))
            self._since_s[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            self._end()
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls_context is None:
            super().finish_request(request, client_address)
            return
        # In the thread that answers: a client that is slow to agree keeps nobody waiting. Not over the socket itself,
        # which whoever cuts it off has in his hands.
        with self._tls_context().wrap_socket(request.dup(), server_side=True) as secured:
            super().finish_request(secured, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)
            self._end()

    def service_actions(self) -> None:
        now_s = time.monotonic()
        with self._mutex:
            for connection, since_s in [*self._since_s.items()]:
                if now_s - since_s > _CONNECTION_S_MAX:
                    self._cut_off(connection)

    def server_close(self) -> None:
        self._closing.set()
        super().server_close()
        with self._mutex:
            for connection in [*self._since_s]:
                self._cut_off(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # The client went away, or was cut off.
        _LOGGER.debug("connection ended. peer=%s", client_address, exc_info=True)

    def _end(self) -> None:
        with self._mutex:
            self._running -= 1

    def _forget(self, connection: socket.socket) -> None:
        with self._mutex:
            self._since_s.pop(connection, None)

    def _cut_off(self, connection: socket.socket) -> None:
        del self._since_s[connection]
        # Its thread closes it, as soon as it looks.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "bookkeeper"
    sys_version = ""

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer())

    def _answer(self) -> Answer:
        if self.server.is_private and not _is_own_name(self.headers.get("Host", "")):
            return json_answer({"error": "not this host's name"}, HTTPStatus.MISDIRECTED_REQUEST)
        try:
            parts = urlsplit(self.path)
        except ValueError:
            return json_answer({"error": "not a path"}, HTTPStatus.BAD_REQUEST)
        folder, _, name = parts.path.rpartition("/")
        routes = self.server.routes
        route = routes.get(parts.path) or routes.get(f"{folder}/*")
        if route is None:
            return json_answer(
                {"error": "not found", "paths": sorted(routes)}, HTTPStatus.NOT_FOUND
            )
        try:
            return route(Asked(unquote(name), dict(parse_qsl(parts.query))))
        except RefusedError as refused:
            return json_answer({"error": str(refused)}, refused.status)
        except Exception:
            _LOGGER.exception("no answer. path=%s", self.path)
            return json_answer({"error": "internal error"}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in _SAFE_HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        _LOGGER.debug("http. %s", format % args)


def _is_own_name(host: str) -> bool:
    return _OWN_NAMES.fullmatch(host.lower()) is not None
