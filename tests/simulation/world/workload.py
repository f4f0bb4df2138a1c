"""The load of a run: writers, recoverers, readers and deleters, paced so that they meet.

Every actor is a process with a client of its own. An actor knows the errors of the public API and
goes on after them as an application would; anything else that reaches it is a defect and ends the
run. Payloads are unique, so that whatever is read says who wrote it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random

from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import LedgerState
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from spark_bookkeeper.settings import ClientSettings
from tests.simulation.world import history as h
from tests.simulation.world.cluster import SimClient, World
from tests.simulation.world.faults import Swarm

Actor = Callable[[SimClient], Coroutine[None, None, None]]
"""What one process does."""
_APPENDS_MAX = 24
"""Per ledger: the interesting part of a long ledger is its end, and seeds should be many."""


def draw_settings(random: Random) -> ClientSettings:
    """A client in small: tiny frames, short time limits."""
    timeout_ms = random.choice((100, 400, 1_500))
    connection = ConnectionSettings(
        add_timeout_ms=timeout_ms,
        read_timeout_ms=timeout_ms,
        frame_size_bytes_target=random.choice((1, 200, 64 * 1024)),
        frame_size_bytes_max=random.choice((200, 2_000, 1024 * 1024)),
        frames_in_flight_max=random.choice((1, 3, 8)),
    )
    return replace(
        ClientSettings(),
        connection=connection,
        read_size_bytes=random.choice((300, 2_000, 1024 * 1024)),
        recovery_window_entries=random.choice((1, 3, 4_000)),
        bookie_quarantine_ms=random.choice((200, 2_000, 30_000)),
        ensemble_change_timeout_ms=random.choice((1_000, 5_000)),
        ensemble_change_retry_ms=random.choice((200, 1_000)),
        add_quorum_timeout_ms=random.choice((0, 0, 2_000)),
        bookie_wait_timeout_ms=random.choice((0, 1_000, 20_000)),
        min_write_quorum=random.choice((0, 0, 2, 3)),
    )


def patient(settings: ClientSettings) -> ClientSettings:
    """For a world in which nothing but disks is to go wrong: over a connection a frame comes in many parts, each late by itself."""
    timeout_ms = max(settings.connection.add_timeout_ms, 1_500)
    connection = replace(settings.connection, add_timeout_ms=timeout_ms, read_timeout_ms=timeout_ms)
    return replace(settings, connection=connection)


class Workload:
    """Starts actors and knows the ledgers they made."""

    def __init__(self, world: World, swarm: Swarm, *, is_gentle: bool = False) -> None:
        self.world = world
        self.ledgers: list[int] = []
        self.deleted: set[int] = set()
        self.defects: list[str] = []
        self._swarm = swarm
        self._random = world.random("workload")
        self._moments = world.random("moments")
        settings = draw_settings(world.random("settings"))
        self._settings = patient(settings) if is_gentle else settings
        self._clients = 0
        self._actors: list[asyncio.Task[None]] = []
        self.is_over = False
        """Nobody begins anything new any more."""

    def begin(self) -> None:
        """Start this seed's actors."""
        random = self._random
        for number in range(random.choice((1, 1, 2))):
            quorum = self._swarm.quorums[number]
            self._start("writer", lambda client, q=quorum: self._write(client, q))  # type: ignore[misc]
        for _ in range(random.randrange(1, 4)):
            self._start("meddler", self._meddle)
        if random.random() < 0.6:
            self._start("follower", self._follow)
        if random.random() < 0.5:
            self._start("tailer", self._tail)
        if random.random() < 0.4:
            self._start("deleter", self._delete)
        if random.random() < 0.4:
            self.world.history.listeners.append(self._ambush)

    def end(self) -> None:
        """Whoever still works is stopped."""
        self.is_over = True
        for client in self.world.clients:
            client.kill()

    @property
    def is_busy(self) -> bool:
        """Whether some actor has not finished."""
        return any(not actor.done() for actor in self._actors)

    # -- writing --------------------------------------------------------------------------------------

    async def _write(self, client: SimClient, quorum: tuple[int, int, int]) -> None:
        random = self.world.random(f"actor {client.name}")
        for _ in range(random.choice((1, 1, 2))):
            handle = await self._create(client, quorum, random)
            if handle is None:
                return
            self.ledgers.append(handle.ledger_id)
            try:
                await self._fill(client, handle, random)
            except BookKeeperError as error:
                name = type(error).__name__
                self.world.history.record(h.WriterEnded(client.name, handle.ledger_id, name))
            if random.random() < 0.6:
                await self._close(client, handle, random)

    async def _create(
        self, client: SimClient, quorum: tuple[int, int, int], random: Random
    ) -> WriteHandle | None:
        ensemble_size, write_quorum, ack_quorum = quorum
        while not self.is_over:
            try:
                return await client.ledgers.create_ledger(
                    ensemble_size=ensemble_size, write_quorum=write_quorum, ack_quorum=ack_quorum
                )
            except BookKeeperError:
                await asyncio.sleep(random.uniform(0.01, 0.3))
        return None

    async def _fill(self, client: SimClient, handle: WriteHandle, random: Random) -> None:
        """Append in bursts; a burst is not waited for, the next one may be."""
        history, ledger = self.world.history, handle.ledger_id
        pace_s = random.choice((0.001, 0.02, 0.15))
        left = random.randrange(_APPENDS_MAX)
        acknowledged = -1

        def complete_to(last: int, confirmed: int, error: BookKeeperError | None) -> bool:
            nonlocal acknowledged
            while error is None and acknowledged < min(last, confirmed):
                acknowledged += 1
                history.record(h.Acked(client.name, ledger, acknowledged))
            return error is not None or confirmed >= last

        while left > 0:
            count = min(left, random.randrange(1, 5))
            left -= count
            first = handle.last_add_pushed + 1
            sizes = [random.choice((0, 8, 40, 700)) for _ in range(count)]
            payloads = tuple(
                f"{ledger}/{first + n}/{client.name}/".encode().ljust(size, b".")
                for n, size in enumerate(sizes)
            )
            last = first + count - 1
            history.record(h.Appended(client.name, ledger, first, payloads))
            handle.push(payloads, lambda c, e, last=last: complete_to(last, c, e))  # type: ignore[misc]
            if random.random() < 0.3:
                await handle.flush()
            else:
                await asyncio.sleep(random.uniform(0, 2 * pace_s))
        if random.random() < 0.8:
            await handle.flush()

    async def _close(self, client: SimClient, handle: WriteHandle, random: Random) -> None:
        for _ in range(3):
            try:
                await handle.close()
            except BookKeeperError as error:
                self._refused(client, handle.ledger_id, "close", error)
                await asyncio.sleep(random.uniform(0.01, 0.5))
            else:
                closed = h.WriterClosed(client.name, handle.ledger_id, handle.metadata.last_entry)
                self.world.history.record(closed)
                return

    # -- taking over, reading, deleting -----------------------------------------------------------------

    async def _meddle(self, client: SimClient) -> None:
        """Recover a ledger somebody may be writing, alone or several at once; read it all."""
        random = self.world.random(f"actor {client.name}")
        for _ in range(random.choice((1, 2))):
            await asyncio.sleep(random.uniform(0, 1.2))
            if not self.ledgers:
                continue
            ledger = random.choice(self.ledgers)
            others = random.choice((0, 0, 1, 1, 3))
            for _ in range(others):
                self._start("rival", lambda rival, at=ledger: self._recover(rival, at))  # type: ignore[misc]
            await self._recover(client, ledger)

    def _ambush(self, event: h.Event) -> None:
        """Begin a recovery at a moment that matters: as the writer changes the ensemble or sends."""
        random, after = self._moments, self.world.loop.after
        match event:
            case h.Committed() if event.version and event.metadata.state is LedgerState.OPEN:
                if random.random() < 0.4:
                    after(random.randrange(20_000), self._start_rival, event.ledger)
            case h.AddArrived() if random.random() < 0.004:
                after(random.randrange(20_000), self._start_rival, event.ledger)
            case h.BookieDown() if self.ledgers and random.random() < 0.3:
                # Its writers will soon give it up.
                within_us = self._settings.connection.add_timeout_ms * 1_100
                ledger = random.choice(self.ledgers)
                after(random.randrange(within_us), self._start_rival, ledger)
            case _:
                return

    def _start_rival(self, ledger: int) -> None:
        if not self.is_over:
            self._start("rival", lambda rival: self._recover(rival, ledger))

    async def _recover(self, client: SimClient, ledger: int) -> None:
        random = self.world.random(f"recover {client.name} {ledger}")
        await asyncio.sleep(random.uniform(0, 0.01))
        for _ in range(random.randrange(1, 5)):
            reader = await self.open(client, ledger, recovery=True)
            if reader is not None:
                await self.read_all(client, reader)
                return
            await asyncio.sleep(random.uniform(0, 0.4))

    async def _follow(self, client: SimClient) -> None:
        """Read behind the writer without recovering, up to what is confirmed."""
        random = self.world.random(f"actor {client.name}")
        readers: dict[int, ReadHandle] = {}
        for _ in range(random.randrange(3, 10)):
            await asyncio.sleep(random.uniform(0, 0.5))
            if not self.ledgers:
                continue
            ledger = random.choice(self.ledgers)
            if ledger not in readers:
                opened = await self.open(client, ledger, recovery=False)
                if opened is None:
                    continue
                readers[ledger] = opened
            reader = readers[ledger]
            try:
                lac = await reader.read_last_add_confirmed()
            except BookKeeperError as error:
                self._refused(client, ledger, "lac", error)
                continue
            self.world.history.record(h.LacSeen(client.name, ledger, reader.is_closed, lac))
            if random.random() < 0.3:
                await self._read_beyond(client, reader)
            await self.read_all(client, reader)

    async def _read_beyond(self, client: SimClient, reader: ReadHandle) -> None:
        """What is there behind the LAC, if anything."""
        history, ledger = self.world.history, reader.ledger_id
        try:
            async for entry in reader.read_unconfirmed(0, reader.last_add_confirmed + 2):
                payload = bytes(entry.payload)
                history.record(h.ReadUnconfirmed(client.name, ledger, entry.entry_id, payload))
        except BookKeeperError as error:
            self._refused(client, ledger, "read unconfirmed", error)

    async def _tail(self, client: SimClient) -> None:
        """Wait for entries as they are confirmed, over ensemble changes, to the ledger's end."""
        random = self.world.random(f"actor {client.name}")
        history = self.world.history
        for _ in range(20):
            await asyncio.sleep(random.uniform(0, 0.3))
            reader = None
            if self.ledgers:
                reader = await self.open(client, random.choice(self.ledgers), recovery=False)
            if reader is None:
                continue
            ledger, last = reader.ledger_id, -1
            try:
                async for entry in reader.tail(0, timeout=random.choice((0.3, 2.0))):
                    last = entry.entry_id
                    history.record(h.ReadEntry(client.name, ledger, last, bytes(entry.payload)))
            except BookKeeperError as error:
                self._refused(client, ledger, "tail", error)
            else:
                history.record(h.TailEnded(client.name, ledger, reader.is_closed, last))
                return

    async def _delete(self, client: SimClient) -> None:
        random = self.world.random(f"actor {client.name}")
        for _ in range(random.choice((1, 1, 2))):
            await asyncio.sleep(random.uniform(0.2, 3))
            if not self.ledgers:
                continue
            ledger = random.choice(self.ledgers)
            self.deleted.add(ledger)
            try:
                await client.ledgers.delete_ledger(ledger, force=random.random() < 0.3)
            except BookKeeperError as error:
                self._refused(client, ledger, "delete", error)
            else:
                self.world.count("F19 ledger deleted", str(ledger))

    async def open(self, client: SimClient, ledger: int, *, recovery: bool) -> ReadHandle | None:
        """A read handle, or None after an error of the public hierarchy."""
        history = self.world.history
        if recovery:
            history.record(h.RecoveryBegun(client.name, ledger))
        try:
            reader = await client.ledgers.open_ledger(ledger, recovery=recovery)
        except BookKeeperError as error:
            if recovery:
                history.record(h.RecoveryEnded(client.name, ledger, type(error).__name__))
            self._refused(client, ledger, "open", error)
            return None
        if recovery:
            history.record(h.RecoveryEnded(client.name, ledger, ""))
        last = reader.last_add_confirmed
        history.record(h.Opened(client.name, ledger, reader.is_closed, last))
        return reader

    async def read_all(self, client: SimClient, reader: ReadHandle) -> bool:
        """Everything up to the handle's LAC; whether that could be read."""
        history, ledger = self.world.history, reader.ledger_id
        try:
            async for entry in reader.read(0, reader.last_add_confirmed):
                payload = bytes(entry.payload)
                history.record(h.ReadEntry(client.name, ledger, entry.entry_id, payload))
        except BookKeeperError as error:
            self._refused(client, ledger, "read", error)
            return False
        return True

    # -- actors -----------------------------------------------------------------------------------------

    def _start(self, role: str, act: Actor) -> None:
        self._clients += 1
        client = self.world.client(f"{role}{self._clients}", self._settings)
        actor = client.owner.start(self._supervise(client, act), f"actor-{client.name}")
        self._actors.append(actor)

    async def _supervise(self, client: SimClient, act: Actor) -> None:
        try:
            await act(client)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - any other error is what we look for
            self.defects.append(f"{client.name} met {error!r}")

    def _refused(
        self, client: SimClient, ledger: int, operation: str, error: BookKeeperError
    ) -> None:
        event = h.Refused(client.name, ledger, operation, type(error).__name__)
        self.world.history.record(event)
