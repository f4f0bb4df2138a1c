"""What tests of the runbooks know of the cluster that an operator works on, and look at when the work is done."""

from __future__ import annotations

import shutil

from bookie_server.storage.journal.journal_file import BLOCK_SIZE
from spark_bookkeeper import BookKeeper
from spark_bookkeeper.local.bookie import LocalBookie
from tests.integration.processes import command, end_session

_HEADER_SIZE = 64
PAYLOADS = [b"%d" % number for number in range(100)]


def write_ledger(bk: BookKeeper) -> int:
    """A closed ledger of all payloads, each of which is on three bookies: none is missing before anything happens."""
    with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) as writer:
        writer.append_many(PAYLOADS)
    return writer.ledger_id


def facts_of(bookie: LocalBookie) -> dict[str, object]:
    """The variables of the runbooks that are about a bookie."""
    return {
        "BOOKIE": bookie.bookie_id,
        "HTTP": bookie.http_address,
        "PID": bookie.pid,
        "CONFIG": bookie.directory / "bookie.toml",
        "BOOKIE_LOG": bookie.log_path,
    }


def lose(bookie: LocalBookie) -> None:
    """Kill a bookie and take its disks away; its session ends at once."""
    bookie.kill()
    end_session(bookie.metadata_service_uri, bookie.bookie_id)
    for place in ("journal", "ledgers"):
        shutil.rmtree(bookie.directory / place)


def damage_journal(bookie: LocalBookie) -> None:
    """Flip the header of the last group in its journal: whether there was more, nobody can tell any more."""
    journal = max((bookie.directory / "journal").glob("*.txn"))
    with journal.open("r+b") as file:
        last = (len(file.read().rstrip(b"\0")) - 1) // BLOCK_SIZE * BLOCK_SIZE
        file.seek(last)
        header = file.read(_HEADER_SIZE)
        file.seek(last)
        file.write(bytes(byte ^ 0xFF for byte in header))


def states(uri: str) -> dict[str, str]:
    """The state of every bookie of the cluster, those that are away included."""
    return {each["bookie_id"]: each["state"] for each in command(uri, "bookies", "list")["bookies"]}


def assert_all_can_be_read(bk: BookKeeper, ledger_ids: list[int]) -> None:
    """Every entry of these ledgers is what was written."""
    for ledger_id in ledger_ids:
        with bk.open_ledger(ledger_id) as reader:
            last_entry = len(PAYLOADS) - 1
            assert [bytes(entry.payload) for entry in reader.read(0, last_entry)] == PAYLOADS


def assert_whole_without(bk: BookKeeper, uri: str, ledger_ids: list[int], gone: str) -> None:
    """Every replica has every entry, none is on the bookie that is gone, and the cluster does not know it any more."""
    assert command(uri, "ledgers", "verify", "--all")["passed"]
    assert not [each for each in ledger_ids if gone in bk.ledger_metadata(each).bookie_ids]
    assert gone not in states(uri)
    assert_all_can_be_read(bk, ledger_ids)
