"""WriteHandle: drives the writer's state machine - sends sections, completes appends, closes.

One event loop owns everything here. Appends queue in entry order; an acknowledgement completes all
of them up to an entry at once. The handle never decides anything about quorums: it feeds events to
:class:`~spark_bookkeeper.ledger.protocol.writer_state.WriterState` and does what that returns.

A writer that cannot go on for want of bookies, time or metadata closes its ledger by itself, at the
last entry it acknowledged. One that was fenced does not: the recovering client decides about the ledger's end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from bookie_server.client.settings import PROMPT_S
from bookie_server.wire.digest import digest_for, master_key
from bookie_server.wire.limits import ENTRY_SIZE_MAX
from bookie_server.wire.messages import Status
from bookie_server.wire.record import HEADER_SIZE
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.closing import AsyncClosing
from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from bookkeeper_metadata.foundation.tasks import has_failed
from bookkeeper_metadata.model import LedgerMetadata, Stop, Versioned
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.ensemble_change import EnsembleChanger
from spark_bookkeeper.ledger.errors import (
    AddQuorumTimeoutError,
    EntryTooLargeError,
    LedgerClosedError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.explicit_lac import ExplicitLac
from spark_bookkeeper.ledger.measures import AddMeter, SampledTime
from spark_bookkeeper.ledger.pending_adds import (
    AppendCallback,
    PendingAdds,
    QuorumDeadline,
    ShortageDeadline,
    TrialLimit,
    completion_of,
)
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    ChangeEnsemble,
    Effect,
    FailPending,
    Release,
    SendSection,
)
from spark_bookkeeper.ledger.protocol.placement import Replacement
from spark_bookkeeper.ledger.protocol.replication import held_members
from spark_bookkeeper.ledger.protocol.transitions import closed_by_writer
from spark_bookkeeper.ledger.protocol.writer_state import WriterState

_LOGGER = logging.getLogger(__name__)
_CLOSES_BY_ITSELF = (NotEnoughBookiesError, AddQuorumTimeoutError, MetadataUnavailableError)
"""Errors after which no other client is known to decide about the ledger."""


class WriteHandle(AsyncClosing):
    """The single writer of one ledger; use within one event loop."""

    def __init__(
        self,
        cluster: LedgerContext,
        ledger_id: int,
        created: Versioned,
        *,
        held: frozenset[str] = frozenset(),
    ) -> None:
        """``held`` are members of the first ensemble that are away; they are taken in when they are back."""
        self.ledger_id = ledger_id
        self._cluster = cluster
        self._versioned = created
        metadata = created.metadata
        digest = digest_for(metadata.digest_type, metadata.password)
        self.payload_size_max = ENTRY_SIZE_MAX - HEADER_SIZE - digest.size
        connection = cluster.settings.connection
        limits = connection.frame_limits
        key, wait_ms = master_key(metadata.password), cluster.settings.bookie_wait_timeout_ms
        self._state = WriterState(
            ledger_id, metadata, digest, key, limits, held=held, may_wait=wait_ms > 0
        )
        self._shortage = ShortageDeadline(ledger_id, wait_ms, self._on_waited_in_vain)
        self._trials = TrialLimit(max(wait_ms, 3 * connection.add_timeout_ms))
        self._changer = EnsembleChanger(
            cluster,
            ledger_id,
            on_changed=self._on_ensemble_changed,
            on_failed=self._end,
            on_available=lambda: self._run(self._state.retry_change()),
        )
        self._explicit_lac = ExplicitLac(cluster, ledger_id, digest, key)
        self._pending = PendingAdds()
        self._meter = AddMeter(cluster.measures)
        self._time_of_runs = SampledTime()
        timeout_ms = cluster.settings.add_quorum_timeout_ms
        expired = AddQuorumTimeoutError(ledger_id, timeout_ms)
        self._deadline = QuorumDeadline(timeout_ms, lambda: self._end(expired))
        self._in_flight_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._settled = asyncio.Event()
        self._settled.set()
        self._closing: asyncio.Task[None] | None = None
        self.on_release: Callable[[int], None] | None = None
        """Called with how many payload bytes are no longer held; the synchronous face counts by it."""
        if held:
            away = ",".join(sorted(held))
            _LOGGER.warning("ledger begins without bookies; ledger_id=%d away=%s", ledger_id, away)
            self._look_for_missed()

    # -- what the ledger is -------------------------------------------------------------------

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this handle last wrote or read it."""
        return self._versioned.metadata

    @property
    def last_add_pushed(self) -> int:
        """Highest entry id handed out; -1 before the first."""
        return self._state.last_add_pushed

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry id acknowledged; -1 before the first."""
        return self._state.last_add_confirmed

    @property
    def length(self) -> int:
        """Payload bytes of all acknowledged entries."""
        return self._state.length

    @property
    def bookies_missed(self) -> frozenset[str]:
        """Members that lack entries: away at the creation, or sent nothing any more."""
        return frozenset(self._state.failed_bookies.values()) | {*held_members(self.metadata)}

    # -- appending ------------------------------------------------------------------------------

    async def append(self, payload: bytes) -> int:
        """Append one entry; returns its id when it is acknowledged.

        Raises:
            EntryTooLargeError, LedgerClosedError: it was not appended.
            LedgerFencedError, NotEnoughBookiesError: not acknowledged; recovery decides about it.
        """
        await self._wait_for_room()
        return await self.append_async(payload)

    def append_async(self, payload: bytes) -> asyncio.Future[int]:
        """Append without waiting; the future completes with the entry id, in entry order."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        entry_id = self._state.last_add_pushed + 1
        self.push([payload], completion_of(future, entry_id, entry_id))
        return future

    async def append_many(self, payloads: Sequence[bytes]) -> range:
        """Append all, pipelined; returns their ids when the last one is acknowledged.

        Raises: as :meth:`append`; a prefix may have been acknowledged all the same.
        """
        await self._wait_for_room()
        future: asyncio.Future[range] = asyncio.get_running_loop().create_future()
        # Told in advance, which holds because nothing is awaited from here until push() gives the
        # ids away.
        ids = range(self.last_add_pushed + 1, self.last_add_pushed + 1 + len(payloads))
        if not ids:
            return ids
        self.push(payloads, completion_of(future, ids[-1], ids))
        return await future

    def push(self, payloads: Sequence[bytes], complete: AppendCallback) -> None:
        """Append ``payloads`` and have ``complete`` called until it says it is complete.

        Raises:
            EntryTooLargeError, LedgerClosedError: none of them was appended.
            BookKeeperError: why this writer ended earlier.
        """
        if self._state.error is not None:
            raise self._state.error
        if self._closing is not None:
            raise LedgerClosedError(self.ledger_id)
        for payload in payloads:
            if len(payload) > self.payload_size_max:
                raise EntryTooLargeError(len(payload), self.payload_size_max)
        # Before anything is sent: an acknowledgement must find who waits for it.
        self._pending.push(complete)
        self._in_flight_bytes += sum(map(len, payloads))
        if self._settled.is_set():
            self._settled.clear()
            self._trials.restart()
        if self._is_full():
            self._room.clear()
        self._explicit_lac.on_pushed()
        self._run(self._state.append(list(payloads)))
        self._deadline.on_pushed(self.last_add_pushed)
        self._meter.on_pushed(self.last_add_pushed)

    async def flush(self) -> None:
        """Wait until every entry appended so far is acknowledged.

        Raises:
            BookKeeperError: why some never will be.
        """
        await self._settled.wait()
        if self._state.error is not None:
            raise self._state.error

    # -- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Wait for what is in flight, then close the ledger at its last acknowledged entry.

        Idempotent, and tried again after it failed; appends from now on raise
        ``LedgerClosedError``. A ledger whose writer failed is closed at the last entry it
        acknowledged.

        Raises:
            LedgerFencedError: a recovering client decides about the end of this ledger.
            MetadataConflictError: it was closed elsewhere, at another entry.
        """
        closing = self._closing
        if closing is None or has_failed(closing):
            closing = self._begin_close()
        # Several callers may wait for one close, and one that gives up must not cancel it for the
        # others.
        await asyncio.shield(closing)

    def abandon(self, error: BookKeeperError) -> None:
        """Fail what is not acknowledged, without closing the ledger: its client goes away.

        Nothing happens to a writer that was closed.
        """
        if self._closing is not None and self._closing.done() and not has_failed(self._closing):
            return
        self._changer.cancel()
        self._explicit_lac.stop()
        self._run(self._state.end(error))

    def _begin_close(self) -> asyncio.Task[None]:
        self._state.seal()
        self._closing = asyncio.create_task(self._close(), name=f"close-{self.ledger_id}")
        return self._closing

    async def _close(self) -> None:
        await self._settled.wait()
        # No acknowledged entry depends on an ensemble change that is still under way.
        self._changer.cancel()
        self._shortage.cancel()
        self._explicit_lac.stop()
        # These are final: a writer that is sealed and settled, or has ended, acknowledges nothing
        # more.
        last_entry, length = self.last_add_confirmed, self.length
        ledger_id, ended = self.ledger_id, self._state.error
        # A bookie knows this ledger under another key, so it is not clear whose ledger would be
        # closed.
        if isinstance(ended, UnauthorizedError):
            raise ended

        def close(metadata: LedgerMetadata) -> LedgerMetadata | Stop[BookKeeperError]:
            return closed_by_writer(ledger_id, metadata, last_entry, length, ended)

        self._versioned = await self._cluster.update(ledger_id, close, self._versioned)
        if missed := self.bookies_missed:
            await self._cluster.mark_lacking(ledger_id, missed)

    # -- driving the state machine ----------------------------------------------------------------

    def _run(self, effects: list[Effect]) -> None:
        # Before the effects: an acknowledgement among them sets no timer for a LAC that entries
        # carry already.
        self._explicit_lac.on_carried(self._state.last_confirmed_sent)
        for effect in effects:
            match effect:
                case SendSection():
                    place = effect.position, effect.ensemble_number, effect.run_first_entry
                    done = partial(self._on_answer, *place)
                    self._time_of_runs.begin(effect.section.last_entry)
                    self._cluster.client(effect.bookie_id).write(effect.section, done)
                case ChangeEnsemble():
                    was_last = self._trials.on_failed()
                    if was_last and not self._state.is_settled:
                        asyncio.get_running_loop().call_soon(self._end, self._state.lack_of_bookies)
                    else:
                        self._changer.begin(self._versioned, effect)
                case Acknowledge():
                    self._on_acknowledged(effect.last_entry)
                case FailPending():
                    self._on_failed(effect.error)
                case Release():
                    self._release(effect.size_bytes)
        if self._state.is_settled or self._state.error is not None:
            self._settled.set()

    def _on_answer(
        self, position: int, ensemble_number: int, run_first_entry: int, status: Status
    ) -> None:
        self._run(self._state.on_section_answer(position, ensemble_number, run_first_entry, status))

    def _on_acknowledged(self, last_entry: int) -> None:
        self._deadline.on_acknowledged(last_entry)
        self._trials.restart()
        self._meter.on_acknowledged(last_entry)
        state = self._state
        if (took_s := self._time_of_runs.end(last_entry)) is not None:
            state.note_promptness(took_s <= PROMPT_S)
        if self._shortage.is_running and state.shortage is None:
            self._shortage.cancel()
        self._explicit_lac.on_acknowledged(last_entry, state.ensemble, is_settled=state.is_settled)
        self._pending.on_acknowledged(last_entry)
        # A writer that was full by count has room again now; a release comes only when the slowest
        # bookie has answered too.
        self._make_room()

    def _on_failed(self, error: BookKeeperError) -> None:
        self._changer.cancel()
        self._shortage.cancel()
        self._explicit_lac.stop()
        self._deadline.cancel()
        self._pending.fail(error)
        # Closing the client is what its user did.
        is_wanted = isinstance(error, ClientClosedError)
        self._cluster.measures.ended_writers += not is_wanted
        _LOGGER.log(
            logging.DEBUG if is_wanted else logging.WARNING,
            "writer ended; ledger_id=%d last_add_confirmed=%d error=%s",
            self.ledger_id,
            self.last_add_confirmed,
            error,
        )
        if isinstance(error, _CLOSES_BY_ITSELF) and self._closing is None:
            self._begin_close().add_done_callback(has_failed)  # close() reports it, or tries again

    def _end(self, error: BookKeeperError) -> None:
        self._run(self._state.end(error))

    def _on_ensemble_changed(self, versioned: Versioned, replacement: Replacement) -> None:
        self._versioned = versioned
        self._cluster.measures.ensemble_changes += 1
        self._trials.on_changed(is_replaced=bool(replacement.positions))
        self._run(self._state.on_ensemble_changed(replacement.ensemble, replacement.positions))
        self._look_for_missed()
        self._wait_for_bookies()

    def _wait_for_bookies(self) -> None:
        state = self._state
        if state.error is not None:
            self._shortage.cancel()
        # While a change is under way it may still find enough.
        elif (shortage := state.shortage) is not None and not state.is_changing:
            self._shortage.on_shortage(shortage)
        # Bookies that took over may be as dead as the others: while entries wait, only an
        # acknowledgement shows that there are enough.
        elif shortage is None and state.is_settled:
            self._shortage.cancel()

    def _on_waited_in_vain(self) -> None:
        if (shortage := self._state.shortage) is not None:
            self._end(shortage)

    def _look_for_missed(self) -> None:
        # The writer goes on short of these, and nothing else would ever ask for them again while no
        # further bookie fails.
        if self._state.error is None and (missed := self._state.failed_bookies):
            self._changer.look_for(
                self._state.ensemble,
                missed,
                self._state.excluded_bookies,
                is_needed=self._state.shortage is not None,
            )

    def _release(self, size_bytes: int) -> None:
        self._in_flight_bytes -= size_bytes
        self._make_room()
        if self.on_release is not None:
            self.on_release(size_bytes)

    def _make_room(self) -> None:
        if not self._room.is_set() and not self._is_full():
            self._room.set()

    def _is_full(self) -> bool:
        settings = self._cluster.settings
        return (
            self._in_flight_bytes >= settings.max_in_flight_bytes
            or self.last_add_pushed - self.last_add_confirmed >= settings.max_in_flight_entries
        )

    async def _wait_for_room(self) -> None:
        # One that was woken before us may have filled it again.
        while not self._room.is_set():
            await self._room.wait()
