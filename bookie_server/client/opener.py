"""Opener: connections to one bookie, and not too many attempts at one that is away."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from random import Random, SystemRandom

from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.carrier.connection import Connection, EndedByTlsError
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.codec import MalformedFrameError

_LOGGER = logging.getLogger(__name__)
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.05, 0.5
"""Between two attempts to reach a bookie that is away."""
OpenBytes = Callable[[], Awaitable[ByteStream]]
"""Connects to the bookie's address; raises ``OSError``."""


class RefusedByPeerError(ConnectionRefusedError):
    """Who answers will not talk to this client, or not as it wants to."""


_DISAGREEMENTS = (ssl.SSLError, EndedByTlsError, RefusedByPeerError)


class Opener:
    """For use on one event loop."""

    def __init__(
        self,
        bookie_id: str,
        open_bytes: OpenBytes,
        settings: ConnectionSettings,
        random: Random | None = None,
    ) -> None:
        """``random`` spreads the attempts of many clients to reach a bookie that was away."""
        self._bookie_id = bookie_id
        self._open_bytes = open_bytes
        self._timeout_s = settings.reconnect_timeout_ms / 1000
        self._random = random or SystemRandom()
        self._pause_s = 0.0
        self._open_again_s = 0.0
        self._told: type[Exception] | None = None

    async def open(
        self, greet: Callable[[Connection], Awaitable[None]] | None = None, *, is_patient: bool
    ) -> Connection:
        """A connection, once ``greet`` is content with it.

        Behind an attempt that failed a little time passes: who ``is_patient`` waits for the end of it.

        Raises:
            ConnectionError: nobody answers there, or another; or so it was a moment ago.
        """
        loop = asyncio.get_running_loop()
        left_s = self._open_again_s - loop.time()
        if left_s > 0 and not is_patient:
            raise ConnectionError(f"{self._bookie_id} was not reached a moment ago")
        await asyncio.sleep(max(0, left_s))
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = Connection(await self._open_bytes())
                try:
                    if greet is not None:
                        await greet(connection)
                except BaseException:
                    connection.close()
                    raise
                self._pause_s = 0.0
                return connection
        # A host's name may be none that can be encoded, and a port none at all.
        except (OSError, ValueError, TypeError, OverflowError, MalformedFrameError) as error:
            if isinstance(error, _DISAGREEMENTS) and type(error) is not self._told:
                # Unlike a bookie that is away, this one will not come back by itself.
                self._told = type(error)
                _LOGGER.warning(
                    "a bookie and this client do not agree. bookie_id=%s detail=%.300s",
                    self._bookie_id,
                    # It may be a stranger's words, with line ends.
                    repr(str(error)),
                )
            self._pause_s = min(max(_PAUSE_S_MIN, 2 * self._pause_s), _PAUSE_S_MAX)
            self._open_again_s = loop.time() + self._random.uniform(0.5, 1) * self._pause_s
            raise ConnectionError(f"{self._bookie_id} is not reached: {error!r}") from error
