"""Takes a log apart whose head says DELETING, from any point a crash or another deleter left it.

The order makes every step repeatable. First the tokens, with all ledgers under them: each is ended
before it is touched, and when their folder is gone no plan can draw another. Then the ledgers that
ranges and garbage name; the head says DELETING, so no commit adds any. Only when all those are gone
do chunks, garbage and the rest go, and last the head: a chunk found missing therefore means that
some deleter was through with all ledgers.
"""

from __future__ import annotations

from contextlib import suppress

from bookkeeper_metadata.errors import MetadataConflictError
from bookkeeper_metadata.foundation.invariant import invariant
from spark_bookkeeper.log.cleaning.sweep import Sweeper, SweepReport
from spark_bookkeeper.log.format.model import Garbage, LogHead, LogState
from spark_bookkeeper.log.nodes.deletes import delete_node, delete_nodes
from spark_bookkeeper.log.nodes.reads import ChunkMissingError, LogNodes

TOKEN_ROUNDS_MAX = 100
"""Rounds of deleting tokens while new plans keep creating some."""


class LogDeletion:
    """Deletes logs with the ledger actions of a sweeper."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper

    async def finish(self, nodes: LogNodes) -> SweepReport:
        """Delete everything of a log that is under deletion.

        Raises:
            BookKeeperError: the store or bookies failed; run it again later.
            MetadataConflictError: ledgers could not be deleted now, or plans went on and on.
        """
        found = await nodes.head_or_none()
        report = SweepReport()
        # The head goes last: without one, a deleter was through with all ledgers.
        if found is not None:
            invariant(found.head.state is LogState.DELETING, "only a log given up is taken apart")
            await self._remove_tokens(nodes, report)
            await self._remove_ledgers(nodes, found.head, report)
            if found.head.open_ledger is not None:
                opened = found.head.open_ledger.ledger_id
                # Its writer may be at it still, and must not go on adding to a ledger that is gone.
                await self._sweeper.remove_ledger(opened, report, is_fenced_first=True)
            for epoch in await nodes.garbage_epochs():
                garbage = await nodes.garbage(epoch)
                if garbage is not None:
                    await self._remove_ledgers(nodes, garbage, report)
            self._require_all_gone(nodes, report)
        for folder in nodes.tree.folders:
            await self._remove_below(nodes, folder)
        await delete_node(nodes.store, nodes.tree.head)
        await delete_node(nodes.store, nodes.tree.root)
        return report

    async def _remove_tokens(self, nodes: LogNodes, report: SweepReport) -> None:
        for _ in range(TOKEN_ROUNDS_MAX):
            for epoch in await nodes.epochs():
                await nodes.kill(epoch, self._sweeper.site.clock_ms())
                children = await nodes.token_children(epoch)
                await self._sweeper.remove_children(nodes, epoch, children, set(children), report)
                if await delete_node(nodes.store, nodes.tree.token(epoch)):
                    report.tokens_removed.append(epoch)
            # A ledger that stays keeps its child and so its token: no further round could end.
            self._require_all_gone(nodes, report)
            # Refused when a plan drew a token since they were listed: then another round.
            if await delete_node(nodes.store, nodes.tree.tokens):
                return
        raise MetadataConflictError(f"log {nodes.log}", "writes go on being planned")

    async def _remove_ledgers(
        self, nodes: LogNodes, of: LogHead | Garbage, report: SweepReport
    ) -> None:
        # Chunks go after all ledgers: if one is missing, another deleter was through with them.
        with suppress(ChunkMissingError):
            await self._sweeper.remove_ledgers(await nodes.ledger_ids(of), report)

    def _require_all_gone(self, nodes: LogNodes, report: SweepReport) -> None:
        if report.ledgers_left:
            raise MetadataConflictError(
                f"log {nodes.log}",
                f"{len(report.ledgers_left)} ledgers could not be deleted yet; its name is free "
                "and the rest is deleted by `bookkeeper logs gc`",
            )

    async def _remove_below(self, nodes: LogNodes, path: str) -> None:
        """Delete a folder and what is in it, children first."""
        names = await nodes.store.children(path) or []
        if path == nodes.tree.jobs:  # the one folder whose nodes have children themselves
            for name in names:
                await self._remove_below(nodes, f"{path}/{name}")
        else:
            await delete_nodes(nodes.store, [f"{path}/{name}" for name in names])
        await delete_node(nodes.store, path)
