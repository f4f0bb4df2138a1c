"""Checkers of the protocol: the invariants I1-I21 as functions over what the observer saw.

Each yields a sentence for every way in which a history breaks it; its name is the invariant's.
``tests/simulation/test_checkers.py`` shows each of them a history it must reject. What clients are
told (I4, I5, I7) is judged in :mod:`tests.simulation.world.reader_checkers`, I12 and the storage's own
S1-S5 in :mod:`tests.simulation.world.storage_checkers`, I23 and I27 in
:mod:`tests.simulation.world.collection_checkers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from bookie_server.wire.messages import Status
from bookkeeper_metadata.model import LedgerState
from tests.simulation.kit.quorums import no_ack_quorum_without, write_set
from tests.simulation.world import history as h
from tests.simulation.world.collection_checkers import COLLECTION_CHECKERS
from tests.simulation.world.reader_checkers import READER_CHECKERS
from tests.simulation.world.space_checkers import SPACE_CHECKERS
from tests.simulation.world.storage_checkers import STORAGE_CHECKERS
from tests.simulation.world.story import DENIALS, NEVER, Story

Checker = Callable[[Story], Iterator[str]]


def i1_no_truncation(story: Story) -> Iterator[str]:
    """Every acknowledged entry is within its ledger once that is closed."""
    for ledger, acks in story.acked.items():
        end = story.end(ledger)
        if end is not None:
            for ack in acks:
                if ack.entry > end.metadata.last_entry:
                    yield f"entry {ledger}/{ack.entry} was acknowledged, the end is {end}"


def i2_acked_readable(story: Story) -> Iterator[str]:
    """Whatever the metadata says next, it names an ack quorum for each acknowledged entry."""
    for ledger, versions in story.versions.items():
        acks = story.acked.get(ledger, [])
        for commit in versions:
            metadata = commit.metadata
            for ack in acks:
                if ack.index > commit.index:
                    break
                copies = story.copies(metadata, ledger, ack.entry, commit.index)
                if copies < metadata.ack_quorum:
                    yield f"{ledger}/{ack.entry} has {copies} copies where {commit} says"


def i3_committed_at_ack_quorum(story: Story) -> Iterator[str]:
    """Every entry of a closed ledger is stored by an ack quorum of its write set."""
    for ledger in story.versions:
        end = story.end(ledger)
        if end is None:
            continue
        for entry in range(end.metadata.last_entry + 1):
            copies = story.copies(end.metadata, ledger, entry, end.index)
            if copies < end.metadata.ack_quorum:
                yield f"{ledger}/{entry} had {copies} copies when {end} closed it"


def i6_ack_order(story: Story) -> Iterator[str]:
    """Acknowledgements come for 0, 1, 2, ... without a gap."""
    for ledger, acks in story.acked.items():
        for number, ack in enumerate(acks):
            if ack.entry != number:
                yield f"ledger {ledger}: acknowledgement number {number} is {ack}"
                break


def i8_fence_monotone(story: Story) -> Iterator[str]:
    """Behind a durable fence no ordinary add succeeds, and only recovery stores anything.

    Damaged media may lose the fence of a ledger that is closed or deleted: nobody needs it there.
    """
    recovered: dict[tuple[str, int], list[h.AddArrived]] = {}
    for event in story.history.events:
        match event:
            case h.AddArrived() if event.is_recovery:
                recovered.setdefault((event.bookie, event.ledger), []).append(event)
            case h.AddReplied() | h.Durable() if _may_lose_fence(story, event):
                continue
            case h.AddReplied(status=Status.OK, is_recovery=False):
                fence = story.takes_no_adds_since(event.bookie, event.ledger)
                held = story.durable(event.bookie, event.ledger, event.index)
                for entry in (event.first, event.last):  # of a stripe those between are others'
                    if fence is not None and held.get(entry, fence) > fence:
                        yield f"{event} although fenced, entry {entry}"
            case h.Durable():
                fence = story.takes_no_adds_since(event.bookie, event.ledger)
                arrived = recovered.get((event.bookie, event.ledger), [])
                is_written_back = any(add.first <= event.entry <= add.last for add in arrived)
                if fence is not None and fence < event.index and not is_written_back:
                    yield f"{event} although fenced, and nobody recovered it"
            case _:
                pass


def _may_lose_fence(story: Story, event: h.AddReplied | h.Durable) -> bool:
    end = story.end(event.ledger)
    over = min(end.index if end else NEVER, story.deleted.get(event.ledger, NEVER))
    return story.damaged.get(event.bookie, NEVER) < event.index and over < event.index


def i9_fence_before_reply(story: Story) -> Iterator[str]:
    """A fencing request is answered, positively or not, only behind a durable fence, or where the end
    of a limbo has closed the ledger to adds."""
    answers = (Status.OK, Status.NO_ENTRY, Status.NO_LEDGER, Status.NOT_REACHED)
    for event in story.history.events:
        if isinstance(event, h.ReadReplied):
            is_answer = bool(event.found) or any(s in answers for _, _, s in event.missing)
        elif isinstance(event, h.LacReplied):
            is_answer = event.status in answers
        else:
            continue
        fence = story.takes_no_adds_since(event.bookie, event.ledger)
        if event.is_fencing and is_answer and (fence is None or fence > event.index):
            yield f"{event} before the fence was durable"


def i10_coverage_before_read(story: Story) -> Iterator[str]:
    """Recovery reads begin when no ack quorum is left unfenced."""
    fenced: dict[tuple[str, int], list[str]] = {}
    for event in story.history.events:
        match event:
            case h.RecoveryBegun():
                fenced[event.client, event.ledger] = []
            case h.LacReceived(is_fencing=True):
                if event.status is Status.OK or event.status in DENIALS:
                    fenced.setdefault((event.client, event.ledger), []).append(event.bookie)
            case h.FencingReadSent():
                metadata = story.in_recovery(event.ledger, event.index)
                if metadata is None:
                    yield f"{event} before the ledger is in recovery"
                    continue
                who = fenced.get((event.client, event.ledger), [])
                if not no_ack_quorum_without(metadata, who):
                    yield f"{event} with only {who} of {metadata.last_fragment} fenced"
            case _:
                pass


def i11_negative_needs_quorum(story: Story) -> Iterator[str]:
    """A recovery ends a ledger only before an entry that a coverage of its write set denied."""
    for before, commit in story.changes():
        if before.state is not LedgerState.IN_RECOVERY or not commit.metadata.is_closed:
            continue
        first_denied = commit.metadata.last_entry + 1
        begun = max(
            (
                event.index
                for event in story.history.of(h.RecoveryBegun)
                if (event.client, event.ledger) == (commit.client, commit.ledger)
                and event.index < commit.index
            ),
            default=0,
        )
        deniers = [
            event.bookie
            for event in story.history.of(h.ReadReceived)
            if begun <= event.index < commit.index
            and (event.client, event.ledger) == (commit.client, commit.ledger)
            and _denies(event.missing, first_denied)
        ]
        count = sum(bookie in deniers for bookie in write_set(before, first_denied))
        if count < before.write_quorum - before.ack_quorum + 1:
            yield f"{commit}: only {count} bookies denied entry {first_denied}"


def _denies(missing: tuple[tuple[int, int, Status], ...], entry: int) -> bool:
    return any(first <= entry <= last and status in DENIALS for first, last, status in missing)


def i13_unknown_aborts(story: Story) -> Iterator[str]:
    """A recovery that could not decide has not closed the ledger."""
    begun: dict[tuple[str, int], int] = {}
    for event in story.history.events:
        if isinstance(event, h.RecoveryBegun):
            begun[event.client, event.ledger] = event.index
        elif isinstance(event, h.RecoveryEnded) and event.error == "LedgerRecoveryError":
            end = story.end(event.ledger)
            since = begun.get((event.client, event.ledger), 0)
            if end is not None and end.client == event.client and since < end.index < event.index:
                yield f"{event} although {end}"


def i14_recovery_leaves_fragments(story: Story) -> Iterator[str]:
    """Until a recovery closes the ledger it reads the fragments it found."""
    for before, commit in story.changes():
        is_running = commit.metadata.state is LedgerState.IN_RECOVERY
        is_replacement = bool(story.replacements(before, commit))
        if is_running and before.fragments != commit.metadata.fragments and not is_replacement:
            yield f"{commit} changed {before.fragments}"


def i15_fragments_immutable(story: Story) -> Iterator[str]:
    """Only the last fragment changes; a writer's new one begins behind its LAC.

    A recovery that had to replace bookies commits that with the close, perhaps as several. Whoever makes
    copies again changes places of complete fragments, and nothing else (I22).
    """
    for before, commit in story.changes():
        old, new = before.fragments, commit.metadata.fragments
        if old == new or story.replacements(before, commit):
            continue
        begins_at = new[-1].first_entry
        if len(new) < len(old) or new[: len(old) - 1] != old[:-1]:
            yield f"{commit} changed more than the last of {old}"
        elif before.state is LedgerState.IN_RECOVERY:
            continue
        elif len(new) > len(old) + 1:
            yield f"{commit} began more than one; {old}"
        elif len(new) > len(old) and new[len(old) - 1] != old[-1]:
            yield f"{commit} changed a fragment and began another; {old}"
        elif begins_at < old[-1].first_entry:
            yield f"{commit} begins before {old[-1]}"
        elif commit.metadata.state is LedgerState.OPEN:
            acked = story.acked_before(commit.ledger, commit.index)
            if begins_at != acked:
                yield f"{commit} begins at {begins_at}, {acked} entries were acknowledged"


def i16_ensemble_valid(story: Story) -> Iterator[str]:
    """E distinct bookies, E >= WQ >= AQ >= 1, in every version of every ledger."""
    for versions in story.versions.values():
        for commit in versions:
            metadata = commit.metadata
            sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum, 1)
            ensembles = [fragment.ensemble for fragment in metadata.fragments]
            if any(len(set(e)) != metadata.ensemble_size or len(e) != sizes[0] for e in ensembles):
                yield f"{commit} has an impossible ensemble"
            if list(sizes) != sorted(sizes, reverse=True):
                yield f"{commit} has impossible quorums"


def i17_no_ack_ahead_of_metadata(story: Story) -> Iterator[str]:
    """An entry is acknowledged once an ack quorum of its committed write set has synced it."""
    for ledger, acks in story.acked.items():
        for ack in acks:
            metadata = story.metadata(ledger, ack.index)
            if metadata is None:
                continue
            copies = story.copies(metadata, ledger, ack.entry, ack.index)
            if copies < metadata.ack_quorum:
                yield f"{ack} with {copies} copies in {metadata.fragment_of(ack.entry)}"


def i18_compare_and_set(story: Story) -> Iterator[str]:
    """Versions count up by one, and each has a writer token of its own."""
    for ledger, versions in story.versions.items():
        tokens = [commit.metadata.writer_token for commit in versions]
        if len(set(tokens)) != len(tokens):
            yield f"ledger {ledger}: a writer token stands in two versions"
        for number, commit in enumerate(versions):
            if commit.version != number:
                yield f"{commit} is version number {number}"


def i19_state_machine(story: Story) -> Iterator[str]:
    """OPEN, perhaps IN_RECOVERY, CLOSED; nothing changes a closed ledger but deletion, and copies made again."""
    legal = {
        LedgerState.OPEN: tuple(LedgerState),
        LedgerState.IN_RECOVERY: (LedgerState.IN_RECOVERY, LedgerState.CLOSED),
        LedgerState.CLOSED: (),
    }
    for before, commit in story.changes():
        is_legal = commit.metadata.state in legal[before.state]
        # A bookie that is about to drop its copy changes the token, so that nobody names it meanwhile.
        new = commit.metadata
        marked = replace(before, writer_token=new.writer_token, created_ms=new.created_ms)
        is_renewal = marked == new
        if not (is_legal or is_renewal) and not story.replacements(before, commit):
            yield f"{commit} after {before.state.name}"
        if story.deleted.get(commit.ledger, commit.index) < commit.index:
            yield f"{commit} after the ledger was deleted"


def i20_writer_stops(story: Story) -> Iterator[str]:
    """After its end a writer acknowledges nothing."""
    for event in story.history.of(h.WriterEnded):
        for ack in story.acked.get(event.ledger, []):
            if ack.index > event.index and ack.client == event.client:
                yield f"{ack} after {event}"


def i21_recovery_copies_bytes(story: Story) -> Iterator[str]:
    """All replicas of an entry are one record, LAC included, whoever wrote them."""
    for event in story.history.of(h.Durable):
        if event.crc != story.crcs[event.ledger, event.entry]:
            yield f"{event} differs from what was stored first"


def i22_replication_safe(story: Story) -> Iterator[str]:
    """A bookie is named in the place of another once it has stored all that it is named for."""
    for before, commit in story.changes():
        for bookie, entries in story.replacements(before, commit):
            for entry in entries:
                if bookie not in write_set(commit.metadata, entry):
                    continue
                if not story.is_durable(bookie, commit.ledger, entry, commit.index):
                    yield f"{commit} names {bookie}, which has not stored entry {entry}"
                    break


def i24_fenced_means_fence(story: Story) -> Iterator[str]:
    """FENCED and DELETED end a writer, so they are said only where a recovery may have asked for a
    fence, and where the bookie deletes the ledger."""
    taken_over: set[int] = set()
    for event in story.history.events:
        match event:
            case h.Committed() if event.metadata.state is not LedgerState.OPEN:
                taken_over.add(event.ledger)
            case h.AddReplied(status=Status.FENCED) if event.ledger not in taken_over:
                yield f"{event}, and nobody has begun to recover it"
            case h.AddReplied(status=Status.DELETED):
                if not story.is_deleting(event.bookie, event.ledger, event.index):
                    yield f"{event}, and the bookie has not deleted it"
            case _:
                pass


PROTOCOL_CHECKERS: tuple[Checker, ...] = (
    i1_no_truncation, i2_acked_readable, i3_committed_at_ack_quorum, i6_ack_order,
    i8_fence_monotone, i9_fence_before_reply, i10_coverage_before_read, i11_negative_needs_quorum,
    i13_unknown_aborts, i14_recovery_leaves_fragments, i15_fragments_immutable, i16_ensemble_valid,
    i17_no_ack_ahead_of_metadata, i18_compare_and_set, i19_state_machine, i20_writer_stops,
    i21_recovery_copies_bytes, i22_replication_safe, i24_fenced_means_fence,
)  # fmt: skip
CHECKERS: tuple[Checker, ...] = (
    *PROTOCOL_CHECKERS,
    *READER_CHECKERS,
    *STORAGE_CHECKERS,
    *SPACE_CHECKERS,
    *COLLECTION_CHECKERS,
)


def violations_of(history: h.History) -> list[str]:
    """What every checker has to say, the first finding of each."""
    story = Story(history)
    found: list[str] = []
    for checker in CHECKERS:
        for finding in checker(story):
            found.append(f"{checker.__name__}: {finding}")
            break
    return found
