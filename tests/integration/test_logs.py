"""Logs written and read outside Spark, on a real cluster: the client, then the command line."""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import ClientClosedError
from spark_bookkeeper import BookKeeper, LocalCluster, LogWriterSettings, Position
from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.cli import run
from spark_bookkeeper.errors import DataLossError, LogFencedError, LogHasWriterError
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.log.cleaning.deletion import LogDeletion
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.errors import iso8601
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.zookeeper, pytest.mark.slow]

KILLED_WRITER = """
import sys
from spark_bookkeeper import BookKeeper, LogWriterSettings
client = BookKeeper(sys.argv[1])
writer = client.open_log(sys.argv[2]).writer(settings=LogWriterSettings(roll_entries=50))
number = 0
while True:
    position = writer.append(b"k-%d" % number)
    print(position.row, number, flush=True)
    number += 1
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3) as running:
        yield running


@pytest.fixture
def bk(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_service_uri) as client:
        yield client


def payloads(client: BookKeeper, log: str, start: str | int = "earliest") -> list[bytes]:
    return [bytes(entry.payload) for _, entry in client.open_log(log).reader(start)]


def test_rows_appended_across_rolls_are_read_in_order(bk: BookKeeper) -> None:
    log = bk.create_log("rolls")
    expected = [b"%d" % number for number in range(500)]

    with log.writer(settings=LogWriterSettings(roll_entries=64)) as writer:
        first = writer.append(expected[0])
        futures = [writer.append_async(each) for each in expected[1:400]]
        rest = writer.append_many(expected[400:])
        assert writer.append_many([]) == []

    assert first.row == 0
    assert [future.result().row for future in futures] == list(range(1, 400))
    assert [position.row for position in rest] == list(range(400, 500))
    assert [item.rows for item in log.ledgers()] == [64] * 7 + [52]
    assert log.row_count == 500
    assert payloads(bk, "rolls") == expected
    assert payloads(bk, "rolls", 450) == expected[450:]
    with pytest.raises(ClientClosedError):
        writer.append(b"late")


def test_several_threads_share_a_writer_that_holds_little(bk: BookKeeper) -> None:
    log = bk.create_log("threads")
    positions: dict[bytes, int] = {}

    def work(name: int) -> None:
        mine = [b"%d-%d" % (name, number) for number in range(150)]
        futures = [writer.append_async(each) for each in mine]
        positions.update(
            (each, f.result(seconds(30)).row) for each, f in zip(mine, futures, strict=True)
        )

    with log.writer(settings=LogWriterSettings(roll_entries=90, max_in_flight_bytes=50)) as writer:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds(60))
        writer.flush()

    rows = payloads(bk, "threads")
    assert len(rows) == 600
    assert all(rows[row] == payload for payload, row in positions.items())
    for name in range(4):
        own = [row for row in rows if row.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, number) for number in range(150)]


def test_what_becomes_of_an_append_is_told_once_however_it_is_asked(bk: BookKeeper) -> None:
    log = bk.create_log("asked")
    called: list[object] = []
    writer = log.writer()

    future = writer.append_async(bytearray(b"x"))
    future.add_done_callback(called.append)
    writer.flush()
    assert future.done()
    assert future.exception() is None
    assert future.result() == Position(0, writer.ledger_id, 0)
    log.recover()
    lost = writer.append_async(b"lost")
    assert isinstance(lost.exception(30), LogFencedError)
    with pytest.raises(LogFencedError):
        writer.flush()
    with pytest.raises(LogFencedError):
        lost.result()

    assert called == [future]


def test_a_reader_ends_when_it_is_closed(bk: BookKeeper) -> None:
    log = bk.create_log("closed")
    with log.writer() as writer:
        writer.append_many([b"1", b"2"])

    with log.tail("earliest") as reader:
        assert next(reader)[1].entry_id == 0
        assert reader.next_row == 1
    assert list(reader) == []


def test_a_follower_in_another_client_sees_what_is_appended(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    log = bk.create_log("followed")
    found: list[tuple[Position, bytes]] = []

    def follow() -> None:
        with BookKeeper(cluster.metadata_service_uri) as other:
            for position, entry in other.open_log("followed").tail("earliest"):
                found.append((position, bytes(entry.payload)))
                if bytes(entry.payload) == b"end":
                    return

    thread = threading.Thread(target=follow)
    thread.start()
    appended: list[Position] = []
    for number in range(3):
        with log.writer(settings=LogWriterSettings(roll_entries=10)) as writer:
            appended += writer.append_many([b"%d-%d" % (number, each) for each in range(25)])
    with log.writer() as writer:
        appended.append(writer.append(b"end"))
        thread.join(seconds(60))

    assert not thread.is_alive()
    assert [position for position, _ in found] == appended
    assert [value for _, value in found[:2]] == [b"0-0", b"0-1"]


def test_the_second_writer_wins_and_spark_has_to_wait(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    from spark_bookkeeper.datasource.options.model import TargetOptions
    from spark_bookkeeper.datasource.session import open_session

    log = bk.create_log("contended")
    first = log.writer()
    first.append(b"first")
    with BookKeeper(cluster.metadata_service_uri) as other:
        second = other.open_log("contended").writer()
        second.append(b"second")

        with pytest.raises(LogFencedError):
            first.append(b"lost")
        with pytest.raises(LogFencedError):
            first.close()
        session = open_session(TargetOptions(metadata_service_uri=cluster.metadata_service_uri))
        with pytest.raises(LogHasWriterError):
            session.run(session.jobs.plan(log.log_id, "contended"))

    # Its client is closed, and with it the writer: as after a crash, the log waits for somebody.
    with pytest.raises(ClientClosedError):
        second.append(b"lost")
    log.recover()
    assert payloads(bk, "contended") == [b"first", b"second"]
    session.run(session.jobs.plan(log.log_id, "contended"))


def test_what_a_killed_writer_was_told_is_in_the_log(cluster: LocalCluster, bk: BookKeeper) -> None:
    log = bk.create_log("killed")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_WRITER, cluster.metadata_service_uri, "killed"],
        stdout=subprocess.PIPE,
        env=child_environment(),
        text=True,
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(120)]
    process.kill()
    told += process.stdout.readlines()
    process.stdout.close()
    process.wait()

    with log.writer() as writer:
        last = writer.append(b"successor")

    rows = payloads(bk, "killed")
    acknowledged = [line.split() for line in told if line.endswith("\n")]
    assert len(acknowledged) >= 120
    for row, number in acknowledged:
        assert rows[int(row)] == b"k-%s" % number.encode()
    # At most the one append that was in flight may be there besides.
    assert last.row - len(acknowledged) in (0, 1)
    assert rows[-1] == b"successor"


def test_truncated_rows_are_gone_and_said_to_be(bk: BookKeeper) -> None:
    log = bk.create_log("truncated")
    with log.writer(settings=LogWriterSettings(roll_entries=10)) as writer:
        writer.append_many([b"%d" % number for number in range(35)])
        assert log.truncate(25) == 20
        writer.append(b"35")

    assert payloads(bk, "truncated") == [b"%d" % number for number in range(20, 36)]
    with pytest.raises(DataLossError, match="wanted_row=5 first_row=20"):
        payloads(bk, "truncated", 5)


class CommandLine:
    """Runs commands in this process against one cluster."""

    def __init__(
        self, uri: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._uri = uri
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: object, stdin: bytes = b"") -> str:
        code, out, err = self.outcome(*arguments, stdin=stdin)
        assert code == 0, err
        return out

    def outcome(self, *arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        self._capfd.readouterr()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([*map(str, arguments), "--metadata-service-uri", self._uri])
        out, err = self._capfd.readouterr()
        return code, out, err


@pytest.fixture
def bookkeeper(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    return CommandLine(cluster.metadata_service_uri, capfd, monkeypatch)


def test_lines_become_rows_of_a_log_that_is_made_for_them(bookkeeper: CommandLine) -> None:
    out = bookkeeper("logs", "append", "lines", stdin=b"one\ntwo\n\nfour")
    assert out == "appended 4 rows to lines; next row 4\n"
    more = bookkeeper(
        "logs",
        "append",
        "lines",
        "--length-prefixed",
        "--json",
        stdin=struct.pack(">I", 2) + b"\n\0",
    )
    assert json.loads(more) == {"log": "lines", "rows": 1, "next_row": 5}

    tailed = bookkeeper("logs", "tail", "lines", "--from", "earliest", "--timeout", seconds(0.3))
    assert tailed == "one\ntwo\n\nfour\n0x0a00\n"
    (line,) = bookkeeper("logs", "tail", "lines", "--from", 1, "--limit", 1, "--json").splitlines()
    document = json.loads(line)
    assert (document["row"], document["entry_id"], document["value"]) == (1, 1, "two")
    assert bookkeeper("logs", "tail", "lines", "--timeout", seconds(0.3)) == ""
    # The data source reads the same rows as a column of bytes.
    rows = [json.loads(row) for row in bookkeeper("logs", "read", "lines").splitlines()]
    assert [bytes.fromhex(row["value"]) for row in rows] == [b"one", b"two", b"", b"four", b"\n\0"]


def test_people_read_names_ids_and_times_and_machines_the_same_numbers_as_ever(
    bookkeeper: CommandLine, bk: BookKeeper
) -> None:
    bookkeeper("logs", "append", "timed", stdin=b"one\n")
    bk.create_log("never-written")

    (listed,) = (
        each
        for each in json.loads(bookkeeper("logs", "list", "--json"))["logs"]
        if each["log"] == "timed"
    )
    shown = json.loads(bookkeeper("logs", "show", "timed", "--json"))
    time = iso8601(listed["last_commit_ms"])
    lines = [line.split() for line in bookkeeper("logs", "list").splitlines()]
    rows = {line[0]: line for line in lines if line}
    text = bookkeeper("logs", "show", "timed")
    ledger = bookkeeper("ledgers", "show", shown["ranges"][0]["ledger_id"])

    assert rows["timed"][1] == str(bk.open_log("timed").log_id)
    assert rows["timed"][-1] == time
    assert rows["never-written"][1] == str(bk.open_log("never-written").log_id)
    assert not rows["never-written"][-1].endswith("Z")
    assert shown["last_commit_ms"] == shown["ranges"][0]["commit_ms"] == listed["last_commit_ms"]
    assert text.count(time) == 2
    assert str(listed["last_commit_ms"]) not in text
    assert re.search(r"^created +20\d\d-\d\d-\d\dT[0-9:.]+Z$", ledger, re.MULTILINE)


def test_no_log_is_made_where_none_is_wanted(bookkeeper: CommandLine) -> None:
    code, _, err = bookkeeper.outcome("logs", "append", "nowhere", "--no-create", stdin=b"x\n")

    assert code == 1
    assert err.startswith("BK_NO_SUCH_LOG")


def test_logs_are_truncated_recovered_and_deleted_by_command(
    bookkeeper: CommandLine, bk: BookKeeper
) -> None:
    for text in (b"0\n1\n", b"2\n3\n"):
        bookkeeper("logs", "append", "operated", stdin=text)
    assert bookkeeper("logs", "truncate", "operated", "--before", 3, "--yes") == (
        "first row of operated is 2\n"
    )
    writer = bk.open_log("operated").writer()
    writer.append(b"4")
    shown = json.loads(bookkeeper("logs", "show", "operated", "--json"))
    assert shown["open_ledger"]["ledger_id"] == writer.ledger_id
    assert f"ledger {writer.ledger_id} is open from row 4 on" in bookkeeper(
        "logs", "show", "operated"
    )

    assert bookkeeper("logs", "recover", "operated") == "operated has no writer; 3 rows\n"
    with pytest.raises(LogFencedError):
        writer.append(b"lost")
    assert json.loads(bookkeeper("logs", "show", "operated", "--json"))["open_ledger"] is None

    code, _, err = bookkeeper.outcome("logs", "read", "operated", "--first-row", 0)
    assert code == 1
    assert err.startswith("BK_DATA_LOSS: wanted rows are not in the log")
    assert len(err.splitlines()) == 1
    code, _, err = bookkeeper.outcome("logs", "read", "operated", "--password", "wrong")
    assert err.startswith("BK_UNAUTHORIZED: wrong ledger password; pass the one")
    assert "option" not in err

    code, _, err = bookkeeper.outcome("logs", "truncate", "operated", "--before", 10**6, "--yes")
    assert code == 2
    assert "has no row 1000000" in err
    assert bookkeeper("logs", "delete", "operated", "--yes") == "deleted log operated\n"
    assert bookkeeper.outcome("logs", "tail", "operated")[0] == 1


def test_rows_every_live_consumer_has_read_are_dropped_by_command(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    for text in (b"0\n1\n", b"2\n3\n", b"4\n"):
        bookkeeper("logs", "append", "consumed", stdin=text)
    session = session_with(cluster.metadata_service_uri)
    consumers = session.consumers(bk.open_log("consumed").log_id, "consumed")
    code, _, err = bookkeeper.outcome("logs", "truncate", "consumed", "--consumed", "--yes")
    assert (code, err.split()[0]) == (1, "BK_NO_CONSUMER:")

    session.run(consumers.advance("fast", 5, 3_600_000))
    session.run(consumers.advance("slow", 3, 3_600_000))

    shown = json.loads(bookkeeper("logs", "show", "consumed", "--json"))["consumers"]
    assert [(each["consumer"], each["row"], each["lag"], each["is_live"]) for each in shown] == [
        ("fast", 5, 0, True),
        ("slow", 3, 2, True),
    ]
    assert "slow" in bookkeeper("logs", "show", "consumed")
    assert json.loads(
        bookkeeper("logs", "truncate", "consumed", "--consumed", "--yes", "--json")
    ) == {"log": "consumed", "before": 3, "first_row": 2}
    assert bookkeeper.outcome("logs", "truncate", "consumed", "--yes")[0] == 2
    assert (
        bookkeeper.outcome("logs", "truncate", "consumed", "--consumed", "--before", 1, "--yes")[0]
        == 2
    )


def test_consumers_are_listed_and_forgotten_by_command(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    bookkeeper("logs", "append", "reported", stdin=b"0\n1\n2\n")
    session = session_with(cluster.metadata_service_uri)
    consumers = session.consumers(bk.open_log("reported").log_id, "reported")
    session.run(consumers.advance("gone", 1, 3_600_000))
    session.run(consumers.advance("kept", 2, 3_600_000))

    listed = json.loads(bookkeeper("logs", "consumers", "list", "reported", "--json"))["consumers"]
    assert [(each["consumer"], each["row"], each["lag"]) for each in listed] == [
        ("gone", 1, 2),
        ("kept", 2, 1),
    ]
    assert bookkeeper.outcome("logs", "consumers", "forget", "reported", "gone", stdin=b"n\n")[0]
    assert bookkeeper("logs", "consumers", "forget", "reported", "gone", "--yes") == (
        "forgot gone at row 1 of reported\n"
    )
    assert bookkeeper("logs", "consumers", "forget", "reported", "gone", "--yes") == (
        "reported has no consumer gone\n"
    )
    assert json.loads(
        bookkeeper("logs", "consumers", "forget", "reported", "kept", "--yes", "--json")
    ) == {"log": "reported", "consumer": "kept", "forgotten_row": 2}
    assert json.loads(bookkeeper("logs", "consumers", "list", "reported", "--json")) == {
        "log": "reported",
        "consumers": [],
    }


def test_a_deletion_that_was_interrupted_is_finished_by_a_collection_of_all_logs(
    bookkeeper: CommandLine, bk: BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = set(bk.list_ledgers())
    bookkeeper("logs", "append", "doomed", stdin=b"0\n1\n2\n")
    log_id = bk.open_log("doomed").log_id

    async def interrupted(deletion: LogDeletion, nodes: LogNodes) -> SweepReport:
        raise MetadataUnavailableError("zk:2181", "interrupted on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(LogDeletion, "finish", interrupted)
        assert bookkeeper.outcome("logs", "delete", "doomed", "--yes")[0] == 1
        code, out, _ = bookkeeper.outcome("logs", "gc", "--json")
        assert code == 1
        (failed,) = json.loads(out)["failed"]
        assert failed["what"] == f"deleted log {log_id}"
        assert "interrupted on purpose" in failed["cause"]
        assert "interrupted on purpose" in bookkeeper.outcome("logs", "gc")[2]
    assert bookkeeper.outcome("logs", "show", "doomed")[0] == 1
    assert set(bk.list_ledgers()) > kept

    dry = json.loads(bookkeeper("logs", "gc", "--dry-run", "--json"))
    assert dry["deletions"] == [{"log_id": log_id}]
    assert set(bk.list_ledgers()) > kept
    assert f"deleted log {log_id}" in bookkeeper("logs", "gc")

    assert set(bk.list_ledgers()) == kept
    after = json.loads(bookkeeper("logs", "gc", "--json"))
    assert (after["deletions"], after["failed"]) == ([], [])
    assert {each["log"] for each in after["logs"]} == set(bk.list_logs())
