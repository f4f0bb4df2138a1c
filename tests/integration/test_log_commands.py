"""``bookkeeper logs`` as an operator types it, on a real cluster."""

from __future__ import annotations

import json
import re
import struct

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.admin.log_documents import session_with
from spark_bookkeeper.errors import LogFencedError
from spark_bookkeeper.log.cleaning.deletion import LogDeletion
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.errors import iso8601
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.integration.command_line import CommandLine
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.zookeeper, pytest.mark.slow]


def test_lines_become_rows_of_a_log_that_is_made_for_them(bookkeeper: CommandLine) -> None:
    out = bookkeeper("logs", "append", "lines", stdin=b"one\ntwo\n\nfour")
    assert out == "appended 4 rows to lines; next row 4\n"
    binary = struct.pack(">I", 2) + b"\n\0"
    more = bookkeeper.json("logs", "append", "lines", "--length-prefixed", stdin=binary)
    assert more == {"log": "lines", "rows": 1, "next_row": 5}

    tailed = bookkeeper("logs", "tail", "lines", "--from", "earliest", "--timeout", seconds(0.3))
    assert tailed == "one\ntwo\n\nfour\n0x0a00\n"
    (document,) = bookkeeper.lines("logs", "tail", "lines", "--from", 1, "--limit", 1, "--json")
    assert (document["row"], document["entry_id"], document["value"]) == (1, 1, "two")
    assert bookkeeper("logs", "tail", "lines", "--timeout", seconds(0.3)) == ""
    # The data source reads the same rows as a column of bytes, which look as they do there.
    rows = bookkeeper.lines("logs", "read", "lines")
    assert [row["value"] for row in rows] == tailed.splitlines()


def test_people_read_names_ids_and_times_and_machines_the_same_numbers_as_ever(
    bookkeeper: CommandLine, bk: BookKeeper
) -> None:
    bookkeeper("logs", "append", "timed", stdin=b"one\n")
    bk.create_log("never-written")

    listed = {each["log"]: each for each in bookkeeper.json("logs", "list")["logs"]}["timed"]
    shown = bookkeeper.json("logs", "show", "timed")
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
    err = bookkeeper.refused("logs", "append", "nowhere", "--no-create", stdin=b"x\n")

    assert err.startswith("BK_NO_SUCH_LOG")


def test_logs_are_truncated_recovered_and_deleted_by_command(
    bookkeeper: CommandLine, bk: BookKeeper
) -> None:
    for text in (b"0\n1\n", b"2\n3\n"):
        bookkeeper("logs", "append", "operated", stdin=text)
    truncated = bookkeeper("logs", "truncate", "operated", "--before", 3, "--yes")
    assert truncated == "first row of operated is 2\n"
    writer = bk.open_log("operated").writer()
    writer.append(b"4")
    shown = bookkeeper.json("logs", "show", "operated")
    assert shown["open_ledger"]["ledger_id"] == writer.ledger_id
    for_people = bookkeeper("logs", "show", "operated")
    assert f"ledger {writer.ledger_id} is open from row 4 on" in for_people

    assert bookkeeper("logs", "recover", "operated") == "operated has no writer; 3 rows\n"
    with pytest.raises(LogFencedError):
        writer.append(b"lost")
    assert bookkeeper.json("logs", "show", "operated")["open_ledger"] is None

    err = bookkeeper.refused("logs", "read", "operated", "--first-row", 0)
    assert err.startswith("BK_DATA_LOSS: wanted rows are not in the log")
    assert len(err.splitlines()) == 1
    err = bookkeeper.refused("logs", "read", "operated", "--password", "wrong")
    assert err.startswith("BK_UNAUTHORIZED: wrong ledger password; pass the one")
    assert "option" not in err

    err = bookkeeper.refused("logs", "truncate", "operated", "--before", 10**6, "--yes", code=2)
    assert "has no row 1000000" in err
    err = bookkeeper.refused("logs", "truncate", "operated", "--before", 10**6, "--dry-run", code=2)
    assert "has no row 1000000" in err
    assert bookkeeper("logs", "delete", "operated", "--yes") == "deleted log operated\n"
    bookkeeper.refused("logs", "tail", "operated")


def test_rows_every_live_consumer_has_read_are_dropped_by_command(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    for text in (b"0\n1\n", b"2\n3\n", b"4\n"):
        bookkeeper("logs", "append", "consumed", stdin=text)
    session = session_with(cluster.metadata_service_uri)
    consumers = session.consumers(bk.open_log("consumed").log_id, "consumed")
    err = bookkeeper.refused("logs", "truncate", "consumed", "--consumed", "--yes")
    assert err.startswith("BK_NO_CONSUMER: ")

    session.run(consumers.advance("fast", 5, 3_600_000))
    session.run(consumers.advance("slow", 3, 3_600_000))

    shown = bookkeeper.json("logs", "show", "consumed")["consumers"]
    assert [(each["consumer"], each["row"], each["lag"], each["is_live"]) for each in shown] == [
        ("fast", 5, 0, True),
        ("slow", 3, 2, True),
    ]
    assert "slow" in bookkeeper("logs", "show", "consumed")
    planned = bookkeeper.json("logs", "truncate", "consumed", "--consumed", "--dry-run")
    dropped = bookkeeper.json("logs", "truncate", "consumed", "--consumed", "--yes")
    assert dropped == planned
    assert dropped == {
        "log": "consumed",
        "before": 2,
        "rows": 2,
        "size_bytes": 2,
        "first_row": 2,
    }
    # Also where everything is read: the newest range stays.
    session.run(consumers.advance("slow", 5, 3_600_000))
    planned = bookkeeper.json("logs", "truncate", "consumed", "--consumed", "--dry-run")
    assert (planned["rows"], planned["first_row"]) == (2, 4)
    assert bookkeeper.json("logs", "truncate", "consumed", "--consumed", "--yes") == planned
    for wrong in ((), ("--consumed", "--before", 1)):
        bookkeeper.refused("logs", "truncate", "consumed", *wrong, "--yes", code=2)


def test_retention_is_set_by_command_and_what_it_lets_go_is_dropped(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    for text in (b"0\n1\n", b"2\n3\n", b"4\n"):
        bookkeeper("logs", "append", "retained", stdin=text)
    set_to = ("logs", "set", "retained")
    kept = {"log": "retained", "time_ms": 604_800_000, "size_bytes": 2, "is_consumed_kept": False}
    assert bookkeeper.json(*set_to, "--retention-time", "7d", "--retention-size", 2) == kept
    with_consumers = {**kept, "time_ms": None, "is_consumed_kept": True}
    assert (
        bookkeeper.json(*set_to, "--retention-time", "none", "--retain-consumed") == with_consumers
    )
    for wrong in (
        (),
        ("--retention-time", "soon"),
        ("--retention-time", "0s"),
        ("--retention-size", 0),
    ):
        bookkeeper.refused(*set_to, *wrong, code=2)
    err = bookkeeper.refused(*set_to, "--retention-size", "9999999999g", code=2)
    assert "--retention-size" in err
    assert "9999999999g" in err
    shown = bookkeeper.json("logs", "show", "retained")
    assert {"log": "retained", **shown["retention"]} == with_consumers
    assert bk.open_log("retained").retention.size_bytes == 2

    session = session_with(cluster.metadata_service_uri)
    consumers = session.consumers(bk.open_log("retained").log_id, "retained")
    session.run(consumers.advance("slow", 1, 3_600_000))
    assert bookkeeper.json("logs", "gc", "retained")["rows_dropped"] == 0
    session.run(consumers.advance("slow", 5, 3_600_000))
    assert bookkeeper.json("logs", "gc", "retained", "--dry-run")["rows_dropped"] == 2
    assert bookkeeper.json("logs", "show", "retained")["base_row"] == 0
    assert "rows dropped" in bookkeeper("logs", "gc", "retained")
    assert bookkeeper.json("logs", "show", "retained")["base_row"] == 2


def test_rows_are_dropped_by_age_and_size_by_command(
    bookkeeper: CommandLine, bk: BookKeeper
) -> None:
    for text in (b"0\n1\n", b"2\n3\n", b"4\n"):
        bookkeeper("logs", "append", "aged", stdin=text)
    truncate = ("logs", "truncate", "aged", "--yes")
    for wrong in (("--older-than", "1d", "--before", 1), ("--keep-bytes", "some")):
        bookkeeper.refused(*truncate, *wrong, code=2)
    assert bookkeeper.json(*truncate, "--older-than", "1d")["first_row"] == 0
    err = bookkeeper.refused(*truncate, "--older-than", "1d", "--consumed")
    assert err.startswith("BK_NO_CONSUMER: ")
    # Whole ranges go: row 3 is in the middle of one.
    within = bookkeeper.json(*truncate, "--before", 3, "--dry-run")
    assert (within["rows"], within["first_row"]) == (2, 2)
    planned = bookkeeper.json(*truncate, "--keep-bytes", 1, "--dry-run")
    all_but_one = {"log": "aged", "before": 4, "rows": 4, "size_bytes": 4, "first_row": 4}
    assert planned == all_but_one
    assert bk.open_log("aged").row_count == 5
    line = bookkeeper(*truncate, "--keep-bytes", 1, "--dry-run")
    assert line == "4 rows, 4 bytes of aged would be dropped; its first row would be 4\n"

    dropped = bookkeeper.json(*truncate, "--keep-bytes", 1, "--older-than", "1d")

    assert dropped == all_but_one
    assert bk.open_log("aged").row_count == 1


def test_what_is_dropped_stays_for_readers_as_long_as_was_said(
    bookkeeper: CommandLine, bk: BookKeeper
) -> None:
    for text in (b"0\n", b"1\n", b"2\n", b"3\n"):
        bookkeeper("logs", "append", "waiting", stdin=text)
    ledgers = set(bk.list_ledgers())
    truncate = ("logs", "truncate", "waiting", "--yes", "--before")
    bookkeeper(*truncate, 1)
    kept = bookkeeper.json("logs", "gc", "waiting")
    assert kept["waiting_bytes"] == 1
    bookkeeper(*truncate, 2, "--deleted-ledger-retention", "30d")
    both = bookkeeper.json("logs", "gc", "waiting")
    assert both["waiting_bytes"] == 2
    assert both["waiting_until_ms"] == kept["waiting_until_ms"], "of the first that is due"
    assert kept["waiting_until_ms"] > kept["rows_dropped"]
    assert "waiting bytes" in bookkeeper("logs", "gc", "waiting")
    assert set(bk.list_ledgers()) == ledgers

    bookkeeper(*truncate, 3, "--deleted-ledger-retention", "0s")
    assert len(bookkeeper.json("logs", "gc", "waiting")["ledgers_deleted"]) == 1
    # What was dropped without a time of its own goes by the collection's.
    done = bookkeeper.json("logs", "gc", "waiting", "--deleted-ledger-retention", "0s")
    assert len(done["ledgers_deleted"]) == 1
    assert done["waiting_bytes"] == 1
    # What retention drops now waits from now on, and is counted at once.
    bookkeeper("logs", "append", "waiting", stdin=b"4\n")
    bookkeeper("logs", "set", "waiting", "--retention-size", 1)
    assert bookkeeper.json("logs", "gc", "waiting")["waiting_bytes"] == 2


def test_consumers_are_listed_and_forgotten_by_command(
    bookkeeper: CommandLine, bk: BookKeeper, cluster: LocalCluster
) -> None:
    bookkeeper("logs", "append", "reported", stdin=b"0\n1\n2\n")
    session = session_with(cluster.metadata_service_uri)
    consumers = session.consumers(bk.open_log("reported").log_id, "reported")
    session.run(consumers.advance("gone", 1, 3_600_000))
    session.run(consumers.advance("kept", 2, 3_600_000))

    listed = bookkeeper.json("logs", "consumers", "list", "reported")["consumers"]
    assert [(each["consumer"], each["row"], each["lag"]) for each in listed] == [
        ("gone", 1, 2),
        ("kept", 2, 1),
    ]
    forget = ("logs", "consumers", "forget", "reported")
    bookkeeper.refused(*forget, "gone", stdin=b"n\n")
    assert bookkeeper(*forget, "gone", "--yes") == "forgot gone at row 1 of reported\n"
    assert bookkeeper(*forget, "gone", "--yes") == "reported has no consumer gone\n"
    forgotten = bookkeeper.json(*forget, "kept", "--yes")
    assert forgotten == {"log": "reported", "consumer": "kept", "forgotten_row": 2}
    left = bookkeeper.json("logs", "consumers", "list", "reported")
    assert left == {"log": "reported", "consumers": []}


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
        bookkeeper.refused("logs", "delete", "doomed", "--yes")
        code, out, _ = bookkeeper.outcome("logs", "gc", "--json")
        assert code == 1
        (failed,) = json.loads(out)["failed"]
        assert failed["what"] == f"deleted log {log_id}"
        assert "interrupted on purpose" in failed["cause"]
        assert "interrupted on purpose" in bookkeeper.refused("logs", "gc")
    bookkeeper.refused("logs", "show", "doomed")
    assert set(bk.list_ledgers()) > kept

    dry = bookkeeper.json("logs", "gc", "--dry-run")
    assert dry["deletions"] == [{"log_id": log_id}]
    assert set(bk.list_ledgers()) > kept
    assert f"deleted log {log_id}" in bookkeeper("logs", "gc")

    assert set(bk.list_ledgers()) == kept
    after = bookkeeper.json("logs", "gc")
    assert (after["deletions"], after["failed"]) == ([], [])
    assert {each["log"] for each in after["logs"]} == set(bk.list_logs())


def test_ranges_are_rewritten_by_command(bookkeeper: CommandLine, bk: BookKeeper) -> None:
    for number in range(6):
        bookkeeper("logs", "append", "many", stdin=f"{number}\n".encode())
    before = bookkeeper("logs", "read", "many")
    assert bookkeeper.json("logs", "optimize", "many", "--dry-run") == {
        "log": "many", "groups": 1, "ranges_before": 6,
    }  # fmt: skip
    assert len(bk.open_log("many").ledgers()) == 6
    bookkeeper.refused("logs", "optimize", "many", "--target-size", "much", code=2)
    err = bookkeeper.refused("logs", "optimize", "many", "--password", "wrong")
    assert "not rewritten: rows from 0 on: BK_UNAUTHORIZED" in err
    bookkeeper.refused("logs", "optimize", "no such log")

    report = bookkeeper.json("logs", "optimize", "many", "--bytes-per-second", "64m")

    assert (report["ranges_before"], report["ranges_after"], report["rows"]) == (6, 1, 6)
    assert bookkeeper("logs", "read", "many") == before
    assert "rewrote 0 ranges of many" in bookkeeper("logs", "optimize", "many")
    bookkeeper("logs", "append", "many", stdin=b"6\n")
    assert bk.open_log("many").row_count == 7
