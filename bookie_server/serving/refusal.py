"""RefusedError: why a bookie ends a stream or a request, whatever carries it."""

from __future__ import annotations

from bookie_server.wire.envelope import Reason


class RefusedError(Exception):
    """The stream, or the request, ends unanswered from here on."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return self.detail
