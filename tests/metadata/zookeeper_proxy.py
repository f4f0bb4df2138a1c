"""A proxy in front of a real ZooKeeper that loses one chosen message and its connection with it."""

from __future__ import annotations

from bookkeeper_metadata.store.memory import Fault
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from tests.metadata.zookeeper_relay import Relay, Request, Sent


class LossyProxy:
    """Listens on loopback; :meth:`lose` arms it for the next request of one type."""

    def __init__(self, port: int) -> None:
        self._relay = Relay(port, self)
        self._armed: tuple[Request, Fault] | None = None
        self._doomed: Sent | None = None
        self.losses = 0

    async def start(self) -> int:
        """Returns the port to connect to."""
        return await self._relay.start()

    async def stop(self) -> None:
        """Close every connection; returns when nothing of the proxy is left."""
        await self._relay.stop()

    def lose(self, request: Request, fault: Fault) -> None:
        """Lose the next message of this type on its way there or back."""
        self._armed = (request, fault)

    async def request(self, sent: Sent) -> bool:
        """Part of the relay's protocol."""
        if self._armed is None or sent.kind != self._armed[0]:
            return True
        fault = self._armed[1]
        self._armed = None
        self.losses += 1
        if fault is Fault.LOST_REPLY:
            self._doomed = sent
        return fault is Fault.LOST_REPLY

    async def reply(self, sent: Sent) -> bool:
        """Part of the relay's protocol."""
        return sent is not self._doomed

    def delivered(self, sent: Sent) -> None:
        """Part of the relay's protocol."""


async def connect_through(proxy: LossyProxy) -> ZooKeeperStore:
    """A store whose messages pass the proxy."""
    port = await proxy.start()
    return await ZooKeeperStore.connect([f"127.0.0.1:{port}"], session_timeout_ms=4_000)
