"""A bookie over Apache's protocol: every connection speaks of adds and of all else at once."""

from __future__ import annotations

import logging

from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.serving.acceptor import Acceptor
from bookie_server.serving.refusal import RefusedError
from bookie_server.serving.rpc.adds import RECEIVED_SIZE_MAX, RpcConnection
from bookie_server.serving.rpc.requests import RpcRequests
from bookie_server.serving.service import BookieService

_LOGGER = logging.getLogger(__name__)


class RpcService(Acceptor):
    """See the module."""

    def __init__(self, service: BookieService, *, connections_max: int) -> None:
        super().__init__(connections_max)
        self._service = service
        self._scratch = new_body(RECEIVED_SIZE_MAX)

    async def _talk(self, connection: Connection) -> None:
        requests = RpcRequests(self._service, connection)
        carrier = RpcConnection(connection, self._scratch, requests.answer)
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
