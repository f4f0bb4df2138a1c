"""The writer of one ledger as a state machine: quorums, acknowledgement, ensemble changes, the end.

Entries are numbered as they are appended and cut into runs (:mod:`.runs`). A run is complete when
every one of its entries is stored by AQ of its write set. Runs are acknowledged strictly in entry
order: only the head of the queue, only when complete, and never while an ensemble change is
undecided.

**Ensemble change.** When a bookie fails (it does not answer, its disk broke, it is read-only):

1. stop acknowledging (:meth:`WriterState._change`): whatever is acknowledged from here on must be
   readable by the metadata, which does not name its bookies yet;
2. the driver replaces the bookie from the LAC + 1 on by compare-and-set
   (:mod:`spark_bookkeeper.ledger.ensemble_change`); new runs go on to the bookies that work;
3. un-acknowledge the replaced positions of *all* runs (:meth:`WriterState._adopt`), and only then
4. send them the same bytes again;
5. more failures meanwhile: begin again at 1, else acknowledge what is complete.

A bookie that cannot be replaced is left out while every entry still reaches AQ without it, and its
replacement tried again later (``retry_change``); when entries cannot reach AQ the writer ends with
NotEnoughBookies, or waits for bookies if it may: then entries queue up, and nothing new is acknowledged. One that answered LIMBO will refuse this ledger for good, so it is not chosen for it
again. FENCED, DELETED or UNAUTHORIZED from any bookie ends it at once: another client decides about
this ledger now. Nothing is ever acknowledged after an end.

Because every event is applied whole and effects run afterwards, the pump cannot run inside the
un-acknowledge loop (Apache #3005, #3041); because each change is adopted by itself, two that cancel
out still resend (Apache #4459). Source: Apache ``LedgerHandle``, ``PendingAddOp``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from bookie_server.wire.add_frames import encode_section_header
from bookie_server.wire.digest import Digest
from bookie_server.wire.frame_limits import FrameLimits
from bookie_server.wire.messages import Status
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import NO_ENTRY_ID, LedgerMetadata
from spark_bookkeeper.ledger.errors import (
    LedgerDeletedError,
    LedgerFencedError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    Effect,
    FailPending,
    Release,
    SendSection,
)
from spark_bookkeeper.ledger.protocol.membership import Membership
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.runs import PendingRun, RunCutter


class WriterState:
    """All methods are events, applied whole; they return what to do next, in order."""

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest: Digest,
        master_key: bytes,
        limits: FrameLimits,
        *,
        held: Collection[str] = (),
        may_wait: bool = False,
    ) -> None:
        """``held`` are members that are away from the start: failed ones, of which nobody is suspected.

        ``may_wait``: whoever drives this ends a writer whose :attr:`shortage` lasts too long.
        """
        self._may_wait = may_wait
        self.ledger_id = ledger_id
        self.quorum = QuorumConfig.of(metadata)
        self._members = Membership(self.quorum, metadata.last_fragment.ensemble, held)
        self.last_add_pushed = NO_ENTRY_ID
        self.last_add_confirmed = NO_ENTRY_ID
        self.last_confirmed_sent = NO_ENTRY_ID
        """The highest LAC an entry carried to the bookies."""
        self.length = 0
        """Payload bytes of all acknowledged entries."""
        self.error: BookKeeperError | None = None
        """Why this writer ended; set once."""
        header = encode_section_header(ledger_id, master_key, metadata.digest_type)
        self._cutter = RunCutter(
            ledger_id, self.quorum, digest, section_header=header, limits=limits
        )
        self._runs: deque[PendingRun] = deque()
        """Runs with an answer outstanding or not yet acknowledged, oldest first."""
        self._unacknowledged_runs = 0
        self._is_sealed = False
        invariant(
            self._members.can_go_on(), "a ledger is created where its entries can be acknowledged"
        )

    # -- events -------------------------------------------------------------------------------

    def append(self, payloads: list[bytes]) -> list[Effect]:
        """Number these payloads and queue them; they become entries ``last_add_pushed + 1`` on."""
        invariant(self.error is None and not self._is_sealed, "a writer that ends takes no entries")
        self.last_add_pushed += len(payloads)
        self._cutter.push(payloads)
        return self._cut_runs()

    def on_section_answer(
        self, position: int, ensemble_number: int, first_entry: int, status: Status
    ) -> list[Effect]:
        """A bookie answered for its part of the run that starts at ``first_entry``.

        Answers of bookies replaced since, and for runs no longer waited for, change nothing.
        """
        # Late answers are normal: the writer ended, or the position was replaced meanwhile.
        run = self._run_at(first_entry)
        if run is None or position not in run.waiting:
            return []
        if self._members.is_stale(position, ensemble_number):
            return []
        # Whatever it said, it has said it: the payloads need not be kept for this bookie.
        run.waiting.discard(position)
        effects: list[Effect] = []
        if status is Status.OK:
            run.stored.add(position)
        # A failure after the end changes nothing: the writer asks for no replacement any more.
        elif self.error is None:
            effects += self._on_bookie_failed(position, status)
        return effects + self._advance()

    def on_ensemble_changed(
        self, ensemble: tuple[str, ...], replaced: Collection[int]
    ) -> list[Effect]:
        """The change asked for is in the metadata; ``replaced`` positions have new bookies there.

        None replaced: nothing was changed, because no other bookie was available.
        """
        was_asked_for, tried = self.is_changing, self._members.end_change()
        if self.error is not None:
            return []
        invariant(was_asked_for, "only a change that was asked for comes about")
        effects = self._adopt(ensemble, replaced)
        # A bookie failed while the change was under way, so the new ensemble names a dead one
        # already. Acknowledging before it is replaced would break step 1 again.
        if self._members.failed.keys() - tried:
            return effects + self._change()
        # There was no bookie to take over. That is the end only if some entry now lacks its ack
        # quorum; with AQ < WQ a ledger can live on short of a member.
        if not self._may_wait and (shortage := self.shortage) is not None:
            return effects + self.end(shortage)
        return effects + self._advance()

    def retry_change(self) -> list[Effect]:
        """Ask again for replacements that could not be had before: a bookie may be available now."""
        if self.error is not None or self.is_changing or not self._members.failed:
            return []
        return [] if self._is_sealed and self.is_settled else self._change()

    def seal(self) -> None:
        """No more appends will come: the ledger is about to be closed."""
        self._is_sealed = True

    def end(self, error: BookKeeperError) -> list[Effect]:
        """Stop for good: nothing that is not acknowledged yet will be."""
        # The first reason stands: a fence followed by a lost connection was a fence.
        if self.error is not None:
            return []
        self.error = error
        # Answers that are still to come find no run and are dropped by on_section_answer, so
        # nothing can be acknowledged after this line.
        released = self._cutter.clear() + sum(run.size_bytes for run in self._runs)
        self._runs.clear()
        return [FailPending(error), Release(released)]

    # -- what is known ---------------------------------------------------------------------------

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The one in force."""
        return self._members.ensemble

    @property
    def is_settled(self) -> bool:
        """Whether every appended entry is acknowledged."""
        return self.last_add_confirmed == self.last_add_pushed

    @property
    def is_changing(self) -> bool:
        """Whether an ensemble change is under way."""
        return self._members.changing is not None

    @property
    def failed_bookies(self) -> dict[int, str]:
        """By position: members of the ensemble that nothing is sent to any more."""
        return self._members.failed_bookies

    @property
    def excluded_bookies(self) -> frozenset[str]:
        """Those that must not replace any: they have lost records of this ledger."""
        return frozenset(self._members.excluded)

    @property
    def shortage(self) -> NotEnoughBookiesError | None:
        """Why some entry cannot be acknowledged by the bookies that are left; ``None``: each can."""
        return None if self._members.can_go_on() else self.lack_of_bookies

    @property
    def lack_of_bookies(self) -> NotEnoughBookiesError:
        """What a writer ends with that gives up to look for bookies."""
        members = self._members
        failed = ",".join(
            f"{members.ensemble[position]}:{status.name}"
            for position, status in members.failed.items()
        )
        return NotEnoughBookiesError(
            self.quorum.ack_quorum,
            members.usable_bookies,
            detail=f"ledger {self.ledger_id} ends at entry {self.last_add_confirmed}; failed {failed}",
        )

    # -- sending ------------------------------------------------------------------------------------

    def note_promptness(self, is_prompt: bool) -> None:
        """Say whether runs are acknowledged soon after they were sent; at first they are taken for late."""
        self._cutter.is_prompt = is_prompt

    def _cut_runs(self) -> list[Effect]:
        effects: list[Effect] = []
        while run := self._cutter.cut(self._unacknowledged_runs, self.last_add_confirmed):
            self._runs.append(run)
            self._unacknowledged_runs += 1
            # Runs are cut in order and carry a LAC that never falls, so the newest is the highest.
            self.last_confirmed_sent = run.last_add_confirmed
            effects += [
                self._send(run, position)
                for position in run.sections
                if self._members.is_usable(position)
            ]
        return effects

    def _send(self, run: PendingRun, position: int) -> SendSection:
        run.waiting.add(position)
        return SendSection(
            position,
            self._members.ensemble[position],
            self._members.number,
            run.first_entry,
            run.sections[position],
        )

    # -- a bookie failed ---------------------------------------------------------------------------

    def _on_bookie_failed(self, position: int, status: Status) -> list[Effect]:
        # One bookie is enough. A recovery may have fenced this one and be on its way to the others;
        # going on without it would acknowledge what the recovery does not see.
        if status is Status.FENCED:
            return self.end(LedgerFencedError(self.ledger_id))
        if status is Status.DELETED:
            return self.end(LedgerDeletedError(self.ledger_id))
        if status is Status.UNAUTHORIZED:
            return self.end(UnauthorizedError(self.ledger_id))
        if status is Status.LIMBO:
            self._on_records_lost(position)
        # Every section in flight to a dead bookie fails; the change was asked for by the first.
        if not self._members.is_usable(position):
            return []
        self._members.fail(position, status)
        # A change under way takes the newcomer up when it is adopted. A ledger with nothing left to
        # acknowledge needs no replacement: it is about to be closed where it stands.
        if self.is_changing or (self._is_sealed and self.is_settled):
            return []
        return self._change()

    def _on_records_lost(self, position: int) -> None:
        """The bookie there may have lost what it stored: it is no candidate for this ledger any more."""
        self._members.exclude(position)
        for run in self._runs:
            # Acknowledged ones have had their quorum; a loss behind that is one of those it bears.
            if not run.is_acknowledged:
                run.stored.discard(position)

    def _change(self) -> list[Effect]:
        """Stop acknowledging and ask for replacements."""
        return [self._members.change(self.last_add_confirmed + 1)]

    def _adopt(self, ensemble: tuple[str, ...], replaced: Collection[int]) -> list[Effect]:
        """Un-acknowledge the replaced positions of all runs, then send them the same bytes."""
        self._members.adopt(ensemble, replaced)
        for run in self._runs:
            # Entries up to the LAC stay with the fragment they were acknowledged in.
            run.waiting.difference_update(replaced)
            if not run.is_acknowledged:
                # The replacement holds nothing yet. Counting what its predecessor stored would
                # acknowledge entries that fewer than AQ members of the new fragment have.
                run.stored.difference_update(replaced)
        return [
            self._send(run, position)
            for run in self._runs
            if not run.is_acknowledged
            for position in replaced
            if position in run.sections
        ]

    # -- acknowledging ------------------------------------------------------------------------------

    def _advance(self) -> list[Effect]:
        """Acknowledge complete runs, forget those every bookie answered for, send what is due."""
        effects = self._acknowledge() if self._may_acknowledge() else []
        effects += self._retire()
        if self.error is None:
            effects += self._cut_runs()
        return effects

    def _may_acknowledge(self) -> bool:
        """False while a change is under way: the metadata may soon name other bookies than those that
        answered."""
        return self.error is None and not self.is_changing

    def _acknowledge(self) -> list[Effect]:
        confirmed = self.last_add_confirmed
        for run in self._runs:
            if run.is_acknowledged:
                continue
            # Stop at the first gap even if later runs are complete: the LAC says "everything up to
            # here", and recovery starts behind it.
            if not self._is_complete(run):
                break
            invariant(run.first_entry == confirmed + 1, "runs are acknowledged in entry order")
            run.is_acknowledged = True
            self._unacknowledged_runs -= 1
            confirmed, self.length = run.last_entry, run.length
        if confirmed == self.last_add_confirmed:
            return []
        self.last_add_confirmed = confirmed
        return [Acknowledge(confirmed)]

    def _is_complete(self, run: PendingRun) -> bool:
        # Every position stores the whole run, so one count serves all of its entries.
        if not self.quorum.is_striped:
            return len(run.stored) >= self.quorum.ack_quorum
        return self.quorum.can_acknowledge(run.stored, run.first_entry, run.last_entry)

    def _retire(self) -> list[Effect]:
        """Forget acknowledged runs that every bookie answered for, oldest first."""
        released = 0
        # An acknowledged run counts against the writer's memory until the slowest bookie has it:
        # that is what keeps a fast writer from running away from a slow third bookie.
        while self._runs and self._runs[0].is_acknowledged and not self._runs[0].waiting:
            released += self._runs.popleft().size_bytes
        return [Release(released)] if released else []

    def _run_at(self, first_entry: int) -> PendingRun | None:
        for run in self._runs:
            if run.first_entry == first_entry:
                return run
        return None
