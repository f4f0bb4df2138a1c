"""What is compared: commands for both clients, and what is measured of their answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.rounds import Measure

PREPARED_BYTES = 192 * 1024 * 1024
"""Of a ledger that is read: more than the cache Apache's bookies read ahead into."""

ADDS_PER_S = Measure("per_s", "", "/s", is_rate=True)
MB_PER_S = Measure("mb_per_s", "", "MB/s", is_rate=True)
P50 = Measure("p50_ms", "p50", "ms")
P99 = Measure("p99_ms", "p99", "ms")
CLIENT_CPU = Measure("client_ms_per_mib", "client's CPU", "ms/MiB")
BOOKIES_CPU = Measure("bookies_ms_per_mib", "three bookies' CPU", "ms/MiB", is_lumpy=True)
WRITTEN = Measure("written_per_byte", "three bookies wrote", "B/B", is_lumpy=True)
"""A byte of user data is stored three times."""


@dataclass(frozen=True)
class Workload:
    """One row of the table; ``{seconds}`` and ``{ledger}`` in commands are filled in."""

    name: str
    """What ``--only`` looks in."""
    title: str
    ours: str
    peer: str
    speeds: tuple[Measure, ...]
    costs: tuple[Measure, ...]
    prepared_size: int | None = None
    """Entry size of the closed ledger that it reads."""


def workloads() -> tuple[Workload, ...]:
    """In the order in which they run: what only reads comes after what fills the bookies' caches."""
    return (*_adds(), _paced(), *_reads(), *_metadata())


def _adds() -> Iterator[Workload]:
    for how, size, window in (
        ("many", 1024, 1_000),
        ("async", 1024, 1_000),
        ("many", 100, 5_000),
        ("async", 100, 5_000),
        ("many", 65_536, 100),
        ("many", 1 << 20, 16),
    ):
        # Noting the time costs a small add a tenth; of large ones there are too few to leave any out.
        every = 16 if size < 65_536 else 1
        yield Workload(
            name=f"add-{how}-{size}",
            title=f"{label(size)} `append_{how}`, {window:,} in flight",
            ours=f"add {how} {size} {window} {{seconds}} {every}",
            peer=f"add async {size} {window} {{seconds}} {every}",
            speeds=(MB_PER_S if size >= 65_536 else ADDS_PER_S, P50, P99),
            costs=(CLIENT_CPU, BOOKIES_CPU, WRITTEN),
        )


def _paced() -> Workload:
    return Workload(
        name="paced-1024",
        title="1 KiB `append_async` paced at 10,000/s",
        ours="paced 1024 10000 {seconds}",
        peer="paced 1024 10000 {seconds}",
        speeds=(P50, P99),
        costs=(CLIENT_CPU, BOOKIES_CPU, WRITTEN),
    )


def _reads() -> Iterator[Workload]:
    for size in (1024, 65_536, 1 << 20):
        for ours, peer, title in (
            ("runs", "entries", "`read_runs`, Apache's `readAsync`"),
            ("runs", "batch", "`read_runs`, Apache's `batchReadAsync`"),
            ("entries", "entries", "`read`, Apache's `readAsync`"),
        ):
            yield Workload(
                name=f"read-{ours}-{peer}-{size}",
                title=f"read {label(size)}, warm: {title}",
                ours=f"read {ours} {size} {{ledger}} {{seconds}}",
                peer=f"read {peer} {size} {{ledger}} {{seconds}}",
                speeds=(MB_PER_S,),
                costs=(CLIENT_CPU, BOOKIES_CPU),
                prepared_size=size,
            )


def _metadata() -> Iterator[Workload]:
    for name, title, command in (
        ("recover", "open with recovery, 10,000 entries", "recover 10000 1000 {seconds}"),
        ("life", "create, append one entry, close", "life {seconds}"),
    ):
        yield Workload(name, title, command, command, speeds=(P50, P99), costs=())


def label(size: int) -> str:
    """A size as people say it."""
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_:
            return f"{size // bytes_} {unit}"
    return f"{size} B"
