"""Negative controls: for each checker the smallest doctored histories that it alone must notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bookie_server.wire.messages import Status
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from tests.simulation.world import (
    checkers,
    collection_checkers,
    reader_checkers,
    space_checkers,
    storage_checkers,
)
from tests.simulation.world import collection_history as c
from tests.simulation.world import history as h
from tests.simulation.world import space_history as s
from tests.simulation.world.checkers import Checker
from tests.simulation.world.healing_history import LimboEnded
from tests.simulation.world.process import Band

ENSEMBLE = ("b0", "b1", "b2")
OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    fragments=(Fragment(0, ENSEMBLE),),
    writer_token=1,
)


def committed(version: int, metadata: LedgerMetadata, client: str = "w") -> h.Committed:
    return h.Committed(client, 7, version, replace(metadata, writer_token=version + 1))


def in_recovery(version: int = 1, client: str = "r") -> h.Committed:
    return committed(version, OPEN.in_recovery(), client)


def closed_at(last: int, version: int = 2, client: str = "r") -> h.Committed:
    return committed(version, OPEN.in_recovery().closed(last, 0), client)


def all_at(*bookies: str) -> LedgerMetadata:
    return replace(OPEN, fragments=(Fragment(0, bookies),))


def appended(count: int) -> h.Appended:
    return h.Appended("w", 7, 0, tuple(f"{n}".encode() for n in range(count)))


def stored(entry: int, *bookies: str) -> list[h.Event]:
    return [h.Durable(bookie, 7, entry, 100 + entry) for bookie in bookies]


def read(
    *,
    since: int = 0,
    found: tuple[tuple[int, int], ...] = (),
    missing: tuple[tuple[int, int, Status], ...] = (),
    is_fencing: bool = False,
) -> h.ReadReplied:
    return h.ReadReplied(since, "b0", "r", 7, None, is_fencing, found, missing)


def up(*entries: int, fenced: tuple[int, ...] = (), limbo: tuple[int, ...] = ()) -> h.BookieUp:
    return h.BookieUp("b0", 1, ((7, entries),), fenced, limbo, 0, 0)


def taken_over(version: int, bookie: str) -> h.Committed:
    """Its copies of the closed ledger are named, in the place of b2's."""
    closed = replace(all_at("b0", "b1", bookie).in_recovery().closed(1, 0))
    return committed(version, closed, "healer")


OK, NO = Status.OK, Status.NO_ENTRY
ONE_SENT = [committed(0, OPEN), appended(1)]
WRITTEN = [committed(0, OPEN), appended(2), *stored(0, *ENSEMBLE), *stored(1, "b0", "b1")]
ACKED = [*WRITTEN, h.Acked("w", 7, 0), h.Acked("w", 7, 1)]
FENCED: list[h.Event] = [
    h.RecoveryBegun("r", 7),
    in_recovery(),
    *(h.FenceDurable(bookie, 7) for bookie in ENSEMBLE),
    *(h.LacReplied(0, bookie, "r", 7, True, OK) for bookie in ENSEMBLE),
    *(h.LacReceived("r", bookie, 7, True, OK) for bookie in ENSEMBLE),
    *(h.FencingReadSent("r", bookie, 7) for bookie in ENSEMBLE),
]
RECOVERING = [*ACKED, *FENCED]
DENIED = [h.ReadReceived("r", bookie, 7, True, ((2, 9, NO),)) for bookie in ("b1", "b2")]
SOUND: list[h.Event] = [
    s.Listed("w", ENSEMBLE),
    *ACKED,
    h.AddReplied("b0", 7, 0, 1, False, OK),
    h.LacSeen("f", 7, False, 0),
    *FENCED,
    read(found=((0, 100), (1, 101)), missing=((2, 9, NO),), is_fencing=True),
    *DENIED,
    h.AddArrived("b2", "r", 7, 1, 1, True),
    h.Durable("b2", 7, 1, 101),
    h.AddReplied("b2", 7, 1, 1, True, OK),
    h.AddReplied("b1", 7, 2, 2, False, Status.FENCED),
    h.WriterEnded("w", 7, "LedgerFencedError"),
    closed_at(1),
    h.RecoveryEnded("r", 7, ""),
    LimboEnded("b9", 7),
    h.LacReplied(0, "b9", "x", 7, True, NO),
    h.Opened("r", 7, True, 1),
    h.ReadEntry("r", 7, 0, b"0"),
    h.ReadEntry("r", 7, 1, b"1"),
    h.LacSeen("f", 7, True, 1),
    up(0, 1, fenced=(7,)),
]


UNSURE = h.ReadReceived("r", "b2", 7, True, ((2, 9, Status.UNKNOWN),))
REWRITTEN = replace(OPEN, fragments=(Fragment(0, ("b5", "b1", "b2")), Fragment(2, ENSEMBLE)))
MOVED = OPEN.with_ensemble(1, ("b0", "b1", "b3"))
ARRIVED = h.AddArrived("b0", "w", 7, 0, 0, False)
LOW, IN_MARGIN = s.Looked("b0", Band.RECOVERY), s.Looked("b0", Band.MARGIN)
HEALED = [
    *SOUND,
    s.Listed("healer", (*ENSEMBLE, "b3")),
    *stored(0, "b3"),
    *stored(1, "b3"),
    taken_over(3, "b3"),
]
CONTROLS: dict[Checker, dict[str, Sequence[h.Event]]] = {
    checkers.i1_no_truncation: {"closed below an ack": [*RECOVERING, closed_at(0)]},
    checkers.i2_acked_readable: {
        "metadata names bookies that have nothing": [*ACKED, committed(1, all_at("b3", "b4", "b0"))]
    },
    checkers.i3_committed_at_ack_quorum: {
        "closed with one copy": [*ONE_SENT, *stored(0, "b0"), *FENCED, closed_at(0)]
    },
    reader_checkers.i4_one_last: {
        "two ends": [*SOUND, h.WriterClosed("w", 7, 0)],
        "a third": [*SOUND, h.Opened("x", 7, True, 0)],
    },
    reader_checkers.i5_order_and_content: {
        "other bytes": [*SOUND, h.ReadEntry("x", 7, 0, b"?")],
        "one skipped": [*SOUND, h.ReadEntry("x", 7, 1, b"1")],
        "read beyond the end": [appended(3), *SOUND, h.ReadEntry("r", 7, 2, b"2")],
        "a tail ended early": [*SOUND, h.TailEnded("t", 7, True, 0)],
        "unconfirmed bytes nobody wrote": [*SOUND, h.ReadUnconfirmed("x", 7, 5, b"?")],
    },
    checkers.i6_ack_order: {"a gap": [*WRITTEN, h.Acked("w", 7, 1)]},
    reader_checkers.i7_lac_sound: {
        "beyond the last ack": [*ACKED, h.LacSeen("f", 7, False, 2)],
        "opened beyond it": [*ACKED, h.Opened("f", 7, False, 2)],
        "fell": [*ACKED, h.LacSeen("f", 7, False, 1), h.LacSeen("f", 7, False, 0)],
    },
    checkers.i8_fence_monotone: {
        "an add succeeded behind the fence": [
            *RECOVERING,
            *stored(2, "b0"),
            h.AddReplied("b0", 7, 2, 2, False, OK),
        ],
        "an add succeeded behind the end of a limbo": [
            *ACKED,
            LimboEnded("b0", 7),
            *stored(2, "b0"),
            h.AddReplied("b0", 7, 2, 2, False, OK),
        ],
        "something was stored that nobody recovered": [
            *RECOVERING,
            h.AddArrived("b0", "w", 7, 2, 2, False),
            *stored(2, "b0"),
        ],
    },
    checkers.i9_fence_before_reply: {
        "a denial came first": [
            *ACKED,
            read(missing=((2, 2, NO),), is_fencing=True),
            h.FenceDurable("b0", 7),
        ],
        "a LAC came first": [
            *ACKED,
            h.LacReplied(0, "b0", "r", 7, True, OK),
            h.FenceDurable("b0", 7),
        ],
    },
    checkers.i10_coverage_before_read: {
        "one of three fenced": [
            *ACKED,
            *FENCED[:2],
            h.LacReceived("r", "b0", 7, True, OK),
            FENCED[-1],
        ],
        "read first": [*ACKED, FENCED[-1]],
    },
    checkers.i11_negative_needs_quorum: {
        "one denial of two": [*RECOVERING, DENIED[0], closed_at(1)],
        "a stranger denied": [
            *RECOVERING,
            DENIED[0],
            replace(DENIED[1], bookie="b9"),
            closed_at(1),
        ],
        "unknown taken for no": [*RECOVERING, DENIED[0], UNSURE, closed_at(1)],
    },
    checkers.i13_unknown_aborts: {
        "closed and then gave up": [*SOUND[:-5], h.RecoveryEnded("r", 7, "LedgerRecoveryError")]
    },
    checkers.i14_recovery_leaves_fragments: {
        "changed them on the way": [*ACKED, in_recovery(), committed(2, MOVED.in_recovery(), "r")],
        "changed them with the mark": [*ACKED, committed(1, MOVED.in_recovery(), "r")],
    },
    checkers.i15_fragments_immutable: {
        "a fragment vanished": [
            *ACKED,
            committed(1, OPEN.with_ensemble(2, ("b3", "b1", "b2"))),
            committed(2, all_at("b4", "b1", "b2")),
        ],
        "begins below the LAC": [*ACKED, committed(1, MOVED)],
        "an older one changed": [*ACKED, committed(1, REWRITTEN)],
    },
    checkers.i17_no_ack_ahead_of_metadata: {
        "counted a bookie the metadata does not name": [
            *ONE_SENT,
            *stored(0, "b0", "b9"),
            h.Acked("w", 7, 0),
        ]
    },
    checkers.i18_compare_and_set: {
        "a version skipped": [committed(0, OPEN), committed(2, OPEN.in_recovery())],
        "a token used twice": [committed(0, OPEN), h.Committed("r", 7, 1, OPEN.in_recovery())],
    },
    checkers.i19_state_machine: {
        "changed": [*SOUND, closed_at(0, version=3)],
        "opened again": [*FENCED, committed(2, OPEN)],
        "written after deletion": [
            committed(0, OPEN),
            h.Deleted("x", 7),
            committed(1, OPEN.in_recovery()),
        ],
    },
    checkers.i20_writer_stops: {
        "acknowledged after its end": [
            *WRITTEN,
            h.Acked("w", 7, 0),
            h.WriterEnded("w", 7, "LedgerFencedError"),
            h.Acked("w", 7, 1),
        ]
    },
    checkers.i21_recovery_copies_bytes: {
        "another LAC in the header": [*ACKED, h.Durable("b2", 7, 1, 999)]
    },
    checkers.i22_replication_safe: {
        "named before it has everything": [*SOUND, *stored(0, "b3"), taken_over(3, "b3")],
    },
    checkers.i24_fenced_means_fence: {
        "ended a writer by itself": [*ACKED, h.AddReplied("b1", 7, 2, 2, False, Status.FENCED)],
    },
    storage_checkers.i12_no_false_negative: {
        "denied an entry": [*ACKED, read(since=len(ACKED), missing=((1, 1, NO),))],
        "denied what came before the fence": [
            *ACKED,
            h.FenceDurable("b0", 7),
            read(missing=((1, 1, NO),), is_fencing=True),
        ],
        "denied a ledger": [
            *ACKED,
            h.LacReplied(len(ACKED), "b0", "r", 7, False, Status.NO_LEDGER),
        ],
        "denied what was damaged": [
            *ACKED,
            h.Damaged("b0", "x"),
            read(since=len(ACKED), missing=((1, 1, NO),)),
        ],
    },
    storage_checkers.s1_durable_before_ack: {
        "answered before the sync": [
            committed(0, OPEN),
            h.AddReplied("b0", 7, 0, 0, False, OK),
            *stored(0, "b0"),
        ]
    },
    storage_checkers.s2_nothing_durable_is_lost: {
        "lost an entry": [*ACKED, up(0)],
        "lost a fence": [*ACKED, h.FenceDurable("b0", 7), up(0, 1)],
        "damaged and not in limbo": [*ACKED, h.Damaged("b0", "x"), up(0)],
    },
    storage_checkers.s4_replay_idempotent: {"grew": [*ACKED, up(0, 1), up(0, 1, 2)]},
    storage_checkers.s5_no_corrupt_serve: {"returned other bytes": [*ACKED, read(found=((1, 5),))]},
    storage_checkers.s6_wrong_disks_never_serve: {
        "emptied": [h.DisksHarmed("b0", "emptied", ("/l0",)), up()],
        "another's": [h.Superseded("b0", 0, True), up()],
    },
    storage_checkers.s7_one_process_per_id: {
        "goes on": [up(), h.Superseded("b0", 1, True)],
        "two on the same disks": [h.Superseded("b0", 1, False), h.BookieDown("b0", 1, "killed")],
    },
    space_checkers.s8_reserves_are_kept: {
        "an add on the reserve": [LOW, ARRIVED, *stored(0, "b0")],
        "an add within the margin": [LOW, IN_MARGIN, ARRIVED, *stored(0, "b0")],
        "a recovery's on that for fences": [
            s.Looked("b0", Band.FENCES),
            replace(ARRIVED, is_recovery=True),
            *stored(0, "b0"),
        ],
        "an add though somebody said no": [s.WishHeard("b0", True), ARRIVED, *stored(0, "b0")],
        "an add of a sealed bookie": [s.Sealed("b0"), ARRIVED, *stored(0, "b0")],
    },
    space_checkers.s9_fences_are_taken: {
        "refused in time": [
            s.Looked("b0", Band.FENCES),
            h.LacReplied(0, "b0", "r", 7, True, Status.READ_ONLY),
        ]
    },
    space_checkers.s10_full_disk_ends_nobody: {"ended": [s.EndedWithoutRoom("b0", "full")]},
    space_checkers.s11_sealed_writes_nothing: {"wrote": [s.SealedWrote("b0", "write", "/j0/x")]},
    space_checkers.i25_read_only_is_not_chosen: {
        "of a new ledger": [s.Listed("w", ("b1", "b2")), committed(0, OPEN)],
        "in another's place": [
            s.Listed("w", ENSEMBLE),
            committed(0, OPEN),
            committed(1, MOVED),
        ],
    },
    space_checkers.i26_full_ends_no_writer: {
        "fenced by nobody": [committed(0, OPEN), h.WriterEnded("w", 7, "LedgerFencedError")],
        "deleted by nobody": [committed(0, OPEN), h.WriterEnded("w", 7, "LedgerDeletedError")],
        "ran out": [s.Gentle(), h.WriterEnded("w", 7, "NotEnoughBookiesError")],
    },
    collection_checkers.i23_collection_is_safe: {
        "of a living ledger": [committed(0, OPEN), c.Deleting("b0", 7, 7)],
        "of a ledger to come": [c.Deleting("b0", 5, 9), committed(0, OPEN)],
        "before it is deleted": [
            committed(0, OPEN),
            c.Deleting("b0", 7, 7),
            h.Deleted("x", 7),
        ],
    },
    collection_checkers.i28_only_surplus_is_dropped: {
        "of an open ledger": [committed(0, OPEN), c.Dropping("b0", 7)],
        "of a member": [committed(0, OPEN), closed_at(1), c.Dropping("b0", 7)],
    },
    collection_checkers.i27_deleted_for_good: {
        "a late add": [c.Buried("b0", 7, 8), h.AddReplied("b0", 7, 0, 0, False, Status.OK)],
    },
}
