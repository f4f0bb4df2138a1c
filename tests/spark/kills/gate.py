"""A gate between one Spark driver and ZooKeeper: at a named point it kills, holds or counts.

The product knows nothing of it: its requests are recognised by what they change and where. Whatever
is to go wrong is one :class:`Trap`; it springs once.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, unique

from tests.metadata.zookeeper_relay import Part, Relay, Request, Sent
from tests.patience import seconds
from tests.spark.waits import WAIT_TIMEOUT_S, wait_until

HOLD_TIMEOUT_S = 600.0
"""After which a held message goes on by itself, so that a test that fails ends."""

_LEDGER = r"/ledgers/\S*/L\d+"
_LOG = r"/ledgers-logs/\d+"


@unique
class Point(Enum):
    """A request of the protocol, by its parts in order: kind and path."""

    PLAN = ((Request.CREATE, rf"{_LOG}/tokens/"),)
    """The plan draws its epoch."""
    CLAIM = ((Request.CREATE, rf"{_LOG}/jobs/[^/]+/\d+"),)
    """A task says that it is about to write."""
    LEDGER = ((Request.CREATE, _LEDGER), (Request.CREATE, rf"{_LOG}/tokens/\d+/.+"))
    """A task creates its ledger, with the token's child."""
    CLOSE = ((Request.SET_DATA, _LEDGER),)
    """A ledger's metadata change: here, its close."""
    CHUNK = ((Request.CREATE, rf"{_LOG}/chunks/.+"),)
    COMMIT = ((Request.SET_DATA, rf"{_LOG}/head"), (Request.SET_DATA, rf"{_LOG}/tokens/\d+"))
    """The multi that makes a batch visible."""
    END_TOKEN = ((Request.SET_DATA, rf"{_LOG}/tokens/\d+"),)
    """A LIVE token goes DEAD."""
    DELETE_LEDGER = ((Request.DELETE, _LEDGER),)
    SWEEP = ((Request.DELETE, rf"{_LOG}/tokens/\d+"), (Request.DELETE, rf"{_LOG}/jobs/[^/]+"))
    """The last thing a commit does, where nobody has left anything before; else it does the four behind it."""
    SWEEP_CHILD = ((Request.DELETE, rf"{_LOG}/tokens/\d+/.+"),)
    SWEEP_TOKEN = ((Request.DELETE, rf"{_LOG}/tokens/\d+"),)
    SWEEP_EPOCH = ((Request.DELETE, rf"{_LOG}/jobs/[^/]+/\d+"),)
    SWEEP_JOB = ((Request.DELETE, rf"{_LOG}/jobs/[^/]+"),)
    FORGET_GARBAGE = ((Request.DELETE, rf"{_LOG}/garbage/\d+"),)
    DELETE_CHUNK = ((Request.DELETE, rf"{_LOG}/chunks/.+"),)

    def names(self, sent: Sent) -> bool:
        """Whether ``sent`` is this request: a single one alone, several parts of one multi."""
        if (len(self.value) == 1) == (sent.kind == Request.MULTI) and self not in _IN_MULTIS:
            return False
        return all(any(_fits(wanted, part) for part in sent.parts) for wanted in self.value)


_IN_MULTIS = {Point.CLAIM, Point.DELETE_LEDGER, Point.FORGET_GARBAGE}
"""Points that may be part of a multi."""


@unique
class Moment(Enum):
    """When at that point."""

    REQUEST = "before ZooKeeper sees it"
    REPLY = "applied, before the client hears of it"
    DELIVERED = "as soon as the client has heard of it"


@unique
class Message(Enum):
    """What becomes of the message a trap met."""

    LOST = "its connection is cut"
    HELD = "it goes on when it is released, also if its sender has died meanwhile"


@dataclass(slots=True)
class Trap:
    """One thing to happen at one point, the ``nth`` time it is reached."""

    point: Point
    moment: Moment
    nth: int = 1
    message: Message = Message.LOST
    kill: Callable[[], object] | None = None
    """Called before anything becomes of the message."""
    behind: Point | None = None
    """Armed only by the first reply to this."""
    _sprung: threading.Event = field(default_factory=threading.Event, repr=False)
    _released: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def is_sprung(self) -> bool:
        """Whether the point was reached, and the driver killed if it was to be."""
        return self._sprung.is_set()

    def wait(self) -> None:
        """Until it has sprung."""
        limit_s = seconds(WAIT_TIMEOUT_S)
        assert self._sprung.wait(limit_s), f"{self} was not reached within {limit_s:.0f} s"

    def release(self) -> None:
        """Let a held message go on."""
        self._released.set()

    def meets(self, sent: Sent, moment: Moment) -> bool:
        """Whether it springs now; counts."""
        if self.behind is not None:
            if moment is Moment.REPLY and self.behind.names(sent):
                self.behind = None
            return False
        if self.nth == 0 or moment is not self.moment or not self.point.names(sent):
            return False
        self.nth -= 1
        return self.nth == 0

    def spring(self) -> bool:
        """Do it (blocks); whether the message goes on."""
        if self.kill is not None:
            self.kill()
        self._sprung.set()
        if self.message is Message.LOST:
            return False
        self._released.wait(seconds(HOLD_TIMEOUT_S))
        return True


class Gate:
    """A relay on a thread of its own; a ``with`` block starts and stops it."""

    def __init__(self, port: int) -> None:
        self._relay = Relay(port, self)
        self._traps: list[Trap] = []
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gate", daemon=True)
        self.seen: list[tuple[Point, Moment]] = []
        """Every named message that passed, in order."""

    def __enter__(self) -> Gate:
        self._thread.start()
        self._port = asyncio.run_coroutine_threadsafe(self._relay.start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        for trap in self._traps:
            trap.release()
        asyncio.run_coroutine_threadsafe(self._relay.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    @property
    def uri(self) -> str:
        """``metadataServiceUri`` of whoever is to pass this gate."""
        return f"zk+hierarchical://127.0.0.1:{self._port}/ledgers"

    def set(self, trap: Trap) -> Trap:
        """Arm a trap; returns it."""
        self._traps.append(trap)
        return trap

    def wait_for(self, point: Point, moment: Moment) -> None:
        """Until such a message has passed."""
        wait_until(lambda: (point, moment) in self.seen, f"{point} {moment}")

    def wait_for_replies(self, point: Point) -> None:
        """Until every such request, held ones too, has its reply."""
        count = self.seen.count
        wait_until(
            lambda: count((point, Moment.REQUEST)) <= count((point, Moment.REPLY)),
            f"the replies to {point}",
        )

    async def request(self, sent: Sent) -> bool:
        """Part of the relay's protocol."""
        return await self._pass(sent, Moment.REQUEST)

    async def reply(self, sent: Sent) -> bool:
        """Part of the relay's protocol."""
        return await self._pass(sent, Moment.REPLY)

    def delivered(self, sent: Sent) -> None:
        """Part of the relay's protocol: too late to hold anything."""
        for trap in self._met(sent, Moment.DELIVERED):
            assert trap.message is Message.LOST, "a delivered message cannot be held"
            trap.spring()

    async def _pass(self, sent: Sent, moment: Moment) -> bool:
        goes_on = True
        for trap in self._met(sent, moment):
            goes_on &= await asyncio.to_thread(trap.spring)
        return goes_on

    def _met(self, sent: Sent, moment: Moment) -> list[Trap]:
        if sent.parts:
            self.seen += [(point, moment) for point in Point if point.names(sent)]
        return [trap for trap in list(self._traps) if trap.meets(sent, moment)]


def _fits(wanted: tuple[Request, str], part: Part) -> bool:
    return part.kind == wanted[0] and re.fullmatch(wanted[1], part.path) is not None
