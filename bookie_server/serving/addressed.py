"""The door of a bookie: calls that are meant for another bookie are refused before they are read.

Asked once for each call, and a stream of adds or reads is one call: the check costs nothing per entry.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc

from bookie_server.serving.noted import Noted
from bookie_server.wire.addressee import BOOKIE_KEY, CLUSTER_KEY, is_meant_for
from bookie_server.wire.messages import BookieInfo

_LOGGER = logging.getLogger(__name__)


class AddressedHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Passes the calls that are meant for the bookie of this ``identity``, and refuses the others."""

    def __init__(self, inner: grpc.GenericRpcHandler, identity: BookieInfo) -> None:
        self._inner = inner
        self._identity = identity
        self._missed = Noted()

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a call; gRPC asks for it."""
        handler = self._inner.service(handler_call_details)
        metadata = handler_call_details.invocation_metadata or ()
        own = self._identity
        if handler is None or is_meant_for(metadata, own.bookie_id, own.instance_id):
            return handler
        named = (str(value) for key, value in metadata if key in (BOOKIE_KEY, CLUSTER_KEY))
        if self._missed.is_news(meant := " of ".join(named)):
            _LOGGER.warning("calls meant for another bookie are refused. meant=%s", meant)
        # The same kind of call, or gRPC would not know how to refuse it.
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._refuse)
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, _: object, context: Any) -> None:
        own = self._identity
        detail = f"this is bookie {own.bookie_id} of instance {own.instance_id}"
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, detail)
