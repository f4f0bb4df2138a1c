"""Observer: a bookie's HTTP port, open before the bookie serves and until it ends.

``/healthz`` says whether the process lives: its event loop answers. ``/readyz`` says whether it serves and is
registered. ``/metrics`` is for Prometheus.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bookie_server.bookie import Bookie
from bookie_server.core.space import Mode
from bookie_server.observing.exposition import BookieExposition
from bookie_server.registrar import Registrar
from bookie_server.settings import BookieSettings
from bookie_server.wire.messages import BookieInfo
from bookkeeper_metadata.foundation.families import gauge
from bookkeeper_metadata.foundation.http_server import (
    Answer,
    Asked,
    HttpServer,
    health_route,
    json_answer,
    metrics_route,
    registry_of_process,
)
from bookkeeper_metadata.foundation.tls.contexts import tls_of

_LOGGER = logging.getLogger(__name__)


class Observer(Collector):
    """Of one bookie; made on its event loop."""

    def __init__(self, settings: BookieSettings) -> None:
        """Open the ``http_port``.

        Raises:
            PortUnavailableError: it cannot be had.
        """
        self._settings = settings
        self._bookie: Bookie | None = None
        self._registrar: Registrar | None = None
        self._registry = registry_of_process()
        self._registry.register(self)
        loop = asyncio.get_running_loop()
        routes = {
            "/healthz": health_route(loop, self._state, self._failure),
            "/readyz": self._readyz,
            "/metrics": metrics_route(self._registry),
        }
        tls = settings.tls_of_http
        self._server = HttpServer(settings.http_host, settings.http_port, routes, tls=tls_of(tls))
        _LOGGER.info(
            "metrics and health. host=%s http_port=%d", settings.http_host, settings.http_port
        )

    def on_ready(self, bookie: Bookie, identity: BookieInfo, registrar: Registrar) -> None:
        """The bookie answers, and is about to register."""
        self._bookie, self._registrar = bookie, registrar
        self._registry.register(BookieExposition(bookie, identity, self._settings))

    def close(self) -> None:
        """Close the port."""
        self._server.close()

    def collect(self) -> Iterator[Metric]:
        """What can be said before there is a bookie, too."""
        status = -1
        if self._bookie is not None and self._is_registered:
            status = int(self._bookie.space.mode is Mode.WRITABLE)
        text = "1 takes entries, 0 is read-only, -1 starts or stops"
        yield gauge("bookkeeper_server_SERVER_STATUS", text, status)

    @property
    def _is_registered(self) -> bool:
        return self._registrar is not None and self._registrar.is_registered

    def _failure(self) -> str | None:
        has_failed = self._bookie is not None and self._bookie.failed.done()
        return "the bookie has failed" if has_failed else None

    def _readyz(self, _: Asked) -> Answer:
        status = HTTPStatus.OK if self._is_registered else HTTPStatus.SERVICE_UNAVAILABLE
        return json_answer(self._state(), status)

    def _state(self) -> dict[str, Any]:
        return {
            "bookie_id": self._settings.bookie_id,
            "mode": self._bookie.space.mode.name.lower() if self._bookie else "starting",
            "is_registered": self._is_registered,
        }
