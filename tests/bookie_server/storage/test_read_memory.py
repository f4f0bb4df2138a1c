"""What it takes to execute a plan is no more than the plan says, whatever lies beside the wanted entries."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookie_server.storage.engine import Storage
from bookie_server.storage.read_plan import ReadPlan
from bookie_server.wire.stripe import Stripe
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie

KIB, MIB = 1024, 1024 * 1024


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def most_bytes(storage: Storage, plan: ReadPlan) -> int:
    """Taken at once while the plan is executed and its records are joined."""
    with traced():
        outcome = storage.execute(plan)
        assert b"".join(outcome.chunks)
        return tracemalloc.get_traced_memory()[1]


@pytest.mark.parametrize("ensemble_size", [2, 60])
async def test_a_sparse_read_keeps_no_blocks_for_the_sake_of_one_entry_each(
    tmp_path: Path, ensemble_size: int
) -> None:
    """One that was accounted with 5 MiB held 64 MiB: a MiB of blocks for each 16 KiB of its reply."""
    async with running_bookie(tmp_path) as bookie:
        for number in range(16):
            await add(bookie, section([bytes(KIB)] * KIB, KIB * number, length_before=MIB * number))
        await bookie._checkpoints.stop()
        bookie.storage.checkpoint_now()
        plan = bookie.storage.contents.plan_read(
            7, 0, 16 * KIB - 1, stripe=Stripe(ensemble_size, 1, 0), size_bytes_max=2 * MIB
        )

        # Beside the bytes, a view of each of two thousand.
        assert most_bytes(bookie.storage, plan) < plan.memory_bytes + MIB
        assert plan.memory_bytes < 8 * MIB


async def test_a_large_entry_behind_small_ones_is_in_what_a_read_takes(tmp_path: Path) -> None:
    """It is fetched to find that it does not fit: 7 MiB where 5 were accounted for."""
    async with running_bookie(tmp_path) as bookie:
        await add(bookie, section([bytes(KIB)] * 1_900))
        await add(bookie, section([bytes(4 * MIB)], 1_900, length_before=1_900 * KIB))
        await bookie._checkpoints.stop()
        bookie.storage.checkpoint_now()
        plan = bookie.storage.contents.plan_read(7, 0, 1_900, size_bytes_max=2 * MIB)

        assert 5 * MIB < most_bytes(bookie.storage, plan) < plan.memory_bytes + 256 * KIB
