"""One change to a log's head outside Spark: chunks first, then one multi, then nothing is left.

Every attempt draws a token of its own, as a planned write does: its number names the chunks and
the garbage of the attempt, and while it is LIVE no collection takes them. The multi is guarded by
the head's version and takes the token along, so it is applied once or never; deleting the token
afterwards, whatever became of it, ends an attempt whose multi is still on its way. What an attempt
whose reply was lost came to, its caller reads from the head and decides anew.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from bookkeeper_metadata.foundation.backoff import Pause
from bookkeeper_metadata.store.operations import Create, Operation, Put, StoreConflict
from spark_bookkeeper.log.format.epoch import Token, TokenState
from spark_bookkeeper.log.format.serde import encode_garbage, encode_head, encode_token
from spark_bookkeeper.log.nodes.deletes import delete_node
from spark_bookkeeper.log.nodes.paths import LogTree
from spark_bookkeeper.log.nodes.reads import LIVE_TOKEN_VERSION, ChunkMissingError, HeadAt, LogNodes
from spark_bookkeeper.log.rules.chunks import ChunkNames
from spark_bookkeeper.log.rules.transitions import Transition

CHANGE_ATTEMPTS_MAX = 50
"""Attempts, because of concurrent changes or lost replies; about half a minute in all."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class HeadChange:
    """One attempt at one change; ``epoch`` is its token's, ``names`` are for its chunks."""

    def __init__(self, nodes: LogNodes, epoch: int, now_ms: int) -> None:
        self.names = ChunkNames(epoch)
        self.now_ms = now_ms
        self.epoch = epoch
        self._nodes = nodes

    async def write_chunks(self, transition: Transition) -> None:
        """Write the chunks ``transition`` needs; nothing refers to them yet."""
        # One by one: a change makes about one chunk per level. Their names are this attempt's own,
        # so no reply leaves a doubt about one: a lost one only costs the attempt.
        for ref, value in transition.chunks:
            await self._nodes.store.create(self._nodes.tree.chunk(ref.name), value)

    def operations(self, found: HeadAt, transition: Transition) -> list[Operation]:
        """The multi that brings ``transition`` about, once its chunks are written."""
        token = Token(state=TokenState.COMMITTED, created_ms=self.now_ms, changed_ms=self.now_ms)
        return change_operations(self._nodes.tree, self.epoch, found, transition, token)

    async def apply(
        self, found: HeadAt, transition: Transition, checks: Sequence[Operation] = ()
    ) -> None:
        """Bring ``transition`` about, provided that ``checks`` hold.

        Raises:
            StoreConflict: the head changed since, or what is checked; nothing happened.
            MetadataUnavailableError: it may have happened, or may still.
        """
        await self.write_chunks(transition)
        await self._nodes.store.multi([*self.operations(found, transition), *checks])

    async def end(self) -> None:
        """Remove the token: from now on no multi of this attempt can happen that has not."""
        try:
            await delete_node(self._nodes.store, self._nodes.tree.token(self.epoch))
        except MetadataUnavailableError as cause:
            # An error here would hide what became of the change; by age the token goes anyway.
            _log.info("token left to expire. epoch=%d cause=%s", self.epoch, cause)


def change_operations(
    tree: LogTree, epoch: int, found: HeadAt, transition: Transition, token: Token
) -> list[Operation]:
    """What every change of a head is: the new one, the garbage, and the change's LIVE token ended."""
    operations: list[Operation] = [
        Put(tree.head, encode_head(transition.head), found.version),
        # A clean-up that killed the token meanwhile has changed its version, and everything is
        # refused: the ledgers may be deleted already.
        Put(tree.token(epoch), encode_token(token), LIVE_TOKEN_VERSION),
    ]
    if transition.garbage is not None:
        # Not in a request of its own: after a crash between the two neither head nor garbage would
        # name these ledgers, and nothing would ever delete them.
        operations.append(Create(tree.garbage_entry(epoch), encode_garbage(transition.garbage)))
    return operations


async def change_head(
    nodes: LogNodes,
    attempt: Callable[[HeadChange], Awaitable[T]],
    *,
    clock_ms: Callable[[], int],
    pause: Pause,
) -> T:
    """``attempt``, repeated with a token of its own each time it conflicts or loses a reply.

    ``attempt`` has to read the head anew each time: an earlier attempt may have been applied.

    Raises:
        NoSuchLogError: the log is gone or being deleted.
        MetadataConflictError: others won every time; nothing was changed.
        MetadataUnavailableError: the store kept silent; the change may have happened.
    """
    failure: Exception | None = None
    is_unknown = False
    for number in range(CHANGE_ATTEMPTS_MAX):
        if number:
            await pause(number)
        try:
            now_ms = clock_ms()
            epoch = await nodes.draw_epoch(Token(created_ms=now_ms))
        except MetadataUnavailableError as lost:
            # At most a token came about. Without its number nobody can commit under it.
            failure = lost
            continue
        change = HeadChange(nodes, epoch, now_ms)
        try:
            # The attempt has to see what an earlier one did whose reply was lost.
            await nodes.sync()
            return await attempt(change)
        except (StoreConflict, ChunkMissingError) as refused:
            failure = refused
        except MetadataUnavailableError as lost:
            failure = lost
            is_unknown = True
        finally:
            # Before the next attempt reads the head, so that this one's multi, perhaps still on its
            # way, does not come in between. Where that fails, both are still guarded by the head's
            # version.
            await change.end()
    if is_unknown or isinstance(failure, MetadataUnavailableError):
        raise MetadataUnavailableError(
            nodes.store.service, f"change of log {nodes.log} got no reply"
        ) from failure
    raise MetadataConflictError(
        f"log {nodes.log}", f"other writers won {CHANGE_ATTEMPTS_MAX} times"
    ) from failure
