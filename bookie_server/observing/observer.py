"""Observer: a bookie's HTTP port, open before the bookie serves and until it ends.

``/healthz`` says whether the process lives: its event loop answers. ``/readyz`` says whether it serves and is
registered. ``/metrics`` is for Prometheus.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from http import HTTPStatus
from typing import Any

from bookie_server.bookie import Bookie
from bookie_server.observing.exposition import BookieExposition
from bookie_server.registrar import Registrar
from bookie_server.settings import BookieSettings
from bookie_server.wire.messages import BookieInfo
from bookkeeper_metadata.foundation.http_server import (
    Answer,
    HttpServer,
    health_route,
    json_answer,
    metrics_route,
    registry_of_process,
)

_LOGGER = logging.getLogger(__name__)


class Observer:
    """Of one bookie; made on its event loop. Without an ``http_port`` nothing is opened."""

    def __init__(self, settings: BookieSettings) -> None:
        """Open the port.

        Raises:
            OSError: it cannot be had.
        """
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._bookie: Bookie | None = None
        self._registrar: Registrar | None = None
        self._registry = registry_of_process()
        self._server = self._open() if settings.http_port else None

    def _open(self) -> HttpServer:
        host, port = self._settings.http_host, self._settings.http_port
        routes = {
            "/healthz": health_route(self._loop, self._state, self._failure),
            "/readyz": self._readyz,
            "/metrics": metrics_route(self._registry),
        }
        try:
            server = HttpServer(host, port, routes)
        except OSError as cause:
            text = "cannot listen for HTTP, the port may be in use"
            raise OSError(cause.errno or errno.EADDRINUSE, text, f"{host}:{port}") from cause
        _LOGGER.info("metrics and health. address=http://%s:%d", host, port)
        return server

    def on_ready(self, bookie: Bookie, identity: BookieInfo, registrar: Registrar) -> None:
        """The bookie answers, and is about to register."""
        self._bookie, self._registrar = bookie, registrar
        self._registry.register(
            BookieExposition(bookie, identity, self._settings, lambda: registrar.is_registered)
        )

    def close(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.close()

    def _failure(self) -> str | None:
        has_failed = self._bookie is not None and self._bookie.failed.done()
        return "the bookie has failed" if has_failed else None

    def _readyz(self) -> Answer:
        state = self._state()
        is_ready = state["is_registered"]
        return json_answer(state, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    def _state(self) -> dict[str, Any]:
        bookie, registrar = self._bookie, self._registrar
        return {
            "bookie_id": self._settings.bookie_id,
            "mode": bookie.space.mode.name.lower() if bookie is not None else "starting",
            "is_registered": registrar is not None and registrar.is_registered,
        }
