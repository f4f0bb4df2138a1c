"""Copies that are missing, as an operator meets them: who is away, what was held, what verify finds."""

from __future__ import annotations

import json

import pytest

from spark_bookkeeper import LocalCluster
from tests.integration.command_line import CommandLine
from tests.integration.processes import start_again

pytestmark = [pytest.mark.integration, pytest.mark.zookeeper, pytest.mark.slow]


def test_a_bookie_that_is_away_is_seen_and_what_it_misses_is_found(
    bookkeeper: CommandLine, cluster: LocalCluster
) -> None:
    """`verify` passed where a held bookie's copies were missing, and nothing else said so."""
    gone, *others = cluster.bookies
    whole = int(bookkeeper("ledgers", "append", "--ack-quorum", 3, stdin=b"a\n"))
    gone.stop()
    try:
        listed = bookkeeper.json("bookies", "list")["bookies"]
        held = int(bookkeeper("ledgers", "append", stdin=b"a\nb\n"))
        bookkeeper("logs", "append", "short", stdin=b"row\n")
        bookkeeper("logs", "recover", "short")
        shown = [bookkeeper.json("ledgers", "show", each) for each in (whole, held)]
        text = bookkeeper("ledgers", "show", held)
        log = bookkeeper.json("logs", "show", "short")["under_replicated"]
        log_text = bookkeeper("logs", "show", "short")
    finally:
        gone.start()

    states = {each["bookie_id"]: each["state"] for each in listed}
    assert states == {gone.bookie_id: "away", **{b.bookie_id: "writable" for b in others}}
    assert "away" not in bookkeeper("bookies", "list")
    assert [each["away"] for each in shown] == [[gone.bookie_id]] * 2
    assert [each["held"] for each in shown] == [[], [gone.bookie_id]]
    assert shown[1]["fragments"][0]["away"] == [gone.bookie_id]
    assert gone.bookie_id in text
    assert log
    assert all(each["held"] == [gone.bookie_id] for each in log)
    assert "may lack copies" in log_text

    # It is back: nobody is away, and it lacks what it missed.
    code, out, _ = bookkeeper.outcome("ledgers", "verify", held, "--json")
    found = json.loads(out)
    assert (code, found["outcome"], found["copies_missing"]) == (3, "under-replicated", 2)
    assert {each["bookie_id"] for each in found["defects"]} == {gone.bookie_id}
    after = {each["ledger_id"]: each for each in bookkeeper.json("ledgers", "list")["ledgers"]}
    assert (after[held]["away"], after[held]["held"]) == ([], [gone.bookie_id])

    code, out, _ = bookkeeper.outcome("ledgers", "verify", whole, held)
    assert code == 3
    assert f"ledger {whole} passed: 1 entries, 3 replicas asked for\n" in out
    assert f"ledger {held} under-replicated: 2 entries, 6 replicas asked for, 2 missing" in out
    assert bookkeeper.outcome("ledgers", "verify", "--log", "short")[0] == 3
    code, out, _ = bookkeeper.outcome("ledgers", "verify", "--all", "--json")
    verified = {each["ledger_id"] for each in json.loads(out)["ledgers"]}
    assert verified == {each["ledger_id"] for each in bookkeeper.json("ledgers", "list")["ledgers"]}

    for wrong in ((), ("--all", whole), ("--all", "--log", "short")):
        assert "--all alone" in bookkeeper.refused("ledgers", "verify", *wrong, code=2)
    code, out, _ = bookkeeper.outcome("ledgers", "verify", 999, whole)
    assert (code, "ledger 999 FAILED" in out) == (1, True)
    assert bookkeeper.refused("ledgers", "verify", 999).startswith("BK_NO_SUCH_LEDGER")


def test_verify_compares_replicas_and_notices_one_it_could_not_ask(
    bookkeeper: CommandLine, cluster: LocalCluster
) -> None:
    ledger_id = int(bookkeeper("ledgers", "append", "--ack-quorum", 3, stdin=b"a\nb\nc\n"))
    passed = bookkeeper.json("ledgers", "verify", ledger_id)

    cluster.bookies[0].kill()
    try:
        code, out, _ = bookkeeper.outcome("ledgers", "verify", ledger_id, "--json")
        text = bookkeeper.outcome("ledgers", "verify", ledger_id)[1]
    finally:
        start_again(cluster.bookies[0])

    assert (passed["passed"], passed["entries"], passed["replicas_checked"]) == (True, 3, 9)
    assert code == 1
    failed = json.loads(out)
    assert [each["bookie_id"] for each in failed["defects"]] == [cluster.bookies[0].bookie_id]
    assert (failed["defects"][0]["first_entry"], failed["defects"][0]["last_entry"]) == (0, 2)
    assert "FAILED" in text
