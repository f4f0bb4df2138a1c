"""Logs written and read outside Spark, on a real cluster: the client, then the command line."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bookkeeper_metadata.foundation.errors import ClientClosedError
from spark_bookkeeper import BookKeeper, LocalCluster, LogWriterSettings, Position
from spark_bookkeeper.errors import DataLossError, LogFencedError, LogHasWriterError
from tests.integration.processes import first_line, python
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
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
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
    with python(KILLED_WRITER, cluster.metadata_service_uri, "killed") as process:
        told = [first_line(process) for _ in range(120)]
        process.kill()
        told += process.communicate()[0].splitlines(keepends=True)

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
