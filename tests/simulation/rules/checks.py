"""The invariants, each a small function over a history that says how it is broken.

Two kinds. *Outcomes* are what a user sees: an acknowledged entry is lost, two ends of one ledger, a
ledger that cannot be closed. *Rules* are the protocol's own ways of never getting there; breaking
one is a defect even in a schedule that luck saved. The numbers are those of docs/reliability.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from bookkeeper_metadata.model import LedgerState
from tests.simulation.rules.history import History

Check = Callable[[History], Iterator[str]]


def _closed_at(history: History) -> int | None:
    for commit in history.committed:
        if commit.metadata.is_closed:
            return commit.metadata.last_entry
    return None


def i1_no_truncation(history: History) -> Iterator[str]:
    """A closed ledger holds every acknowledged entry."""
    last_entry = _closed_at(history)
    for ack in history.acked:
        if last_entry is not None and ack.entry_id > last_entry:
            yield f"entry {ack.entry_id} was acknowledged, the ledger is closed at {last_entry}"


def i2_acked_readable(history: History) -> Iterator[str]:
    """Every acknowledged entry has a right copy where the metadata says."""
    for entry_id, copies in history.acked_copies_left:
        if not copies:
            yield f"acknowledged entry {entry_id} has no copy left"


def i3_committed_at_ack_quorum(history: History) -> Iterator[str]:
    """Every entry of a closed ledger was stored by an ack quorum."""
    for entry_id, copies in history.copies_at_close:
        if copies < history.ack_quorum:
            yield f"entry {entry_id} of the closed ledger is at {copies} bookies"


def i4_one_last_entry(history: History) -> Iterator[str]:
    """Everybody is told the same end."""
    ends = {c.metadata.last_entry for c in history.committed if c.metadata.is_closed}
    ends |= {end.last_entry for end in history.ended}
    if len(ends) > 1:
        yield f"the ledger ends at {sorted(ends)}"


def i5_content(history: History) -> Iterator[str]:
    """A reader of the closed ledger gets what was written, in order, without a hole."""
    for entry_id, is_right in history.contents:
        if not is_right:
            yield f"entry {entry_id} of the closed ledger is not what was written"


def i6_ack_order(history: History) -> Iterator[str]:
    """Entries are acknowledged 0, 1, 2, ..."""
    for expected, ack in enumerate(history.acked):
        if ack.entry_id != expected:
            yield f"entry {ack.entry_id} was acknowledged as number {expected}"
            return


def i7_lac_sound(history: History) -> Iterator[str]:
    """No LAC a bookie has exceeds what the writer has acknowledged."""
    for hint in history.hinted:
        if hint.last_add_confirmed > hint.confirmed_then:
            yield f"{hint.bookie_id} was told an explicit LAC {hint.last_add_confirmed}"
    for stored in history.stored:
        if stored.last_add_confirmed > stored.confirmed_then:
            yield f"{stored.bookie_id} has LAC {stored.last_add_confirmed} in entry {stored.entry_id}"


def i8_fence_monotone(history: History) -> Iterator[str]:
    """Behind a fence, or in limbo, no add of the writer becomes durable, restarts or not."""
    for stored in history.stored:
        if stored.is_behind_fence and not stored.is_recovery:
            yield f"{stored.bookie_id} stored entry {stored.entry_id} of the writer behind its fence"


def i9_fence_before_reply(history: History) -> Iterator[str]:
    """A fencing request is answered, with whatever, when the fence is durable."""
    for answer in history.answered:
        if answer.what == "fence" and not answer.is_durable:
            yield f"{answer.bookie_id} answered a fencing request before its fence was durable"


def i10_coverage_before_read(history: History) -> Iterator[str]:
    """Recovery reads begin when no ack quorum is left unfenced."""
    for begun in history.reads_begun:
        if not begun.is_covered:
            yield f"{begun.by} reads while an ack quorum is not fenced"


def i11_negative_needs_quorum(history: History) -> Iterator[str]:
    """An entry is absent when WQ - AQ + 1 fenced bookies the writer used say so."""
    for judged in history.judged:
        if judged.deniers < judged.needed:
            yield f"{judged.by} ends the ledger before {judged.entry_id} with {judged.deniers} denials"
        elif judged.fenced_deniers < judged.needed:
            yield f"{judged.by} believes unfenced bookies about entry {judged.entry_id}"


def i12_no_false_negative(history: History) -> Iterator[str]:
    """No bookie denies what it has, had, or is about to store."""
    for denied in history.denied:
        if denied.was_stored:
            yield f"{denied.bookie_id} denies entry {denied.entry_id}, which it had"


def i13_unknown_aborts(history: History) -> Iterator[str]:
    """A recoverer closes a ledger only where it proved that the next entry is absent."""
    ends = {(judged.by, judged.entry_id) for judged in history.judged}
    for commit in history.committed:
        if commit.metadata.is_closed and commit.by.startswith("recoverer"):
            if (commit.by, commit.metadata.last_entry + 1) not in ends:
                yield f"{commit.by} closed at {commit.metadata.last_entry} without proof"
            return


def i14_recovery_metadata_quiet(history: History) -> Iterator[str]:
    """Nobody changes fragments between IN_RECOVERY and CLOSED."""
    for before, after in pairwise(history.committed):
        is_quiet = before.metadata.state is LedgerState.IN_RECOVERY and not after.metadata.is_closed
        if is_quiet and after.metadata.fragments != before.metadata.fragments:
            yield f"{after.by} changed the fragments of a ledger in recovery"


def i15_fragments_immutable(history: History) -> Iterator[str]:
    """Only the last fragment's bookies change, and new fragments come behind it."""
    for before, after in pairwise(history.committed):
        old, new = before.metadata.fragments, after.metadata.fragments
        if before.metadata.is_closed:
            continue
        if new[: len(old) - 1] != old[:-1]:
            yield f"{after.by} changed a fragment before the last"
        elif len(new) < len(old) or new[len(old) - 1].first_entry != old[-1].first_entry:
            yield f"{after.by} moved the last fragment"


def i16_ensemble_valid(history: History) -> Iterator[str]:
    """An ensemble is E different bookies."""
    for commit in history.committed:
        for defect in commit.metadata.defects():
            yield f"{commit.by} committed {defect}"


def i17_no_ack_ahead_of_metadata(history: History) -> Iterator[str]:
    """Who counts towards an acknowledgement is in the metadata committed by then."""
    for ack in history.acked:
        if ack.holders < ack.ack_quorum:
            yield f"entry {ack.entry_id} was acknowledged with {ack.holders} copies where readers look"


def i18_compare_and_set(history: History) -> Iterator[str]:
    """Versions follow each other, and no writer token comes twice."""
    tokens: set[int] = set()
    for expected, commit in enumerate(history.committed):
        if commit.version != expected:
            yield f"{commit.by} committed version {commit.version}, not {expected}"
        if commit.metadata.writer_token in tokens:
            yield f"{commit.by} committed one change twice"
        tokens.add(commit.metadata.writer_token)


_NEXT = {
    LedgerState.OPEN: tuple(LedgerState),
    LedgerState.IN_RECOVERY: (LedgerState.IN_RECOVERY, LedgerState.CLOSED),
    LedgerState.CLOSED: (),
}


def i19_state_machine(history: History) -> Iterator[str]:
    """OPEN, then IN_RECOVERY or CLOSED, and nothing after CLOSED; a recovery is the recoverers'."""
    for before, after in pairwise(history.committed):
        if after.metadata.state not in _NEXT[before.metadata.state]:
            yield f"{after.by} made {after.metadata.state.name} of {before.metadata.state.name}"
        elif before.metadata.state is LedgerState.IN_RECOVERY and after.by == "writer":
            yield "the writer changed a ledger in recovery"


def i20_writer_stops(history: History) -> Iterator[str]:
    """A writer that knows of its end acknowledges nothing more."""
    for ack in history.acked:
        if ack.is_after_end:
            yield f"entry {ack.entry_id} was acknowledged by a writer that knew of its end"


def i21_recovery_lac(history: History) -> Iterator[str]:
    """Recovery writes back what the writer wrote, its LAC included."""
    for stored in history.stored:
        if not stored.is_as_written:
            yield f"{stored.bookie_id} has other bytes of entry {stored.entry_id} than were written"


def i24_fenced_means_fence(history: History) -> Iterator[str]:
    """FENCED ends a writer, so it is said only where somebody asked for a fence."""
    for refused in history.refused:
        if not refused.was_asked:
            yield f"{refused.bookie_id} says FENCED, and nobody has fenced it"


def s1_durable_before_ack(history: History) -> Iterator[str]:
    """A bookie answers an add when the entry is on its disk."""
    for answer in history.answered:
        if answer.what == "add" and not answer.is_durable:
            yield f"{answer.bookie_id} acknowledged an add that was not durable"


def l1_ledger_closes(history: History) -> Iterator[str]:
    """Once everything is healed, recovery closes the ledger."""
    if not history.is_closed:
        yield "nobody could close the ledger"


def l3_operations_end(history: History) -> Iterator[str]:
    """Every operation of a living client is answered."""
    for operation in history.unfinished:
        yield f"{operation} was never answered"


def p_product_holds(history: History) -> Iterator[str]:
    """The product's own invariants hold."""
    yield from history.failures


OUTCOMES: tuple[Check, ...] = (
    i1_no_truncation, i2_acked_readable, i3_committed_at_ack_quorum, i4_one_last_entry, i5_content,
    i6_ack_order, l1_ledger_closes, l3_operations_end,
)  # fmt: skip
"""What users see."""

RULES: tuple[Check, ...] = (
    i7_lac_sound, i8_fence_monotone, i9_fence_before_reply, i10_coverage_before_read,
    i11_negative_needs_quorum, i12_no_false_negative, i13_unknown_aborts,
    i14_recovery_metadata_quiet, i15_fragments_immutable, i16_ensemble_valid,
    i17_no_ack_ahead_of_metadata, i18_compare_and_set, i19_state_machine, i20_writer_stops,
    i21_recovery_lac, i24_fenced_means_fence, s1_durable_before_ack, p_product_holds,
)  # fmt: skip
"""What keeps it so."""


def check_name(check: Check) -> str:
    """``I1``, ``S1``, ``L3``: the number an invariant has in the documents."""
    return check.__name__.split("_", 1)[0].upper()


def violations(history: History, checks: tuple[Check, ...] = OUTCOMES + RULES) -> list[str]:
    """Everything wrong with a history, as ``I1: what``; outcomes first."""
    return [f"{check_name(check)}: {what}" for check in checks for what in check(history)]
