"""A proxy in front of a real ZooKeeper that loses one chosen message and its connection with it."""

from __future__ import annotations

from bookkeeper_metadata.store.memory import Fault
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from tests.metadata.zookeeper_relay import Interceptor, Relay, Request, Sent


class LossyProxy(Interceptor):
    """Listens on loopback; :meth:`lose` arms it for the next request of one type."""

    def __init__(self, port: int) -> None:
        self.relay = Relay(port, self)
        self._armed: tuple[Request, Fault] | None = None
        self._doomed: Sent | None = None
        self.losses = 0

    def lose(self, request: Request, fault: Fault) -> None:
        """Lose the next message of this type on its way there or back."""
        self._armed = (request, fault)

    async def request(self, sent: Sent) -> bool:
        if self._armed is None or sent.kind != self._armed[0]:
            return True
        fault = self._armed[1]
        self._armed = None
        self.losses += 1
        if fault is Fault.LOST_REPLY:
            self._doomed = sent
        return fault is Fault.LOST_REPLY

    async def reply(self, sent: Sent) -> bool:
        return sent is not self._doomed


async def connect_through(proxy: LossyProxy) -> ZooKeeperStore:
    """A store whose messages pass the proxy."""
    port = await proxy.relay.start()
    return await ZooKeeperStore.connect([f"127.0.0.1:{port}"], session_timeout_ms=4_000)
