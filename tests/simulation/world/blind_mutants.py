"""Five mutants written without sight of the checkers."""

from __future__ import annotations

from bookie_server.storage.contents import Contents
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.ledger.ensemble_change import EnsembleChanger
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from spark_bookkeeper.ledger.write_back import WriteBack
from tests.simulation.kit.patching import Mutants, Patch

BLIND = Mutants()
"""Five bugs planted by somebody who had not seen the checkers: the whole world notices four.

The fifth, ``outage_means_nobody_replaced``, takes a metadata outage that begins with a lost reply to an
ensemble change, and the right two bookies gone after it; a thousand seeds pass it by. Only
``test_metadata_that_stays_away_ends_the_writer`` notices it.
"""
blind = BLIND.planted


@blind(
    "sealed_writer_replaces_nobody",
    "a writer that is closing asks for no ensemble change, whether or not it is settled",
)
def _sealed_writer_replaces_nobody(patch: Patch) -> None:
    """Plausible: "a ledger about to be closed gets no more entries, so it needs no new bookies" - and
    it is true once everything is acknowledged, which is what most closes look like.

    Breaks liveness: an add that some bookies could still take, and the close behind it, never end
    though enough bookies are alive and writable.

    Schedule (E=WQ=AQ=3, spare b4): ``append_async(x)``, ``close()`` without waiting for x; then b2
    dies before it stored x. Correct: b2 is replaced by b4, x is acknowledged, the ledger is closed
    at x. Mutant: b2 is noted as failed, nobody is asked for; x reaches two of three bookies, the
    future of x never completes and ``close()`` waits for ever (``add_quorum_timeout_ms`` is off by
    default). With WQ=3, AQ=2 it takes two bookies that fail after the close was called. If the
    first failure came before the close, the change under way saves the day.
    """
    patch.edit(
        WriterState._on_bookie_failed, {"(self._is_sealed and self.is_settled)": "self._is_sealed"}
    )


@blind(
    "outage_means_nobody_replaced",
    "a metadata outage during an ensemble change is reported as 'nobody was replaced'",
)
def _outage_means_nobody_replaced(patch: Patch) -> None:
    """``MetadataUnavailableError`` (the change's outcome is *unknown*) does not end the writer but is
    told to the state machine as an empty replacement, "nothing was changed". Plausible: ``_choose``
    does exactly this when the registry cannot be asked, the state machine knows how to go on without
    a bookie, and a writer that dies of thirty seconds without ZooKeeper though its ack quorum is
    fine looks like the bug to be fixed.

    Breaks safety: acknowledged entries may be lost. The CAS may stand; then the metadata names, from
    LAC + 1 on, a bookie that is sent nothing, and no longer names the one that failed - whose copies
    are not un-acknowledged.

    Schedule (E=WQ=3, AQ=2, spare b4): entries 0..4 acknowledged. Entry 5 is sent; b3 stores it and
    answers OK; b2 has it on the way (slow); entry 6's section - or any run in flight - fails on b3,
    so a change from 5 on is asked for. The CAS {b1,b2,b4} from 5 is applied, its reply is lost, and
    the metadata service stays away from this client for ``ensemble_change_timeout_ms``. Mutant: goes
    on with {b1,b2,b3-failed}; b1 answers for 5, stored = {b1,b3}: 5 is acknowledged. The writer and
    b1 die; b2 never got 5. Recovery asks {b1,b2,b4}: b2 and b4 both swear NO_ENTRY, two negatives
    are a coverage, the ledger is closed at 4. Entry 5, acknowledged, sits on b1 and b3 and nobody
    will ever ask. Weaker symptom without the second crash: entries on fewer than AQ of the bookies
    their fragment names, when one of the two copies that count is b3's.
    """
    fails = "except BookKeeperError as error:"
    unchanged = "    self._on_changed(known, Replacement(change.ensemble, ()))"
    is_away = f"except MetadataUnavailableError:\n{unchanged}"
    patch.edit(EnsembleChanger._change, {fails: f"{is_away}\n{fails}"})


@blind(
    "write_back_in_place",
    "a recovery puts a replacement in force from its fragment's first entry, not from the chunk's",
)
def _write_back_in_place(patch: Patch) -> None:
    """The ensemble of the last fragment is replaced in place. Plausible: "that ensemble is the
    recovery's own secret until it closes the ledger" reads as if it could be rewritten freely, it
    keeps the metadata to one fragment, and it is right whenever the recovery begins at the
    fragment's first entry.

    Breaks safety: acknowledged entries become unreadable (lost to every reader).

    Schedule (E=WQ=3, AQ=2): entries 0..9 acknowledged, 0..8 on b2 and b3 only (b1 hung or was
    silent, its section unanswered or lost), LAC known to the bookies 8. The writer dies. A recovery
    fences, reads 9 from all, then b2 and b3 fail the write-back of 9 (crash, or turn read-only).
    b4 and b5 replace them. Correct: fragments 0:{b1,b2,b3}, 9:{b1,b4,b5}. Mutant: one fragment
    0:{b1,b4,b5}, CLOSED at 9: b2 and b3, who hold 0..8 durably, are asked by nobody, even when they
    are back. With several chunks or windows the entries written back before the replacement vanish
    in the same way. With AQ=WQ one failing bookie is enough to leave entries below AQ copies.
    """
    ours = "self._written_to.last_fragment.first_entry"
    patch.edit(WriteBack._replace, {"with_ensemble(first_entry": f"with_ensemble({ours}"})


@blind("checkpoint_marks_run_ahead", "a checkpoint's journal marks are not frozen with its cache")
def _checkpoint_marks_run_ahead(patch: Patch) -> None:
    """The plan shares the dictionary the loop goes on changing. Plausible: one needless-looking copy
    removed; every test in which nothing is written *during* a checkpoint passes, and the plan is a
    frozen dataclass, which looks immutable.

    Breaks safety: a bookie forgets entries (and fences) it answered OK for, without noticing, so it
    later swears NO_ENTRY - and takes ordinary adds of a ledger it had fenced.

    Schedule: a checkpoint begins (cache frozen with entries ..n, mark after n's group). While the
    worker writes the entry log, group g with entry n+1 (or a fence) is synced, applied - it goes to
    the *new* cache, and ``applied`` moves behind g - and answered OK. The worker then commits the
    index with ``plan.marks``: they say "replay starts behind g". The bookie crashes before its next
    checkpoint completed. At restart the replay begins behind g: n+1 is nowhere, nothing is damaged,
    nobody goes limbo. Two such bookies (or one, and one slow) of a WQ=3, AQ=2 ledger and n+1,
    acknowledged, never existed. Also ``_planned_marks`` is that same dictionary, so marks alone are
    never news again; harmless.
    """
    patch.edit(Contents.begin_checkpoint, {"marks=dict(self.applied)": "marks=self.applied"})


@blind(
    "close_trims_a_fragment_of_one_entry",
    "closing drops fragments that hold nothing - and one that holds just the last entry",
)
def _close_trims_a_fragment_of_one_entry(patch: Patch) -> None:
    """A clean-up of empty fragments (an ensemble changed after the last entry leaves one) keeps
    ``first_entry < last_entry`` where it must be ``<=``. Plausible: the empty fragment starts at
    last entry + 1, so the off-by-one does what it is meant to do; the ``or`` for the empty ledger
    also hides it for a ledger of one entry and one fragment.

    Breaks safety: the last acknowledged entry is looked for on bookies that do not hold it.

    Schedule (E=WQ=3, AQ=2, spares b4, b5): entries 0..n-1 acknowledged by {b1,b2,b3}. b2 and b3 die;
    an ensemble change puts {b1,b4,b5} in force from n on; entry n is stored by b4 and b5 (b1 slow),
    acknowledged, and the writer closes at n. Correct: fragments 0:{b1,b2,b3}, n:{b1,b4,b5}. Mutant:
    only 0:{b1,b2,b3}, CLOSED at n: a reader of n asks b1, b2, b3 and gets EntryUnreadable for ever;
    with one bookie replaced, n has one copy fewer than AQ among the bookies the metadata names.
    The same after a recovery that had to replace bookies from the last entry on.
    """
    kept = "tuple(f for f in self.fragments if f.first_entry < last_entry) or self.fragments[:1]"
    patch.edit(LedgerMetadata.closed, {"replace(self": f"replace(self, fragments={kept}"})
