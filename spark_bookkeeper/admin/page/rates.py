"""How many bytes bookies have taken and given since their start, as their metrics say.

Where to ask stands in the metadata, and who answers there may be anybody: no answer costs more than a moment and a
few megabytes, and nobody is asked anew who has not answered yet.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

_ANSWER_S = 1.5
"""All of them together have so long."""
_BODY_BYTES_MAX = 4 * 1024 * 1024
_VALUE_MAX = 2.0**63
_COUNTERS = {"bookie_WRITE_BYTES": "written_bytes", "bookie_READ_BYTES": "read_bytes"}


class ByteCounters:
    """Of the bookies of one cluster; may be asked by several threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._asking: dict[str, threading.Thread] = {}
        self._answers: dict[str, dict[str, int | None]] = {}

    def ask(
        self, addresses: Sequence[str], tls: ssl.SSLContext | None = None
    ) -> list[dict[str, int | None]]:
        """``written_bytes`` and ``read_bytes`` by bookie; ``None`` where one shows no metrics, or says nothing in time.

        ``tls`` is what bookies at ``https://`` are asked with.
        """
        until_s = time.monotonic() + _ANSWER_S
        threads = [self._begin(each, tls) for each in dict.fromkeys(addresses) if each]
        for thread in threads:
            thread.join(max(until_s - time.monotonic(), 0))
        with self._mutex:
            # Of one that is being asked still, the answer is an old one.
            return [
                _nothing() if each in self._asking else self._answers.get(each, _nothing())
                for each in addresses
            ]

    def _begin(self, address: str, tls: ssl.SSLContext | None) -> threading.Thread:
        with self._mutex:
            thread = self._asking.get(address)
            if thread is None:
                thread = threading.Thread(target=self._ask, args=(address, tls), daemon=True)
                self._asking[address] = thread
                thread.start()
            return thread

    def _ask(self, address: str, tls: ssl.SSLContext | None) -> None:
        found = _nothing()
        try:
            found = _read(address, tls)
        except Exception:  # noqa: BLE001 - whatever speaks there, it is no bookie's metrics
            found = _nothing()
        finally:
            with self._mutex:
                self._answers[address] = found
                del self._asking[address]


def _read(address: str, tls: ssl.SSLContext | None) -> dict[str, int | None]:
    found = _nothing()
    where = urlsplit(address)
    # Straight to the bookie, whatever proxy the environment names, and nowhere else, whatever it answers. Of what
    # stands in the metadata host and port count alone.
    connection: HTTPConnection
    if where.scheme == "https":
        connection = HTTPSConnection(
            where.hostname or "", where.port, timeout=_ANSWER_S, context=tls
        )
    else:
        connection = HTTPConnection(where.hostname or "", where.port, timeout=_ANSWER_S)
    with closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read(_BODY_BYTES_MAX).decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _COUNTERS and 0 <= sample.value < _VALUE_MAX:
                found[_COUNTERS[sample.name]] = int(sample.value)
    return found


def _nothing() -> dict[str, int | None]:
    return dict.fromkeys(_COUNTERS.values())
