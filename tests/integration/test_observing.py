"""What a bookie shows of itself over HTTP, asked of a real process while it works, is paused, stops and fails."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bookkeeper_metadata.endpoints import HTTP, HTTP_ENDPOINT
from spark_bookkeeper import BookKeeper, LocalCluster, aio
from spark_bookkeeper.cli.output import printable_size
from spark_bookkeeper.errors import LedgerFencedError
from spark_bookkeeper.local.auto_recovery import LocalAutoRecovery
from spark_bookkeeper.local.bookie import LocalBookie
from tests.integration.admin_page import admin_page
from tests.integration.command_line import CommandLine
from tests.patience import Deadline, seconds
from tests.sources import REPOSITORY

pytestmark = [pytest.mark.integration]

PAYLOADS = [bytes(1_000)] * 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    often = {"checkpoint_interval_ms": 300}
    with LocalCluster(1, bookie_settings=often, autorecovery=True) as running:
        yield running


def get(shown: LocalBookie | LocalAutoRecovery, path: str) -> tuple[int, str]:
    """Status and body, whatever the status."""
    try:
        with urllib.request.urlopen(shown.http_address + path, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(shown: LocalBookie | LocalAutoRecovery) -> dict[str, float]:
    """Every sample by its name and labels, parsed by Prometheus' own parser."""
    # Sooner the last one would be shown again.
    time.sleep(0.3)
    status, text = get(shown, "/metrics")
    assert status == 200
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_metrics_count_what_a_bookie_did(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    before = scrape(bookie)
    with BookKeeper(cluster.metadata_service_uri) as bk:
        with bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
            writer.append_many(PAYLOADS)
        with bk.open_ledger(writer.ledger_id) as reader:
            assert len(list(reader.read(0, 49))) == 50
    after = scrape(bookie)

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("bookie_write_entries_total") == 50
    assert 50_000 <= grown("bookie_WRITE_BYTES") < 55_000
    assert 50_000 <= grown("bookie_READ_BYTES") < 60_000
    assert grown("bookie_ledgers_count") == 1
    assert grown("bookkeeper_server_ADD_ENTRY_latency_count{success=true}") >= 1
    assert grown("bookkeeper_server_READ_ENTRY_latency_count{success=true}") >= 1
    assert grown("bookie_journal_JOURNAL_SYNC_latency_count{journal=0}") >= 1
    assert grown("bookie_journal_JOURNAL_SYNC_latency_sum{journal=0}") > 0
    assert grown("bookie_journal_JOURNAL_WRITE_BYTES{journal=0}") > 50_000
    assert after["bookkeeper_server_SERVER_STATUS"] == 1
    assert after["process_resident_memory_bytes"] > 1e7
    ledgers = bookie.directory / "ledgers"
    assert after[f"bookie_disk_free_bytes{{directory={ledgers}}}"] > 0
    identity = [name for name in after if name.startswith("bookie_info")]
    assert f"bookie_id={bookie.bookie_id}" in identity[0]


def test_checkpoints_and_their_files_show(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    ledgers = bookie.directory / "ledgers"
    with (
        BookKeeper(cluster.metadata_service_uri) as bk,
        bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer,
    ):
        # More than next to nothing, which waits for six intervals.
        writer.append_many([bytes(1 << 20)] * 2)
    deadline = Deadline(30)
    stored = f"bookie_entry_log_bytes{{directory={ledgers}}}"
    # The file is there before its checkpoint has ended; and a scrape may be a second old.
    while (found := scrape(bookie))[stored] < 2 << 20 or not found[
        "bookie_checkpoint_latency_count"
    ]:
        assert not deadline.has_passed
        time.sleep(0.1)

    assert found[f"bookie_entry_log_files{{directory={ledgers}}}"] >= 1


def test_a_refusal_is_counted_by_its_reason(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    with (
        BookKeeper(cluster.metadata_service_uri) as bk,
        bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer,
    ):
        writer.append(b"x")
        with bk.open_ledger(writer.ledger_id, recovery=True):
            pass
        with pytest.raises(LedgerFencedError):
            writer.append(b"y")

    assert scrape(bookie)["bookkeeper_server_ADD_ENTRY_REJECTED{status=FENCED}"] >= 1


async def test_the_registration_tells_where_it_shows_them(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    async with aio.BookKeeper(cluster.metadata_service_uri) as client:
        registry = (await client.connect()).cluster.registry
        endpoint = (await registry.writable())[bookie.bookie_id].endpoint(HTTP, HTTP_ENDPOINT)

    assert endpoint is not None
    assert bookie.http_address == f"http://{endpoint.address}"


def test_health_and_readiness_of_a_bookie_at_work(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]

    for path in ("/healthz", "/readyz"):
        status, body = get(bookie, path)
        state: dict[str, Any] = json.loads(body)
        assert status == 200
        assert state == {"bookie_id": bookie.bookie_id, "mode": "writable", "is_registered": True}


@pytest.mark.parametrize(
    "path", ["/", "/metrics/..", "/etc/passwd", "/../../etc/passwd", "//", "/%00"]
)
def test_other_paths_lead_nowhere(cluster: LocalCluster, path: str) -> None:
    status, body = get(cluster.bookies[0], path)

    assert status == 404
    assert json.loads(body)["paths"] == ["/healthz", "/metrics", "/readyz"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\x00" * 1_000,
        b"GET " + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
    ],
    ids=["nothing", "zeros", "a long path", "another method"],
)
def test_nonsense_costs_the_bookie_nothing(cluster: LocalCluster, request_bytes: bytes) -> None:
    bookie = cluster.bookies[0]
    address = urlsplit(bookie.http_address)
    # As many as have a place at once, so that those who come behind have to wait for them.
    for _ in range(40):
        with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
            connection.sendall(request_bytes)

    assert get(bookie, "/healthz")[0] == 200


def test_clients_that_drip_keep_no_bookie_from_its_health_or_its_end(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    address = urlsplit(bookie.http_address)
    clients = []
    for _ in range(40):
        client = socket.create_connection((address.hostname, address.port), timeout=30)
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        clients.append(client)
    begun_s = time.monotonic()
    try:
        assert get(bookie, "/healthz")[0] == 200
        bookie.stop()
        assert time.monotonic() - begun_s < seconds(15)
    finally:
        for client in clients:
            client.close()
        bookie.start()


def test_a_bookie_that_is_stopped_shows_nothing(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    bookie.stop()
    try:
        with pytest.raises(urllib.error.URLError):
            get(bookie, "/healthz")
    finally:
        bookie.start()

    assert get(bookie, "/readyz")[0] == 200


def test_auto_recovery_shows_whether_it_is_elected_and_what_it_did(cluster: LocalCluster) -> None:
    healer = cluster.auto_recovery
    assert healer is not None
    deadline = Deadline(60)
    while not _is_elected(healer):
        assert not deadline.has_passed
        time.sleep(0.2)

    found = scrape(healer)
    assert found["auditor_elected"] == 1
    assert found["replication_worker_NUM_BYTES_WRITTEN"] == 0
    assert found["process_open_fds"] > 3
    assert get(healer, "/readyz")[0] == 404


def test_every_metric_that_the_operators_are_told_to_watch_is_shown(cluster: LocalCluster) -> None:
    text = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    table = text.partition("| metric | when | then |")[2].partition("\n\n")[0]
    named = {name for name in re.findall(r"`(\w+)`", table) if re.search(r"_[a-zA-Z]+_", name)}
    assert cluster.auto_recovery is not None
    with admin_page(cluster.metadata_service_uri) as page:
        of_logs = re.findall(r"# TYPE (\w+)", page.get("/metrics")[1])
    shown = [*scrape(cluster.bookies[0]), *scrape(cluster.auto_recovery), *of_logs]

    assert len(named) > 12
    missing = {name for name in named if not any(each.startswith(name) for each in shown)}
    # Only where something was refused, which another test has done.
    assert missing <= {"bookkeeper_server_ADD_ENTRY_REJECTED"}


def _is_elected(healer: LocalAutoRecovery) -> bool:
    # Its port is open once Python has come so far.
    try:
        status, body = get(healer, "/healthz")
    except urllib.error.URLError:
        return False
    return status == 200 and json.loads(body)["is_auditor"]


def test_a_bookie_that_does_not_answer_is_listed_without_what_only_it_knows(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = cluster.bookies[0]
    bookkeeper = CommandLine(cluster.metadata_service_uri, capfd, monkeypatch)
    bookie.pause()
    try:
        (listed,) = bookkeeper.json("bookies", "list")["bookies"]
    finally:
        bookie.resume()

    assert listed["state"] == "writable"
    assert listed["answers"] is False
    assert listed["disk_free_bytes"] is None


def test_the_doctor_names_a_bookie_that_is_stuck_and_the_exit_code_says_so(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = cluster.bookies[0]
    bookkeeper = CommandLine(cluster.metadata_service_uri, capfd, monkeypatch)
    one = ("--ensemble-size", 1, "--write-quorum", 1, "--ack-quorum", 1)
    assert bookkeeper.json("doctor", *one)["passed"] is True
    bookie.pause()
    try:
        code, text, _ = bookkeeper.outcome("doctor", *one)
    finally:
        bookie.resume()

    assert code == 1
    assert f"PROBLEM  bookie {bookie.bookie_id}: writable, and does not answer" in text
    assert "nothing can be written" in text


def test_the_doctor_says_so_where_there_is_no_cluster(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bookkeeper = CommandLine("zk+hierarchical://127.0.0.1:1/ledgers", capfd, monkeypatch)

    code, text, _ = bookkeeper.outcome("doctor")

    assert code == 1
    assert "PROBLEM  metadata service: BK_METADATA_UNAVAILABLE" in text
    assert "not 4, 3, 3" in bookkeeper.refused("doctor", "--ack-quorum", 4, code=2)


def test_sizes_are_printed_in_the_largest_unit_that_fits() -> None:
    sizes = {
        1_023: "1023 B",
        1_536: "1.5 KiB",
        20 << 20: "20 MiB",
        5 << 40: "5.0 TiB",
        99 << 50: "101376 TiB",
    }

    assert {size: printable_size(size) for size in sizes} == sizes
