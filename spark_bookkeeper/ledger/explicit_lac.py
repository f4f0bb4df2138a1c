"""ExplicitLac: sends bookies how far a writer at rest is confirmed, so that tailing readers see its
last entry.

An entry carries the LAC of when it was packaged, so readers learn that entry n is confirmed when
n + 1 arrives. Where no n + 1 follows soon, the LAC is sent by itself: at once by a writer that was at rest
before each of its last entries, since most likely it is again. A writer with entries in
flight is not at rest: an acknowledgement is near, and the entry it makes room for carries more than
we could send now. It is a hint: best effort, never retried, and its outcome is ignored. It goes to the
whole last ensemble, not to the write set alone as Apache's does: a reader of a striped ledger may
be waiting at any of its bookies.
Source: Apache ``ExplicitLacUpdateFlow``.
"""

from __future__ import annotations

import asyncio
import math

from bookie_server.wire.digest import Digest
from bookie_server.wire.record import encode_lac_packet
from bookkeeper_metadata.model import NO_ENTRY_ID
from spark_bookkeeper.ledger.context import LedgerContext

_UNSETTLED_INTERVALS = 10
"""How many intervals to wait while entries are in flight: a bookie that hangs or is being replaced
holds up their acknowledgement for seconds, and readers would not learn what is confirmed."""
_RESTS_EXPECTED = 3
"""After so many rests in a row another one is expected. Of fewer entries a ledger is mostly closed right away,
which tells more than any LAC."""


class ExplicitLac:
    """One per writer; use on its event loop. Nothing is left running once it is stopped."""

    def __init__(
        self, cluster: LedgerContext, ledger_id: int, digest: Digest, master_key: bytes
    ) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._digest = digest
        self._master_key = master_key
        self._interval_s = cluster.settings.explicit_lac_interval_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._last_add_confirmed = NO_ENTRY_ID
        self._known = NO_ENTRY_ID
        """The highest LAC the bookies were sent, in an entry or by itself."""
        self._ensemble: tuple[str, ...] = ()
        self._settled_s = math.inf
        """Since when no entry was in flight, as of the last acknowledgement; infinite: some are."""
        self._has_rested = False
        """Whether there was a rest before the entries in flight, or the next one."""
        self._rests = 0
        """How many of the last acknowledgements were of entries behind a rest."""
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._is_stopped = False

    def on_pushed(self) -> None:
        """Note that an entry is appended: what rest there was is over."""
        # On its way it does not rest, however long that takes.
        if self._settled_s < math.inf:
            self._has_rested = self._loop.time() - self._settled_s >= self._interval_s
            self._settled_s = math.inf

    def on_acknowledged(
        self, last_add_confirmed: int, ensemble: tuple[str, ...], *, is_settled: bool
    ) -> None:
        """Note an acknowledgement: ``ensemble`` is the last one, ``is_settled`` whether no entry is
        in flight any more. Costs next to nothing while there is no rest between them.
        """
        self._last_add_confirmed = last_add_confirmed
        self._ensemble = ensemble
        now_s = self._loop.time()
        self._rests = self._rests + 1 if self._has_rested else 0
        self._has_rested = False
        self._settled_s = now_s if is_settled else math.inf
        if last_add_confirmed <= self._known or self._is_stopped or not self._interval_s:
            return
        if is_settled and self._rests >= _RESTS_EXPECTED:
            self._tell()
            return
        rest_s = self._interval_s if is_settled else self._interval_s * _UNSETTLED_INTERVALS
        self._due_s = now_s + rest_s
        # Only ever set to an earlier time. One that fires too soon finds out by itself, which is
        # cheaper than to move it with each acknowledgement.
        if self._timer is not None and self._timer.when() > self._due_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._due_s, self._on_rest)

    def on_carried(self, last_lac_sent_in_entries: int) -> None:
        """Note the newest LAC any packaged entry carries: it need not be sent by itself."""
        self._known = max(self._known, last_lac_sent_in_entries)

    def stop(self) -> None:
        """Send nothing more. Idempotent."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._sending.values():
            task.cancel()

    def _on_rest(self) -> None:
        self._timer = None
        if self._last_add_confirmed <= self._known:
            return
        if self._loop.time() < self._due_s:  # acknowledged something since: not at rest yet
            self._timer = self._loop.call_at(self._due_s, self._on_rest)
            return
        self._tell()

    def _tell(self) -> None:
        self._known = self._last_add_confirmed
        for bookie_id in self._ensemble:
            if bookie_id not in self._sending:
                sending = self._send(bookie_id)
                self._sending[bookie_id] = self._loop.create_task(sending, name="explicit-lac")

    async def _send(self, bookie_id: str) -> None:
        """Send the newest LAC; send again if a newer one fell due before this bookie answered."""
        client = self._cluster.client(bookie_id)
        sent = NO_ENTRY_ID
        try:
            while sent < self._known and bookie_id in self._ensemble:
                sent = self._known
                packet = encode_lac_packet(self._digest, self._ledger_id, sent)
                await client.write_lac(self._ledger_id, self._master_key, packet)
        finally:
            del self._sending[bookie_id]
