"""Users of a whole cluster: every node of every part has its ACL, and who may do what is as documented.

What docs/zookeeper-security.md says that each kind of user needs is tested here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest

from bookie_server.collection.collector import Collector
from bookie_server.collection.counter import CollectionCounter
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cookies import StartCounter
from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.errors import MetadataAccessError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.paths import Paths, PeriodicCheck
from bookkeeper_metadata.readonly import ReadonlyWishes
from bookkeeper_metadata.store.operations import Node, NotEmptyError
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.admin.acls import Finding, go_through_acls
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from spark_bookkeeper.log.cleaning.optimize import Rewritten
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten
from spark_bookkeeper.log.format.raw import settings_and_schema
from spark_bookkeeper.log.handle import Log
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.ledgers import ClusterLedgers
from spark_bookkeeper.log.rules.grouping import GroupLimits
from spark_bookkeeper.log.rules.rewriting import rewritten
from tests.doubles.cluster import ROOT
from tests.spark_bookkeeper.guarded_cluster import (
    Guarded,
    LateLog,
    all_acls,
    grant,
    guarded_cluster,
    initialized,
    restrict,
)
from tests.spark_bookkeeper.log.world import DAY_MS

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

PATHS = Paths(ROOT)
INFO = BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, "b9", 1, GRPC),))


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    with ZooKeeperProcess(tmp_path / "zookeeper") as process:
        yield process


@pytest.fixture
async def cluster(zookeeper: ZooKeeperProcess, tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded_cluster(zookeeper, tmp_path) as made:
        yield made


async def use_ledgers(client: LedgerClient, ledger_id: int | None = None) -> int:
    """Write one and leave it open; another client would take it over."""
    writer = await client.create_ledger(ledger_id=ledger_id)
    for number in range(3):
        await writer.append(b"%d" % number)
    return writer.ledger_id


async def read_ledger(client: LedgerClient, ledger_id: int, *, recovery: bool) -> list[bytes]:
    reader = await client.open_ledger(ledger_id, recovery=recovery)
    last = reader.last_add_confirmed
    return [bytes(entry.payload) async for entry in reader.read(0, last)] if last >= 0 else []


async def use_log(log: LateLog) -> None:
    """Append, optimize, overwrite, leave a write open, follow, and collect what all of that left."""
    for number in range(4):
        await log.append(Job.of_batch(f"append {number}"))
    await optimize(log)
    await log.append(Job.of_stream("q", 0), is_overwrite=True)
    await log.logs.consumers(log.log_id, "orders").advance("report", 10, DAY_MS)
    await log.collect()
    await log.plan_and_write(Job.of_batch("open"))


async def optimize(log: LateLog) -> None:
    """Small ledgers become one."""
    optimizer = log.logs.optimizer
    limits = GroupLimits(target_bytes=8_000, ranges_min=3)
    found = await optimizer.plan(log.log_id, "orders", limits)
    assert found is not None
    made = []
    for number, group in enumerate(found.groups):
        ledger_id = await log.create_ledger(optimizer.claim(found, number, 1))
        rows, size = (sum(getattr(each, of) for each in group) for of in ("rows", "size_bytes"))
        ledger = LedgerWritten(ledger_id, 5, rows, size, group[0].schema_id)
        made.append(Rewritten(number, (rewritten(group, ledger),)))
    assert (await optimizer.commit(found, made)).groups > 0


async def use_every_part(cluster: Guarded, store: ZooKeeperStore) -> None:
    """What bookies, auto-recovery, an operator, clients and logs make, and what is there only for a while."""
    cookies = cluster.bookies.cookies
    await cookies.count_start("b0:1", StartCounter(1, "x"), await cookies.read("b0:1"))
    await ReadonlyWishes(store, ROOT).make("b1:1")
    marks = Underreplication(store, ROOT, random=Random(1))
    await marks.mark(7, ("b1:1",), now_ms=1)
    assert await marks.try_lock(7, "b2:1") is not None
    await marks.set_enabled(False)
    await marks.set_lost_bookie_delay(5)
    for check in PeriodicCheck:
        await marks.note_check(check, 1)
    await AuditorElection(store, ROOT, "b0:1").win()

    writing = cluster.client(store)
    opened, long_id = await use_ledgers(writing), 1 << 40
    await use_ledgers(writing, long_id)
    assert len(await read_ledger(cluster.client(store), opened, recovery=True)) == 3

    log = cluster.log(store)
    await log.create_log()
    await use_log(log)
    layer = LogLayer.over(writing)
    plain = await layer.catalog.create("plain", *settings_and_schema(None, b""))
    writer = await Log(layer, ClusterLedgers(writing), "plain", plain).writer()
    await writer.append(b"row")
    await (await store.lock(f"{ROOT}/lock"))()
    await BookieRegistry(store, ROOT).register("b9:1", INFO, readonly=True)


async def test_every_node_of_every_part_is_its_users_and_others_are_refused(
    cluster: Guarded,
) -> None:
    store = await initialized(cluster, "me")
    await cluster.start_bookies(store)

    await use_every_part(cluster, store)

    tops = (ROOT, f"{ROOT}-bookies", f"{ROOT}-logs")
    acls = {path: acl for top in tops for path, acl in (await all_acls(store, top)).items()}
    assert {path for path, acl in acls.items() if acl != store.access.acl} == set()
    assert len(acls) > 80
    report = await go_through_acls(store, ROOT, store.access.acl)
    assert (report.nodes, dict(report.left)) == (len(acls), {Finding.AS_WANTED: len(acls)})

    for user in ("other", ""):
        stranger = await cluster.session(user)
        for path in acls:
            with pytest.raises(MetadataAccessError):
                await stranger.get(path)
            with pytest.raises(MetadataAccessError):
                await stranger.put(path, b"", 0)
            # Whether these may go is said by the folder around the cluster.
            with pytest.raises(NotEmptyError if path in tops else MetadataAccessError):
                await stranger.delete(path)
        with pytest.raises(MetadataAccessError):
            await BookieRegistry(stranger, ROOT).register("b8:1", INFO)
    assert await all_acls(store, ROOT) == {
        path: acl for path, acl in acls.items() if path == ROOT or path.startswith(f"{ROOT}/")
    }


async def test_bookies_and_spark_may_be_two_users_and_spark_deletes_no_bookies_nodes(
    cluster: Guarded,
) -> None:
    of_bookies, of_spark = grant("bookie", "cdrwa"), grant("spark", "cdrw")
    only_read = f"{of_bookies},{grant('spark', 'r')}"
    bookies = await initialized(cluster, "bookie", of_spark)
    for folder in (PATHS.cookies, PATHS.available, PATHS.readonly):
        await restrict(bookies, folder, only_read)
    await cluster.start_bookies(bookies)
    spark = await cluster.session("spark", of_bookies)

    log = cluster.log(spark)
    await log.create_log()
    await use_log(log)
    client = cluster.client(spark)
    opened = await use_ledgers(client)
    assert len(await client.bookies(with_away=True)) == 3
    assert len(await read_ledger(cluster.client(spark), opened, recovery=True)) == 3
    await client.delete_ledger(opened)

    with pytest.raises(MetadataAccessError, match="/cookies/b0:1"):
        await spark.delete(PATHS.cookie("b0:1"))
    with pytest.raises(MetadataAccessError, match="/available/b0:1"):
        await spark.delete(PATHS.bookie("b0:1"))
    with pytest.raises(MetadataAccessError, match="/available/b9:1"):
        await BookieRegistry(spark, ROOT).register("b9:1", INFO)
    # What the page says that it may: what a bookie makes has the ACL of the bookie's settings.
    cookie = await spark.get(PATHS.cookie("b0:1"))
    assert isinstance(cookie, Node)
    await spark.put(PATHS.cookie("b0:1"), cookie.value, cookie.version)
    # Auto-recovery is a bookie, too: it collects the logs that Spark writes.
    house = cluster.log(bookies, log.log_id)
    house.late_ms = 8 * DAY_MS
    await house.collect()
    assert await house.nodes().epochs() == []
    await house.logs.catalog.delete("orders")
    assert await bookies.children(f"{ROOT}-logs") == ["names"]


async def test_a_bookie_that_is_not_let_in_deletes_nothing(cluster: Guarded) -> None:
    """Metadata that it may not see are not metadata that are gone."""
    store = await initialized(cluster, "me")
    await cluster.start_bookies(store)
    client = cluster.client(store)
    ledger_ids = [await use_ledgers(client) for _ in range(2)]
    bookie = cluster.bookies.bookies["b0:1"]
    theirs = LedgerStore(await cluster.session("bookie"), ROOT, random=Random(1))
    collector = Collector(bookie, Trusting(), theirs, interval_ms=100)
    shut = grant("me", "cdrwa")
    letting_in = f"{shut},{grant('bookie', 'cdrw')}"
    path = PATHS.ledger(ledger_ids[0]).rpartition("/")[0]

    # Further and further: into the layout, the drawing of ids.
    for opened in (None, PATHS.layout, PATHS.idgen):
        if opened is not None:
            await restrict(store, opened, letting_in)
        for _ in range(3):
            with pytest.raises(MetadataAccessError):
                await collector.collect()
        assert sorted(bookie.held_ledgers) == ledger_ids
    # Into the list of folders, and one folder: what is hidden may be there.
    for opened in (ROOT, path.rpartition("/")[0]):
        await restrict(store, opened, letting_in)
        assert sum([await collector.collect() for _ in range(3)]) == 0
        assert sorted(bookie.held_ledgers) == ledger_ids
    # Of what it may see it deletes what is gone, as ever.
    for opened in (path, PATHS.ledger(ledger_ids[1])):
        await restrict(store, opened, letting_in)
    await store.delete(PATHS.ledger(ledger_ids[0]))
    assert sum([await collector.collect() for _ in range(3)]) == 1
    assert sorted(bookie.held_ledgers) == ledger_ids[1:]


class Trusting(CollectionCounter):
    """Counts nothing, and believes the metadata."""

    def __init__(self) -> None:
        pass

    async def count(self) -> bool:
        return True


async def test_readers_need_to_read_and_can_do_nothing_else(cluster: Guarded) -> None:
    store = await initialized(cluster, "me", grant("reader", "r"))
    await cluster.start_bookies(store)
    log = cluster.log(store)
    await log.create_log()
    await use_log(log)
    client = cluster.client(store)
    opened = await use_ledgers(client)
    reader = await cluster.session("reader")

    reading = cluster.client(reader)
    # Without recovery up to what is known to be confirmed, which the last entry is not.
    assert len(await read_ledger(reading, opened, recovery=False)) >= 2
    assert opened in [ledger_id async for ledger_id in reading.list_ledgers()]
    assert len(await reading.bookies(with_away=True)) == 3
    theirs = cluster.log(reader, log.log_id)
    assert await theirs.rows() == await log.rows() > 0
    assert await theirs.logs.catalog.names() == ["orders"]

    with pytest.raises(MetadataAccessError):
        await read_ledger(reading, opened, recovery=True)
    with pytest.raises(MetadataAccessError):
        await reading.create_ledger()
    with pytest.raises(MetadataAccessError):
        await reading.delete_ledger(opened)
    with pytest.raises(MetadataAccessError):
        await theirs.plan()
    with pytest.raises(MetadataAccessError):
        await theirs.logs.catalog.delete("orders")
    assert await log.rows() > 0


async def test_writers_of_ledgers_may_be_kept_from_deleting_any(cluster: Guarded) -> None:
    """A folder is whose who made it: such a user leaves itself no right to delete in those that it makes."""
    of_admin, of_writer = grant("admin", "cdrwa"), grant("writer", "crw")
    admin = await initialized(cluster, "admin", of_writer)
    await restrict(admin, PATHS.idgen, f"{of_admin},{grant('writer', 'cdrw')}")
    await cluster.start_bookies(admin)
    store = await cluster.session("writer", f"{of_writer},{of_admin}")
    client = cluster.client(store)

    opened = await use_ledgers(client)
    assert len(await read_ledger(cluster.client(store), opened, recovery=True)) == 3
    with pytest.raises(MetadataAccessError):
        await client.delete_ledger(opened)

    assert len(await read_ledger(cluster.client(store), opened, recovery=False)) == 3
    await cluster.client(admin).delete_ledger(opened)


async def test_spark_may_be_kept_from_deleting_ledgers_and_auto_recovery_does_it_then(
    cluster: Guarded,
) -> None:
    """Its writes commit, and what they leave behind waits for who may collect it."""
    of_admin, of_spark = grant("admin", "cdrwa"), grant("spark", "crw")
    admin = await initialized(cluster, "admin", grant("spark", "cdrw"))
    await cluster.start_bookies(admin)
    owner = cluster.log(admin)
    await owner.create_log()
    log = cluster.log(await cluster.session("spark", f"{of_spark},{of_admin}"), owner.log_id)

    for number in range(3):
        await log.append(Job.of_batch(f"append {number}"))
    assert await log.rows() == 60
    await log.append(Job.of_stream("q", 0), is_overwrite=True)
    log.late_ms = owner.late_ms = 8 * DAY_MS
    with pytest.raises(MetadataAccessError):
        await log.collect()

    assert len(await ledgers_of(cluster, admin)) == 8
    assert len((await owner.collect()).ledgers_deleted) == 6
    assert await owner.rows() == await log.rows() == 20


async def ledgers_of(cluster: Guarded, store: ZooKeeperStore) -> list[int]:
    return [ledger_id async for ledger_id in cluster.client(store).list_ledgers()]
