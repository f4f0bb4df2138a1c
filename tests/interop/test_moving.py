"""A cluster that moves from one kind of bookie to the other, node by node, with our own commands; nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from benchmarks.peers.apache import ApacheBookies
from benchmarks.peers.artifacts import Artifacts
from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.command_line import CommandLine
from tests.interop.conftest import MakeJavaClient
from tests.interop.java_client import payload, sha1_of

pytestmark = [pytest.mark.integration, pytest.mark.full]

SIZES = (0, 1, 100, 70_000, 5) + (64,) * 95
LAST = len(SIZES) - 1
PAYLOADS = [payload(entry_id, size) for entry_id, size in enumerate(SIZES)]


def written(bk: BookKeeper, quorums: Sequence[tuple[int, int, int]]) -> list[int]:
    """Closed ledgers, one for each of these."""
    ids = []
    for ensemble_size, write_quorum, ack_quorum in quorums:
        with bk.create_ledger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=b"secret",
        ) as writer:
            writer.append_many(PAYLOADS)
        ids.append(writer.ledger_id)
    return ids


def members(bk: BookKeeper, ledger_ids: Sequence[int]) -> set[str]:
    found = set()
    for ledger_id in ledger_ids:
        for fragment in bk.ledger_metadata(ledger_id).fragments:
            found |= set(fragment.ensemble)
    return found


@pytest.mark.parametrize("towards", ["apache", "ours"])
def test_ledgers_move_to_the_other_kind_of_bookie(
    towards: str,
    artifacts: Artifacts,
    java: MakeJavaClient,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        LocalCluster(3) as ours,
        ApacheBookies(artifacts, ours.metadata_service_uri) as apache,
        BookKeeper(ours.metadata_service_uri) as bk,
    ):
        command = CommandLine(ours.metadata_service_uri, capfd, monkeypatch)
        own = [bookie.bookie_id for bookie in ours.bookies]
        theirs = [bookie.bookie_id for bookie in apache.bookies]
        leaving, staying = (own, theirs) if towards == "apache" else (theirs, own)
        # Each kind has some, and some are of both.
        ids = written(bk, [(3, 3, 2), (3, 2, 2), (2, 2, 2)] * 5)
        assert members(bk, ids) == {*own, *theirs}
        # One of Apache's that was left goes on to be writable, and would be a place to move to.
        targets = [word for bookie_id in staying for word in ("--to", bookie_id)]
        for bookie_id in leaving:
            command("bookies", "decommission", bookie_id, *targets)
        assert members(bk, ids) <= set(staying)

        client = java(ours.metadata_service_uri, "v2")
        for ledger_id in ids:
            reader = bk.open_ledger(ledger_id, password=b"secret")
            assert [bytes(entry.payload) for entry in reader.read(0, LAST)] == PAYLOADS
            assert client.read(ledger_id, "CRC32C", LAST) == sha1_of(SIZES)
            found = command("ledgers", "verify", ledger_id, "--password", "secret", "--json")
            assert json.loads(found)
