"""A bookie that was away too long gives back the space of what others hold now: on real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.stored import log_bytes_of
from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.command_line import CommandLine
from tests.integration.processes import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.full]

MIB = 1024 * 1024
SETTINGS = {
    "gc_interval_ms": 200,
    "surplus_check_interval_ms": 500,
    "checkpoint_interval_ms": 200,
    "minor_compaction_interval_ms": 200,
    "write_cache_size_bytes": MIB,
}
PAYLOAD = bytes(range(256)) * 64
ENTRIES = 128
LEDGERS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(4, autorecovery=True, bookie_settings=SETTINGS) as running:
        yield running


def test_a_bookie_that_comes_back_late_gives_its_space_back_and_nothing_is_lost(
    cluster: LocalCluster, bk: BookKeeper, bookkeeper: CommandLine
) -> None:
    made = []
    for _ in range(LEDGERS):
        with bk.create_ledger() as writer:
            writer.append_many([PAYLOAD] * ENTRIES)
            made.append(writer.ledger_id)
    late = next(each for each in cluster.bookies if each.bookie_id in members(bk, made[0]))
    assert eventually(lambda: log_bytes_of(late) > MIB, 60)
    late.kill()
    # Its place in every one of them is another's.
    assert eventually(lambda: not any(late.bookie_id in members(bk, each) for each in made), 120)

    late.start()

    assert eventually(lambda: log_bytes_of(late) < MIB // 4, 120)
    assert bookkeeper.outcome("ledgers", "verify", *made)[0] == 0
    # It takes copies again when another is lost, of the very ledgers that it dropped.
    other = next(each for each in cluster.bookies if each is not late)
    other.kill()
    assert eventually(lambda: not any(other.bookie_id in members(bk, each) for each in made), 120)
    for ledger_id in made:
        with bk.open_ledger(ledger_id) as reader:
            assert [bytes(each.payload) for each in reader.read(0, ENTRIES - 1)] == (
                [PAYLOAD] * ENTRIES
            )
    assert any(late.bookie_id in members(bk, each) for each in made)


def members(bk: BookKeeper, ledger_id: int) -> set[str]:
    """Every bookie that the ledger's metadata names."""
    metadata = bk.run(bk.ledger_client.ledger_metadata(ledger_id))
    return {bookie for fragment in metadata.fragments for bookie in fragment.ensemble}
