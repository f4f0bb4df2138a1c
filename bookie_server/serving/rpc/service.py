"""A bookie over Apache's protocol: every connection speaks of adds and of all else at once."""

from __future__ import annotations

import asyncio
import logging

from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.serving.acceptor import HANDSHAKE_WITHIN_S, Acceptor, note_refused_tls
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
        begun = await self._begin(connection)
        if begun is None:
            connection.close()
            return
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
            connection.close()

    async def _begin(self, connection: Connection) -> bytes | None:
        """Agree on TLS, where there is any; what the client began with, or ``None``: it is to go."""
        if self._tls is None:
            return b""
        try:
            async with asyncio.timeout(HANDSHAKE_WITHIN_S):
                begun = await secure_rpc(connection, self._tls)
            if begun is None:
                note_refused_tls(connection.peer, "it wants to go on in clear")
            elif connection.common_name or not begun:
                self._service.authorize(connection.peer, connection.common_name)
            return begun
        except (OSError, TimeoutError, MalformedFrameError) as error:
            note_refused_tls(connection.peer, str(error) or "it takes too long")
        except RefusedError as refused:
            _LOGGER.warning("connection ended. peer=%s detail=%s", connection.peer, refused)
        return None
