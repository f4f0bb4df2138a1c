"""A bookie over Apache's protocol: every connection speaks of adds and of all else at once."""

from __future__ import annotations

import logging

from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.serving.acceptor import Acceptor
from bookie_server.serving.refusal import RefusedError
from bookie_server.serving.rpc.adds import RECEIVED_SIZE_MAX, RpcConnection
from bookie_server.serving.rpc.requests import RpcRequests
from bookie_server.serving.rpc.securing import secure_rpc
from bookie_server.serving.server_tls import ServerTls
from bookie_server.serving.service import BookieService
from bookie_server.wire.codec import MalformedFrameError

_LOGGER = logging.getLogger(__name__)


class RpcService(Acceptor):
    """See the module."""

    def __init__(
        self, service: BookieService, *, connections_max: int, tls: ServerTls | None = None
    ) -> None:
        super().__init__(connections_max)
        self._service = service
        self._tls = tls
        self._scratch = new_body(RECEIVED_SIZE_MAX)

    async def _talk(self, connection: Connection) -> None:
        try:
            begun = await self._begin(connection)
            if begun is not None:
                await self._answer_all(connection, begun)
        finally:
            connection.close()

    async def _answer_all(self, connection: Connection, begun: bytes) -> None:
        requests = RpcRequests(self._service, connection)
        carrier = RpcConnection(connection, self._scratch, requests.answer, begun)
        try:
            await self._service.serve_adds(connection.peer, carrier)
            await requests.finish()
        except ConnectionEndedError:
            pass  # whom the answers were for will ask again
        except RefusedError as refused:
            # The protocol has no word for it: Apache's bookies end such a connection, too.
            _LOGGER.warning("connection ended. peer=%s detail=%s", connection.peer, refused)
        except Exception:
            # A defect ends this connection, and none of the others.
            _LOGGER.exception("connection ended. peer=%s", connection.peer)
        finally:
            await requests.close()

    async def _begin(self, connection: Connection) -> bytes | None:
        """Agree on TLS, where there is any; what the client began with, or ``None``: it is to go."""
        if self._tls is None:
            return b""
        try:
            async with self.coming_to_terms():
                begun = await secure_rpc(connection, self._tls)
            if begun is None:
                self.note_refused_tls(connection.peer, "it wants to go on in clear")
            else:
                # In clear it is nobody's name.
                self._service.authorize(connection.peer, connection.common_name)
            return begun
        except (OSError, TimeoutError, MalformedFrameError) as error:
            self.note_refused_tls(connection.peer, str(error) or "it takes too long")
        except RefusedError:
            pass  # which is told in the audit's log
        return None
