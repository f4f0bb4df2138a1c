"""The observer: turns every change of the tree into what it means, from the truth as it stands then.

It sees each change once, right after it, and keeps an index of who names which ledger and chunk, so
that "nothing names it any more" and "it was visible" are facts and no reconstructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper_metadata.store.operations import Node
from spark_bookkeeper.log.cleaning.consumers import consumed_row
from spark_bookkeeper.log.format.epoch import StoredTxn, TokenState, Txn
from spark_bookkeeper.log.format.model import ChunkRef, LedgerRange, LogHead
from spark_bookkeeper.log.format.serde import (
    parse_chunk,
    parse_cursor,
    parse_garbage,
    parse_head,
    parse_schema,
    parse_token,
    parse_txn,
)
from spark_bookkeeper.log.nodes.paths import LogPaths, LogTree, parse_child_name, parse_job_name
from spark_bookkeeper.log.nodes.reads import CursorAt
from spark_bookkeeper.log.settings import RetentionSettings
from tests.simulation.commits.history import (
    Actor,
    Announced,
    ChunkGone,
    CommitSent,
    DeadRead,
    HeadMoved,
    History,
    LedgerGone,
    LedgerMade,
    Part,
    TokenEnded,
    Unnamed,
    Withdrawn,
)
from tests.simulation.commits.tree import PREFIX, ROOT, PastTree


@dataclass(frozen=True, slots=True)
class _Below:
    """What a list of references and ranges names, chunks opened."""

    chunks: frozenset[str]
    ranges: tuple[LedgerRange, ...]
    missing: tuple[str, ...]

    @property
    def ledgers(self) -> set[int]:
        return {item.ledger_id for item in self.ranges}


@dataclass(slots=True)
class _Token:
    state: str
    created_ms: int
    timeout_ms: int
    maker: str
    txns: set[tuple[str, int]]
    """(application, version) its write is for, as far as the tree tells."""


_NOTHING = _Below(frozenset(), (), ())


class Observer:
    """Watches one log, from its creation on."""

    def __init__(self, tree: PastTree, history: History, clock_ms: Callable[[], int]) -> None:
        self._tree = tree
        self.history = history
        self._clock_ms = clock_ms
        self._retention = RetentionSettings()
        self._ledgers: set[int] = set()
        self._child_of: dict[int, int] = {}
        """Ledger -> the epoch whose token names it."""
        self._job_of: dict[int, str] = {}
        """Epoch -> node name of the job it was announced under."""
        self._tokens: dict[int, _Token] = {}
        self._log = LogPaths(ROOT).log(0)
        self._head: LogHead | None = None
        self._below = _NOTHING
        self._garbage: dict[int, tuple[_Below, int]] = {}
        """Epoch -> what it names, and when it was dropped."""

    def watch(self, log: LogTree) -> None:
        """Begin; the log exists and is empty."""
        self._log = log
        node = self._tree.node(log.head)
        assert node is not None
        self._head = parse_head(log.head, node.value)
        self._tree.observe = self._observe
        self._tree.tried = self._tried

    def token_of(self, ledger_id: int) -> str:
        """State of the token a ledger is under; empty if under none."""
        token = self._tokens.get(self._child_of.get(ledger_id, -1))
        return token.state if token is not None else ""

    def token(self, epoch: int) -> str:
        """State of an epoch's token."""
        found = self._tokens.get(epoch)
        return found.state if found is not None else "gone"

    def is_stored(self, txn: Txn | None) -> bool:
        """Whether this is what its application and query committed last."""
        stored = None if txn is None else self._txn(txn.app_id)
        if txn is None or stored is None:
            return False
        return (stored.version, stored.query_id) == (txn.version, txn.query_id)

    def live_siblings(self, epoch: int) -> tuple[int, ...]:
        """Other epochs of the same job, announced and LIVE."""
        return tuple(other for other in self._siblings(epoch) if self.token(other) == "LIVE")

    @property
    def head(self) -> LogHead:
        """As it is."""
        assert self._head is not None
        return self._head

    @property
    def ledgers(self) -> frozenset[int]:
        """Those that exist."""
        return frozenset(self._ledgers)

    @property
    def visible(self) -> set[int]:
        """Ledgers in the log, the open one included."""
        opened = self.head.open_ledger
        return self._below.ledgers | ({opened.ledger_id} if opened is not None else set())

    # -- what processes do and see ---------------------------------------------------------------

    def sent(self, actor: Actor, operation: str, path: str) -> None:
        """A process sends a request."""
        if actor.kind == "commit" and operation == "multi" and path.startswith(self._log.head):
            self.history.record(CommitSent(actor, actor.epoch))

    def on_answer(self, actor: Actor, path: str, value: object) -> None:
        """A process gets an answer."""
        if actor.kind != "commit" or not path.startswith(f"{self._log.tokens}/"):
            return
        if isinstance(value, Node) and parse_token(path, value.value).state is TokenState.DEAD:
            self.history.record(DeadRead(actor, int(path.rpartition("/")[2])))

    # -- changes ---------------------------------------------------------------------------------

    def _observe(self, actor: Actor, paths: Sequence[str]) -> None:
        log = self._log
        before = {
            epoch: token.state for epoch, token in self._tokens.items() if token.state != "gone"
        }
        suspects: set[int] = set()
        for path in paths:
            if path.startswith(f"{log.tokens}/"):
                suspects |= self._token(actor, path.removeprefix(f"{log.tokens}/"), path)
        for path in paths:
            if path.startswith(f"{log.garbage}/"):
                suspects |= self._dropped(path)
        if log.head in paths:
            suspects |= self._moved(actor, before)
        for path in paths:
            if path.startswith(PREFIX):
                self._ledger(actor, int(path.removeprefix(PREFIX)))
            elif path.startswith(f"{log.jobs}/"):
                self._index(actor, path.removeprefix(f"{log.jobs}/"), path)
            elif path.startswith(f"{log.chunks}/"):
                self._chunk(actor, path.rpartition("/")[2], path)
        for ledger_id in suspects & self._ledgers - self._named():
            self.history.record(Unnamed(actor, ledger_id))

    def _named(self) -> set[int]:
        named = {*self._child_of, *self.visible}
        for below, _ in self._garbage.values():
            named |= below.ledgers
        return named

    def _token(self, actor: Actor, name: str, path: str) -> set[int]:
        epoch_name, _, child_name = name.partition("/")
        epoch = int(epoch_name)
        node = self._tree.node(path)
        if child_name:
            child = parse_child_name(child_name)
            if node is not None:
                self._child_of[child.ledger_id] = epoch
                return set()
            self._child_of.pop(child.ledger_id, None)
            return {child.ledger_id}
        known = self._tokens.get(epoch)
        was = known.state if known is not None else ""
        if node is None:
            state = "gone"
        else:
            token = parse_token(path, node.value)
            state = token.state.name
            if known is None or known.state == "gone":
                asked_ms = token.timeout_ms
                timeout_ms = self._retention.job_timeout_ms if asked_ms is None else asked_ms
                known = self._tokens[epoch] = _Token(
                    state, token.created_ms, timeout_ms, actor.name, set()
                )
            if token.txn is not None:
                known.txns.add((token.txn.app_id, token.txn.version))
        assert known is not None
        known.state = state
        if was and state != was:
            self.history.record(
                TokenEnded(actor, epoch, was, state, self._is_due(known), known.maker)
            )
        return set()

    def _is_due(self, token: _Token) -> bool:
        if self._clock_ms() - token.created_ms >= token.timeout_ms:
            return True
        committed = ((self._txn(app_id), version) for app_id, version in token.txns)
        return any(
            stored is not None and stored.version >= version for stored, version in committed
        )

    def _txn(self, app_id: str) -> StoredTxn | None:
        path = self._log.txn(app_id)
        node = self._tree.node(path)
        return None if node is None else parse_txn(path, node.value)

    def _dropped(self, path: str) -> set[int]:
        epoch = int(path.rpartition("/")[2])
        node = self._tree.node(path)
        if node is None:
            gone = self._garbage.pop(epoch, None)
            return gone[0].ledgers if gone is not None else set()
        garbage = parse_garbage(path, node.value)
        self._garbage[epoch] = self._open(garbage.chunks, garbage.ranges), garbage.dropped_ms
        return set()

    def _moved(self, actor: Actor, before: dict[int, str]) -> set[int]:
        path = self._log.head
        node = self._tree.node(path)
        if node is None:
            return set()
        old, old_below = self.head, self._below
        head = self._head = parse_head(path, node.value)
        below = self._below = self._open(head.chunks, head.ranges)
        committed, was = -1, ""
        for epoch, token in self._tokens.items():
            if token.state == TokenState.COMMITTED.name and before.get(epoch) != token.state:
                committed, was = epoch, before.get(epoch, "")
        parts = tuple(
            Part(
                item.ledger_id,
                item.first_row,
                item.rows,
                item.ledger_id in self._ledgers,
                self._columns(item.schema_id),
            )
            for item in below.ranges
        )
        self.history.record(
            HeadMoved(
                actor,
                node.version,
                head.base_row,
                head.next_row,
                parts,
                -1 if head.open_ledger is None else head.open_ledger.ledger_id,
                committed,
                was,
                head.overwritten_row != old.overwritten_row,
                below.missing,
                self._columns(head.schema_id),
                self._held_row(),
            )
        )
        opened = {old.open_ledger.ledger_id} if old.open_ledger is not None else set()
        return old_below.ledgers | opened

    def _held_row(self) -> int:
        names = self._tree.children(self._log.consumers) or []
        paths = [f"{self._log.consumers}/{name}" for name in names]
        nodes = [(path, self._tree.node(path)) for path in paths]
        cursors = [
            CursorAt(parse_cursor(path, node.value), node.version, node.modified_ms)
            for path, node in nodes
            if node is not None
        ]
        row = consumed_row(cursors, self._clock_ms())
        return -1 if row is None else row

    def _columns(self, schema_id: int) -> tuple[str, ...] | None:
        path = self._log.schema(schema_id)
        node = self._tree.node(path)
        return None if node is None else tuple(parse_schema(path, node.value).decode().split(","))

    def _ledger(self, actor: Actor, ledger_id: int) -> None:
        if self._tree.node(f"{PREFIX}{ledger_id}") is not None:
            self._ledgers.add(ledger_id)
            epoch = self._child_of.get(ledger_id, -1)
            token, siblings = self.token_of(ledger_id), self._siblings(epoch)
            self.history.record(LedgerMade(actor, ledger_id, epoch, token, siblings))
            return
        self._ledgers.discard(ledger_id)
        oldest_ms = self._clock_ms() - self._retention.deleted_ledger_retention_ms
        is_kept = any(
            ledger_id in below.ledgers and dropped_ms > oldest_ms
            for below, dropped_ms in self._garbage.values()
        )
        token, is_visible = self.token_of(ledger_id), ledger_id in self.visible
        self.history.record(LedgerGone(actor, ledger_id, token, is_visible, is_kept))

    def _index(self, actor: Actor, name: str, path: str) -> None:
        job, _, epoch_name = name.partition("/")
        if not epoch_name:
            return
        epoch = int(epoch_name)
        if self._tree.node(path) is None:
            self.history.record(Withdrawn(actor, epoch))
            return
        self._job_of[epoch] = job
        txn, token = parse_job_name(job), self._tokens.get(epoch)
        if txn is not None and token is not None:
            token.txns.add((txn.app_id, txn.version))

    def _tried(self, actor: Actor, paths: Sequence[str]) -> None:
        for path in paths:
            job, _, epoch_name = path.removeprefix(f"{self._log.jobs}/").partition("/")
            if path.startswith(f"{self._log.jobs}/") and epoch_name:
                epoch = int(epoch_name)
                self.history.record(Announced(actor, epoch, self._siblings(epoch, job)))

    def _siblings(self, epoch: int, job: str = "") -> tuple[int, ...]:
        """Other epochs announced under the job; by default the one this was announced under."""
        names = self._tree.children(self._log.job(job or self._job_of.get(epoch, ""))) or []
        return tuple(int(name) for name in names if int(name) != epoch)

    def _chunk(self, actor: Actor, name: str, path: str) -> None:
        if self._tree.node(path) is not None:
            return
        is_referenced = name in self._below.chunks or any(
            name in below.chunks for below, _ in self._garbage.values()
        )
        token = self._tokens.get(int(name.partition("-")[0]))
        self.history.record(ChunkGone(actor, name, token.state if token else "", is_referenced))

    def _open(self, refs: Sequence[ChunkRef], ranges: Sequence[LedgerRange]) -> _Below:
        names: set[str] = set()
        missing: list[str] = []
        found: list[LedgerRange] = []

        def descend(refs: Sequence[ChunkRef]) -> None:
            for ref in refs:
                names.add(ref.name)
                path = self._log.chunk(ref.name)
                node = self._tree.node(path)
                if node is None:
                    missing.append(ref.name)
                    continue
                chunk = parse_chunk(path, node.value)
                found.extend(chunk.ranges)
                descend(chunk.chunks)

        descend(refs)
        return _Below(frozenset(names), (*found, *ranges), tuple(missing))

    # -- what is left ----------------------------------------------------------------------------

    def left(self) -> dict[str, tuple[str, ...]]:
        """Everything but the log itself: empty once all is collected."""
        log, tree = self._log, self._tree
        chunks = tree.children(log.chunks) or []
        found = {
            "ledgers": tuple(map(str, sorted(self._ledgers - self.visible))),
            "tokens": tuple(tree.children(log.tokens) or []),
            "jobs": tuple(tree.children(log.jobs) or []),
            "garbage": tuple(tree.children(log.garbage) or []),
            "chunks": tuple(name for name in chunks if name not in self._below.chunks),
        }
        return {what: names for what, names in found.items() if names}
