"""The synchronous client on a real cluster, over each carrier: threads, futures, fork, bad input."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bookie_server.client.settings import BOOKIE_PROTOCOLS
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.blocking.add_future import AddFuture
from spark_bookkeeper.ledger.errors import EntryTooLargeError, LedgerClosedError, UnauthorizedError
from spark_bookkeeper.log.errors import LogExistsError, NoSuchLogError
from tests.integration.processes import first_line, paused, python
from tests.patience import seconds

pytestmark = pytest.mark.integration


@pytest.fixture(params=BOOKIE_PROTOCOLS)
def bk(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[BookKeeper]:
    settings = ClientSettings(bookie_protocol=request.param)
    with BookKeeper(cluster.metadata_service_uri, settings=settings) as client:
        yield client


def test_the_readme_example_works(bk: BookKeeper) -> None:
    with bk.create_ledger(password=b"s") as writer:
        assert writer.append(b"one") == 0
        assert writer.append_async(b"two").result(seconds(10)) == 1
        assert writer.append_many([b"three", b"four"]) == range(2, 4)
    with bk.open_ledger(writer.ledger_id, password=b"s") as reader:
        entries = [(e.entry_id, bytes(e.payload), e.length) for e in reader.read(0, 3)]

    assert entries == [(0, b"one", 3), (1, b"two", 6), (2, b"three", 11), (3, b"four", 15)]
    assert writer.ledger_id in list(bk.list_ledgers())
    assert [bookie.writable for bookie in bk.bookies()] == [True] * 3


def test_several_threads_share_one_writer_without_losing_an_entry(bk: BookKeeper) -> None:
    writer = bk.create_ledger()
    ids: list[int] = []

    def work(name: int) -> None:
        futures = [writer.append_async(b"%d-%d" % (name, i)) for i in range(300)]
        ids.extend(future.result(seconds(30)) for future in futures)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    writer.close()

    assert sorted(ids) == list(range(1200))
    with bk.open_ledger(writer.ledger_id) as reader:
        payloads = [bytes(entry.payload) for entry in reader.read(0, 1199)]
    for name in range(4):
        mine = [p for p in payloads if p.startswith(b"%d-" % name)]
        assert mine == [b"%d-%d" % (name, i) for i in range(300)]


@pytest.mark.conformance("R26")
def test_many_recoveries_on_one_connection_find_their_own_answers(bk: BookKeeper) -> None:
    writers = [bk.create_ledger() for _ in range(30)]
    for number, writer in enumerate(writers):
        writer.append_many([b"%d" % number] * (number + 1))

    with ThreadPoolExecutor(max_workers=30) as pool:
        readers = list(pool.map(lambda w: bk.open_ledger(w.ledger_id, recovery=True), writers))

    for number, reader in enumerate(readers):
        entries = [bytes(e.payload) for e in reader.read(0, reader.last_add_confirmed)]
        assert entries == [b"%d" % number] * (number + 1)


def test_callbacks_run_once_whether_registered_before_or_after(bk: BookKeeper) -> None:
    with bk.create_ledger() as writer:
        called: list[AddFuture[int]] = []
        future = writer.append_async(b"x")
        future.add_done_callback(called.append)
        future.result(seconds(10))
        future.add_done_callback(called.append)

        assert future.done()
        assert future.exception() is None
        writer.flush()
        assert called == [future, future]


def test_appends_after_close_and_too_large_ones_are_refused(bk: BookKeeper) -> None:
    writer = bk.create_ledger()
    with pytest.raises(EntryTooLargeError):
        writer.append(bytes(6 * 1024 * 1024))
    writer.close()
    with pytest.raises(LedgerClosedError):
        writer.append(b"x")
    with pytest.raises(LedgerClosedError):
        writer.append_many([b"x"])


def test_a_small_window_slows_appends_and_loses_none(cluster: LocalCluster) -> None:
    settings = ClientSettings(max_in_flight_bytes=10_000)
    client = BookKeeper(cluster.metadata_service_uri, settings=settings)
    with client, client.create_ledger() as writer:
        futures = [writer.append_async(bytes(3_000)) for _ in range(200)]
        assert [future.result(seconds(30)) for future in futures] == list(range(200))


def test_closing_the_client_fails_what_is_pending_and_hangs_nobody(cluster: LocalCluster) -> None:
    client = BookKeeper(cluster.metadata_service_uri)
    writer = client.create_ledger()
    with paused(cluster.bookies):
        future = writer.append_async(b"x")
        client.close()

    with pytest.raises(BookKeeperError):
        future.result(seconds(10))
    with pytest.raises(ClientClosedError):
        client.create_ledger()


_EXITS_WITH_ADDS_PENDING = """
import sys
from spark_bookkeeper import BookKeeper

writer = BookKeeper(sys.argv[1]).create_ledger()
writer.append(b"first")
print("ready", flush=True)
input()
for number in range(50):
    writer.append_async(b"late").add_done_callback(
        lambda future, number=number: print(number, type(future.exception()).__name__, flush=True)
    )
"""


def test_an_interpreter_that_exits_tells_every_add_that_waits(cluster: LocalCluster) -> None:
    child = python(_EXITS_WITH_ADDS_PENDING, cluster.metadata_service_uri, stdin=subprocess.PIPE)
    try:
        assert first_line(child) == "ready\n"
        with paused(cluster.bookies):
            out, _ = child.communicate("\n", timeout=seconds(60))
    finally:
        child.kill()

    assert out.splitlines() == [f"{number} ClientClosedError" for number in range(50)]
    assert child.returncode == 0


def test_the_wrong_password_is_one_clear_error(bk: BookKeeper) -> None:
    with bk.create_ledger(password=b"right") as writer:
        writer.append(b"x")
    with pytest.raises(UnauthorizedError, match=f"ledger_id={writer.ledger_id}"):
        bk.open_ledger(writer.ledger_id, password=b"wrong")


def test_logs_are_created_listed_and_deleted_by_name(bk: BookKeeper) -> None:
    log = bk.create_log("orders", schema=b"id long")

    assert bk.list_logs() == ["orders"]
    assert (log.name, log.row_count, log.ledgers(), log.transactions()) == ("orders", 0, [], {})
    assert bk.open_log("orders").schema == b"id long"
    with pytest.raises(LogExistsError):
        bk.create_log("orders")
    bk.delete_log("orders")
    with pytest.raises(NoSuchLogError, match="orders"):
        bk.open_log("orders")


def test_an_unreachable_metadata_service_is_named() -> None:
    settings = ClientSettings(metadata_timeout_ms=1_000)
    client = BookKeeper("zk+hierarchical://127.0.0.1:1/ledgers", settings=settings)
    with client, pytest.raises(MetadataUnavailableError, match=r"127\.0\.0\.1:1"):
        client.bookies()


def test_no_cluster_named_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOOKKEEPER_METADATA_URI", raising=False)
    with pytest.raises(ValueError, match="BOOKKEEPER_METADATA_URI"):
        BookKeeper()


FORK = """
import os, sys
from spark_bookkeeper import BookKeeper, ClientSettings
from spark_bookkeeper.errors import ClientClosedError

bk = BookKeeper(sys.argv[1], settings=ClientSettings(bookie_protocol=sys.argv[3]))
was_connected = sys.argv[2] == "connected"
if was_connected:
    writer = bk.create_ledger()
    writer.append(b"parent")
pid = os.fork()
if pid == 0:
    try:
        if was_connected:
            try:
                writer.append(b"from the child")
            except ClientClosedError:
                pass
        own = bk.create_ledger()
        written = [b"child %d " % i * (i % 500) for i in range(3000)]
        own.append_many(written)
        with bk.open_ledger(own.ledger_id, recovery=True) as reader:
            entries = [bytes(e.payload) for e in reader.read(0, reader.last_add_confirmed)]
        bk.close()
        os._exit(0 if entries == written else 3)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(4)
_, status = os.waitpid(pid, 0)
with bk.create_ledger() as after:
    after.append(b"parent again")
if was_connected:
    writer.append(b"goes on")
    writer.close()
bk.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.slow
@pytest.mark.parametrize("parent", ["fresh", "connected"])
@pytest.mark.parametrize("protocol", BOOKIE_PROTOCOLS)
def test_a_forked_child_makes_its_own_connections(
    cluster: LocalCluster, parent: str, protocol: str
) -> None:
    """Also when its parent had used gRPC, which works in no child of such a process."""
    with python(FORK, cluster.metadata_service_uri, parent, protocol) as run:
        out, _ = run.communicate(timeout=seconds(60))

    assert run.returncode == 0, out
