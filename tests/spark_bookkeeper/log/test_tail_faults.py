"""Take-over, roll, close and truncation with every mutation lost or fatal; contending writers.

The claims are LedgerChaining's: every ledger that holds entries of a leader is in the list (C1), in
the order of writing (C2), and one ledger is open at most (C3); and the log's own: what was
acknowledged is read once, at the row its writer was told, whoever crashed or took over since.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

import pytest

from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.log.errors import LogHasWriterError
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.writing.leader import Leader
from tests.doubles.stores import LoseNth, UnrulyStore, every_mutation, losing_at_random
from tests.doubles.waits import pass_turns
from tests.patience import seconds
from tests.spark_bookkeeper.log.tail_world import NAME, Client, History, TailWorld, values
from tests.spark_bookkeeper.log.world import DAY_MS, create_under, message_of


async def whole_life(client: Client, history: History) -> None:
    """A take-over, rolls, a truncation, a close."""
    writer = await client.writer(roll_entries=2)
    for payload in values(0, 5, "a"):
        await history.append(writer, payload)
    await writer.close()
    # An own ledger is followed by a writer that finds the log free, and writes nothing.
    await (await client.writer()).close()


async def successor(world: TailWorld, history: History) -> None:
    """Another process that takes over whatever is there."""
    async with await world.another().writer(roll_entries=3) as writer:
        for payload in values(0, 4, "b"):
            await history.append(writer, payload)


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
async def test_no_lost_message_of_a_writers_life_loses_or_doubles_a_row(fault: Fault) -> None:
    async def run(lose: LoseNth) -> None:
        world, history = await TailWorld.with_log(lose.nth), History()

        # One lost message is put up with: nobody outside learns of it.
        await whole_life(world.another(lose), history)
        await successor(world, history)

        assert len(history.acknowledged) == 9
        await history.check(world)

    assert await every_mutation(run, fault) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
async def test_a_writer_may_die_at_any_mutation_and_the_next_one_repairs_the_log(
    fault: Fault,
) -> None:
    async def run(lose: LoseNth) -> None:
        world, history = await TailWorld.with_log(lose.nth), History()
        life = asyncio.ensure_future(whole_life(world.another(lose), history))
        death = asyncio.ensure_future(lose.died.wait())
        await asyncio.wait({life, death}, return_when=asyncio.FIRST_COMPLETED)
        life.cancel()
        death.cancel()
        await asyncio.gather(life, death, return_exceptions=True)
        promised = len(history.acknowledged)

        await successor(world, history)

        assert len(history.acknowledged) == promised + 4
        await history.check(world)

    assert await every_mutation(run, fault, is_fatal=True) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
async def test_no_lost_message_of_a_truncation_drops_more_or_less(fault: Fault) -> None:
    async def run(lose: LoseNth) -> None:
        world, history = await TailWorld.with_log(lose.nth), History()
        await whole_life(world.client, History())
        writer = await world.client.writer()
        await writer.append(b"a-5")

        assert await world.another(lose).log().truncate(3) == 2

        await history.append(writer, b"a-6")
        await writer.close()
        head = await world.head()
        assert (head.base_row, head.next_row) == (2, 7)
        assert await world.rows() == values(2, 5, "a")
        world.now_ms += 8 * DAY_MS
        await world.client.collect()
        assert await world.ledger_ids() == {item.ledger_id for item in head.ranges}

    assert await every_mutation(run, fault) >= 3


class Contest:
    """One seed's run: writers that take the log from each other, crash, and are replaced."""

    world: TailWorld

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.history = History()
        self.seen: Counter[str] = Counter()
        self.heal_rate = self.random.choice((0.0, 0.1, 0.3))
        self.loss_rate = self.random.choice((0.0, 0.01, 0.05))
        self.late_rate = self.random.choice((0.0, 0.1, 0.3))
        self.crash_rate = self.random.choice((0.0, 0.1, 0.3))
        self.stores: list[UnrulyStore] = []
        self.names = 0
        self.surely: set[bytes] = set()
        self.surely_not: set[bytes] = set()

    def client(self) -> Client:
        random, other = (Random(self.random.getrandbits(32)) for _ in range(2))
        store = UnrulyStore(self.world.tree, random, late_rate=self.late_rate)
        self.stores.append(store)
        return self.world.another(losing_at_random(other, self.loss_rate), store)

    @contextmanager
    def counting(self, done: str = "") -> Iterator[None]:
        """Count how a block ends: as ``done``, or with which error."""
        try:
            yield
            self.seen[done] += 1
        except BookKeeperError as failed:
            self.seen[type(failed).__name__] += 1

    async def turns(self, most: int) -> None:
        for _ in range(self.random.randrange(most)):
            await asyncio.sleep(0)

    async def main(self) -> None:
        self.world = await TailWorld.with_log(self.seed)
        tailing = asyncio.ensure_future(self.follow())
        await asyncio.gather(
            *(self.contender() for _ in range(self.random.choice((1, 2, 3)))),
            self.spark(),
            self.collector(),
        )
        for store in self.stores:
            await asyncio.gather(*store.late)
        async with await self.world.another().writer() as last:
            await self.history.append(last, b"last-0")
        rows = await self.world.rows()
        async with asyncio.timeout(seconds(60)):
            followed = await tailing
        assert followed == rows, "a follower saw other rows"
        assert self.surely <= set(rows), "a committed write is missing"
        assert not self.surely_not & set(rows), "a refused write is visible"
        await self.history.check(self.world)

    async def follow(self) -> list[bytes]:
        found = []
        async for _, entry in self.world.another().log().tail("earliest"):
            found.append(bytes(entry.payload))
            if found[-1] == b"last-0":
                break
        return found

    async def contender(self) -> None:
        for _ in range(3):
            await self.turns(60)
            self.names += 1
            name = f"w{self.names}"
            with self.counting():
                await self.lead(name)

    async def lead(self, name: str) -> None:
        client = self.client()
        settings = {"roll_entries": self.random.choice((0, 1, 3))}
        writer = await client.writer(**settings)
        waiting: list[asyncio.Task[None]] = []
        others: list[asyncio.Task[None]] = []
        try:
            for payload in values(0, self.random.randrange(8), name):
                future = writer.append_async(payload)
                waiting.append(asyncio.ensure_future(self.tell(payload, future)))
                if self.random.random() < self.heal_rate:
                    others.append(asyncio.ensure_future(self.heal(writer.ledger_id)))
                await self.turns(20)
                if self.random.random() < self.crash_rate / 4:
                    client.is_dead = True
                    writer.abandon(ClientClosedError("crashed"))
                    self.seen["crashed"] += 1
                    return
            # Half of them close with appends under way.
            if self.random.random() < 0.5:
                await asyncio.gather(*waiting, return_exceptions=True)
            await writer.close()
            self.seen["closed"] += 1
        finally:
            await asyncio.gather(*waiting, *others, return_exceptions=True)

    async def tell(self, payload: bytes, future: asyncio.Future[Position]) -> None:
        self.history.tell(payload, await future)

    async def collector(self) -> None:
        """Collects at any moment; now and then long after everything that is under way."""
        for _ in range(6):
            await self.turns(200)
            if self.random.random() < 0.2:
                self.world.now_ms += 8 * DAY_MS
            with self.counting("collected"):
                await self.client().collect()

    async def heal(self, ledger_id: int) -> None:
        """Recover a ledger of whoever leads, without wanting the log."""
        await self.turns(20)
        with self.counting("healed"):
            await self.client().fence(ledger_id)

    async def spark(self) -> None:
        """Commits between the writers, refused while one of them leads."""
        for number in range(4):
            await self.turns(300)
            payload = b"s%d-0" % number
            with self.counting("spark_committed"):
                try:
                    await self.commit(payload)
                except LogHasWriterError:
                    self.surely_not.add(payload)
                    raise
                self.surely.add(payload)

    async def commit(self, payload: bytes) -> None:
        client = self.client()
        jobs, job = client.layer.jobs, Job.of_batch(payload.decode())
        epoch = await jobs.plan(self.world.log_id, NAME)
        claim = await jobs.claim(epoch, job, partition=0, task_attempt_id=1)
        assert claim is not None
        appender = await create_under(
            claim,
            lambda extra_operations: client.create(
                LogSettings(), password=b"", custom_metadata={}, extra_operations=extra_operations
            ),
        )
        self.history.planned.add(appender.ledger_id)
        appender.push([payload], lambda _acknowledged, _error: True)
        await appender.close()
        written = LedgerWritten(appender.ledger_id, 0, 1, len(payload))
        message = message_of(epoch, job, written=written)
        await client.layer.committer.commit([message], log=NAME)


def run_seed(seed: int) -> Counter[str]:
    contest = Contest(seed)
    try:
        # A pause is as long as others have something to do.
        with patch.object(Leader, "_sleep", lambda _leader, _seconds: pass_turns(3)):
            asyncio.run(contest.main())
    except BaseException as failed:
        failed.add_note(f"seed={seed}")
        raise
    return contest.seen


@pytest.mark.slow
def test_contending_writers_and_commits_never_lose_double_or_mix_rows() -> None:
    seen: Counter[str] = Counter()

    for seed in range(200):
        seen += run_seed(seed)

    # The schedules must reach what they are for.
    ends = {"closed", "crashed", "spark_committed", "collected"}
    assert ends | {"LogFencedError", "LogHasWriterError", "healed"} <= seen.keys()


def test_the_same_seed_gives_the_same_contest() -> None:
    assert run_seed(7) == run_seed(7)
