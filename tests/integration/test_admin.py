"""What ``bookkeeper admin`` serves of a cluster: the documents of the page, and metrics of logs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bookkeeper_metadata.bookies import encode_service_info
from bookkeeper_metadata.endpoints import HTTP, HTTP_ENDPOINT, BookieServiceInfo, Endpoint
from bookkeeper_metadata.paths import LedgerLayout, Paths
from bookkeeper_metadata.store.connect import connect
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.log.nodes.paths import LogPaths
from tests.integration.admin_page import AdminPage, admin_page
from tests.integration.command_line import CommandLine
from tests.patience import Deadline

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECRET = b"a secret password"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3) as running:
        yield running


@pytest.fixture(scope="module")
def page(cluster: LocalCluster) -> Iterator[AdminPage]:
    with admin_page(cluster.metadata_service_uri) as served:
        yield served


def test_bookies_are_shown_with_what_they_have_written(
    page: AdminPage, bk: BookKeeper, cluster: LocalCluster
) -> None:
    before = {each["bookie_id"]: each for each in page.json("bookies")["bookies"]}

    with bk.create_ledger() as writer:
        writer.append_many([bytes(10_000)] * 100)

    waited, after = Deadline(30), before
    while after[cluster.bookies[0].bookie_id]["written_bytes"] < 10**6:
        assert not waited.has_passed  # answers are up to a second old
        time.sleep(0.1)
        after = {each["bookie_id"]: each for each in page.json("bookies")["bookies"]}
    for bookie in cluster.bookies:
        found = after[bookie.bookie_id]
        assert (found["state"], found["answers"]) == ("writable", True)
        assert found["written_bytes"] - before[bookie.bookie_id]["written_bytes"] > 10**6
        assert 0 < found["disk_free_bytes"] < found["disk_total_bytes"]


def test_ledgers_are_shown_newest_first_and_without_passwords(
    page: AdminPage, bk: BookKeeper
) -> None:
    ids = []
    for number in range(3):
        metadata = {"made-for": b"%d" % number}
        with bk.create_ledger(password=SECRET, custom_metadata=metadata) as writer:
            writer.append(b"x")
        ids.append(writer.ledger_id)

    newest = page.json("ledgers")["ledgers"]
    older = page.json(f"ledgers?below={ids[1]}")["ledgers"]
    status, text = page.get(f"/api/v1/ledgers/{ids[2]}")

    assert [each["ledger_id"] for each in newest[:3]] == ids[::-1]
    assert older[0]["ledger_id"] == ids[0]
    assert status == 200
    shown = json.loads(text)
    assert shown["custom_metadata"] == {"made-for": "2"}
    assert [len(each["ensemble"]) for each in shown["fragments"]] == [3]
    assert SECRET.decode() not in text
    assert "password" not in text


def test_logs_are_shown_with_their_consumers(
    page: AdminPage, bookkeeper: CommandLine, bk: BookKeeper
) -> None:
    bookkeeper("logs", "append", "shown", stdin=b"0\n1\n2\n")

    waited = Deadline(30)
    while not any(each["log"] == "shown" and each["rows"] for each in page.json("logs")["logs"]):
        assert not waited.has_passed
        time.sleep(0.1)
    log = page.json("logs/shown")
    time.sleep(0.3)  # a scrape that is no older is shown again
    families = text_string_to_metric_families(page.get("/metrics")[1])
    samples = {
        (each.name, each.labels.get("log")): each.value for f in families for each in f.samples
    }

    assert (log["next_row"], log["ranges_in_all"]) == (3, 1)
    assert samples["bookkeeper_logs_up", None] == 1
    assert samples["bookkeeper_log_rows", "shown"] == 3


def test_what_is_not_there_is_said_to_be_not_there(page: AdminPage) -> None:
    for path, status, said in (
        ("ledgers/999999", 404, "BK_NO_SUCH_LEDGER"),
        ("ledgers/one", 400, "no ledger's id: one"),
        ("ledgers?below=-1", 400, "no ledger's id: -1"),
        ("logs/nowhere", 404, "BK_NO_SUCH_LOG"),
        ("unknown", 404, "not found"),
    ):
        found, body = page.get(f"/api/v1/{path}")
        assert found == status, (path, body)
        assert said in json.loads(body)["error"], path


def test_nobody_else_s_page_can_ask_it_through_a_visitor_s_browser(page: AdminPage) -> None:
    assert page.get("/api/v1/cluster", Host="evil.example")[0] == 421
    assert page.get("/", Host="localhost")[0] == 200


def test_the_page_needs_nothing_from_elsewhere(page: AdminPage) -> None:
    for path in ("/", "/page.js", "/draw.js", "/page.css"):
        status, text = page.get(path)
        assert status == 200
        assert "://" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.full
def test_it_goes_on_where_zookeeper_is_away_for_a_while() -> None:
    with LocalCluster(1) as cluster, admin_page(cluster.metadata_service_uri) as page:
        assert page.json("cluster")["instance_id"]
        cluster.zookeeper.kill()
        waited = Deadline(120)
        while page.get("/api/v1/logs")[0] == 200:
            assert not waited.has_passed
            time.sleep(0.2)
        status, body = page.get("/api/v1/logs")
        assert status == 503
        assert json.loads(body)["error"]
        assert page.get("/healthz")[0] == 200
        assert "bookkeeper_logs_up 0.0" in page.get("/metrics")[1]

        cluster.zookeeper.start()

        while page.get("/api/v1/logs")[0] != 200:
            assert not waited.has_passed
            time.sleep(0.2)


class Hostile(socketserver.BaseRequestHandler):
    """Where a registration says that a bookie shows its metrics: it never ends its answer."""

    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                self.request.sendall(b"#" * 65536)


def test_nodes_that_strangers_wrote_hide_nothing_else() -> None:
    """A name of a log that can be none, a mark and a ledger that nobody understands, an address that streams for ever."""
    with LocalCluster(1) as cluster, admin_page(cluster.metadata_service_uri) as page:
        with BookKeeper(cluster.metadata_service_uri) as client:
            client.create_log("sound")
            with client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
                writer.append(b"x")
        own = cluster.bookies[0].bookie_id
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hostile) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            asyncio.run(write_nonsense(cluster.metadata_service_uri, server.server_address[1]))

            waited = Deadline(60)
            while len(page.json("logs")["logs"]) < 2:
                assert not waited.has_passed  # answers are up to a second old
                time.sleep(0.2)
            logs = {each["log"]: each["error"] for each in page.json("logs")["logs"]}
            bookies = page.json("bookies")["bookies"]
            marks = page.json("replication")["marks"]
            ledgers = page.json("ledgers")["ledgers"]
            metrics = page.get("/metrics")[1]
            server.shutdown()

    assert logs["sound"] is None
    assert "a log name has" in str(logs["bad*name"])
    assert {each["bookie_id"] for each in bookies} == {own, "evil:1"}
    assert [each["state"] for each in marks if "cannot be read" in each["state"]]
    assert {"UNREADABLE", "CLOSED"} == {each["state"] for each in ledgers}
    assert "bookkeeper_logs_up 1.0" in metrics
    assert "bookkeeper_logs_unreadable 1.0" in metrics


async def write_nonsense(uri: str, port: int) -> None:
    store, root = await connect(uri)
    async with store:
        names = LogPaths(root).names
        await store.create(f"{names}/bad*name", b"5")
        await store.create(Paths(root).mark(3), b"{{{", make_parents=True)
        ledger = Paths(root).ledger(9, LedgerLayout.HIERARCHICAL)
        await store.create(ledger, b"nonsense", make_parents=True)
        info = BookieServiceInfo((Endpoint(HTTP_ENDPOINT, "127.0.0.1", port, HTTP),))
        await store.create(f"{root}/available/evil:1", encode_service_info(info))
