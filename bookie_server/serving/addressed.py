"""The door of a bookie: calls that are meant for another bookie are refused before they are read.

Asked once for each call, and a stream of adds or reads is one call: the check costs nothing per entry.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc

from bookie_server.wire.addressee import BOOKIE_KEY, CLUSTER_KEY, is_meant_for
from bookie_server.wire.messages import BookieInfo

_LOGGER = logging.getLogger(__name__)
_NOTES_MAX = 100
"""Senders look again and again for the bookie they mean; each that is missed is named once, up to this."""


class AddressedHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Passes the calls that are meant for the bookie of this ``identity``, and refuses the others."""

    def __init__(self, inner: grpc.GenericRpcHandler, identity: BookieInfo) -> None:
        self._inner = inner
        self._identity = identity
        self._noted: set[tuple[str, ...]] = set()

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a call; gRPC asks for it."""
        handler = self._inner.service(handler_call_details)
        metadata = handler_call_details.invocation_metadata or ()
        own = self._identity
        if handler is None or is_meant_for(metadata, own.bookie_id, own.instance_id):
            return handler
        self._note(tuple(str(value) for key, value in metadata if key in (BOOKIE_KEY, CLUSTER_KEY)))
        # The same kind of call, or gRPC would not know how to refuse it.
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._refuse)
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, _: object, context: Any) -> None:
        own = self._identity
        detail = f"this is bookie {own.bookie_id} of instance {own.instance_id}"
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, detail)

    def _note(self, meant: tuple[str, ...]) -> None:
        if meant not in self._noted and len(self._noted) < _NOTES_MAX:
            self._noted.add(meant)
            _LOGGER.warning(
                "calls meant for another bookie are refused. meant=%s", " of ".join(meant)
            )
