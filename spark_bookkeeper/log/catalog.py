"""The logs of a cluster by name: create, open, list, read what a log keeps, begin deletion.

Creation is one multi - the name together with everything below the log's id - so a half-created log
never exists, seen or unseen. Deletion begins with one multi that takes the name away and marks the
head; from then on no client opens, reads or commits to the log, and what is left of it is taken apart
by :mod:`spark_bookkeeper.log.cleaning.deletion`, which a crash interrupts but never confuses.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.store.operations import (
    Create,
    Delete,
    NodeExistsError,
    NotEmptyError,
    Operation,
    Put,
    StoreConflict,
)
from spark_bookkeeper.log.cleaning.deletion import LogDeletion
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.errors import LogExistsError, LogRecreatedError, NoSuchLogError
from spark_bookkeeper.log.format.epoch import SCHEMA_BYTES_MAX, StoredTxn
from spark_bookkeeper.log.format.model import KEEP_ALL, LogHead, LogSettings, LogState, Retention
from spark_bookkeeper.log.format.serde import encode_head, encode_name, encode_schema, parse_name
from spark_bookkeeper.log.nodes.deletes import delete_node
from spark_bookkeeper.log.nodes.paths import LOG_ID_MAX, numbers_of
from spark_bookkeeper.log.nodes.reads import READS_MAX, HeadAt, LogNodes
from spark_bookkeeper.log.nodes.site import LogSite
from spark_bookkeeper.log.rules.transitions import deleting, with_retention

CREATE_ATTEMPTS_MAX = 10
"""Tries of a creation or of the start of a deletion against lost replies and races."""
CREATED_HEAD_VERSION = 0
"""Every commit and every writer changes the head, so at this version there has been none."""


class Catalog:
    """Names and logs of one cluster. ``random`` draws log ids; it is not owned."""

    def __init__(self, site: LogSite, *, random: Random, deletion: LogDeletion) -> None:
        self._site = site
        self._store = site.store
        self._paths = site.paths
        self._random = random
        self._deletion = deletion

    async def create(
        self, name: str, settings: LogSettings, schema: bytes, retention: Retention = KEEP_ALL
    ) -> int:
        """Create an empty log with ``schema`` as its schema 0; returns its id.

        Raises:
            LogExistsError: there is one of this name.
            ValueError: the name or the schema's size is not allowed.
            MetadataUnavailableError: unknown whether it was created; open it to find out.
        """
        name_path = self._paths.name(name)
        if len(schema) > SCHEMA_BYTES_MAX:
            raise ValueError(
                f"a schema has at most {SCHEMA_BYTES_MAX} bytes; size_bytes={len(schema)}"
            )
        head = LogHead(name=name, settings=settings)
        if retention != KEEP_ALL:
            head = with_retention(head, retention)
        log_id = self._draw()
        lost: Exception | None = None
        for _ in range(CREATE_ATTEMPTS_MAX):
            try:
                await self._make_roots()
                if lost is not None and await self._synced_id(name) == log_id:
                    return log_id
                await self._store.multi(self._creation(log_id, head, schema))
                return log_id
            except NodeExistsError as refused:
                found = await self._synced_id(name)
                if found == log_id:
                    return log_id  # An earlier try of this very call, its reply lost or late.
                if found is not None:
                    raise LogExistsError(name) from refused
                if refused.path != name_path:
                    log_id = self._draw()  # Another log has this id.
            except MetadataUnavailableError as cause:
                lost = cause
        raise MetadataUnavailableError(
            self._store.service, f"creation of log {name} got no reply"
        ) from lost

    async def open(self, name: str, *, expected_log_id: int | None = None) -> LogNodes:
        """The log of this name, to read from.

        Raises:
            NoSuchLogError: there is none, or it is being deleted.
            LogRecreatedError: it is another one than ``expected_log_id``.
        """
        nodes = await self.find(name, expected_log_id=expected_log_id)
        await nodes.head()
        return nodes

    async def find(self, name: str, *, expected_log_id: int | None = None) -> LogNodes:
        """As :meth:`open`, without reading the head, so it also finds a log under deletion. For callers
        that read the head next.

        Raises:
            NoSuchLogError: there is none.
            LogRecreatedError: it is another one than ``expected_log_id``.
        """
        # Whatever is read of the log next is as fresh as what its caller saw committed elsewhere.
        log_id = await self._synced_id(name)
        if log_id is None:
            raise NoSuchLogError(name)
        if expected_log_id is not None and log_id != expected_log_id:
            raise LogRecreatedError(name, expected_log_id, log_id)
        return self._site.nodes(log_id, name)

    async def open_or_create(
        self, name: str, settings: LogSettings, schema: bytes, retention: Retention = KEEP_ALL
    ) -> tuple[LogNodes, bool]:
        """The log of this name, and whether this call created it; an existing one stays as it is."""
        try:
            return await self.open(name), False
        except NoSuchLogError:
            is_created = False
            # If another writer is faster, its log is used.
            with suppress(LogExistsError):
                await self.create(name, settings, schema, retention)
                is_created = True
            return await self.open(name), is_created

    async def names(self) -> list[str]:
        """Names of all logs, sorted."""
        await self._store.sync(self._paths.root)
        return await self._store.children(self._paths.names) or []

    async def delete(self, name: str) -> SweepReport:
        """Delete a log with all its ledgers.

        From its beginning on the log is gone for all clients, and the name free. If it then fails,
        :meth:`finish_deletion` deletes what is left.

        Raises:
            NoSuchLogError: there is none.
            BookKeeperError: the store or bookies failed before all was deleted.
        """
        nodes = await self.open(name)
        for _ in range(CREATE_ATTEMPTS_MAX):
            try:
                found = await nodes.head_or_none()
                # Begun by another client, or by our own multi whose reply was lost: go on with it.
                if found is None or found.head.state is LogState.DELETING:
                    break
                await self._store.multi(self._deletion_start(name, nodes, found))
                break
            except (StoreConflict, MetadataUnavailableError):
                await nodes.sync()
        else:
            raise MetadataConflictError(f"log {name}", "other writers won every time")
        return await self._deletion.finish(nodes)

    async def delete_unused(self, name: str, log_id: int) -> bool:
        """Delete a log without commits, writers or plans; for the failed write that created it.

        One multi decides: the head must be as it was created, and the folders of tokens and of
        consumers must be empty, for they are deleted with it. A write that drew its token earlier
        keeps the log; one that comes later finds no log and creates its own. Returns whether this
        call deleted the log.

        Raises:
            BookKeeperError: the store failed; the log may still be there.
        """
        nodes = self._site.nodes(log_id, name)
        lost: Exception | None = None
        for _ in range(CREATE_ATTEMPTS_MAX):
            await nodes.sync()
            found = await nodes.head_or_none()
            if found is not None and found.head.state is LogState.DELETING and lost is not None:
                break  # An earlier try of this very call, its reply lost.
            if found is None or found.version != CREATED_HEAD_VERSION:
                return False
            empty = [Delete(nodes.tree.tokens, None), Delete(nodes.tree.consumers, None)]
            try:
                await self._store.multi([*self._deletion_start(name, nodes, found), *empty])
                break
            except NotEmptyError:
                return False
            except (StoreConflict, MetadataUnavailableError) as cause:
                lost = cause
        else:
            raise MetadataUnavailableError(
                self._store.service, f"deletion of log {name} got no reply"
            ) from lost
        await self._deletion.finish(nodes)
        return True

    async def deletions(self) -> list[int]:
        """Ids of the logs whose deletion began and did not end, here or elsewhere."""
        await self._store.sync(self._paths.root)
        names = await self._store.children(self._paths.root) or []
        # The folder of names stands beside the logs.
        log_ids = numbers_of(names)
        is_begun = await each(self._is_being_deleted, log_ids, concurrency_max=READS_MAX)
        return [log_id for log_id, begun in zip(log_ids, is_begun, strict=True) if begun]

    async def finish_deletion(self, log_id: int) -> SweepReport:
        """Go on with a deletion that began; harmless while its first caller is still at it.

        Raises:
            BookKeeperError: the store or bookies failed before all was deleted.
        """
        return await self._deletion.finish(self._site.nodes(log_id))

    async def forget_transaction(self, name: str, app_id: str) -> StoredTxn | None:
        """Forget what an application committed; returns it. Its next version may be any.

        Raises:
            NoSuchLogError: there is no such log.
        """
        nodes = await self.open(name)
        stored = await nodes.txn(app_id)
        if stored is None:
            return None
        await delete_node(self._store, nodes.tree.txn(app_id))
        return stored.txn

    async def _is_being_deleted(self, log_id: int) -> bool:
        found = await self._site.nodes(log_id).head_or_none()
        # Creation is one step and deletion removes the head last: without a head, little is left.
        return found is None or found.head.state is LogState.DELETING

    async def _synced_id(self, name: str) -> int | None:
        await self._store.sync(self._paths.root)
        path = self._paths.name(name)
        node = await self._store.get(path)
        return None if node is None else parse_name(path, node.value)

    def _draw(self) -> int:
        return self._random.randint(1, LOG_ID_MAX)

    async def _make_roots(self) -> None:
        with suppress(NodeExistsError):
            await self._store.create(self._paths.names, b"", make_parents=True)

    def _creation(self, log_id: int, head: LogHead, schema: bytes) -> list[Operation]:
        tree = self._paths.log(log_id)
        return [
            Create(self._paths.name(head.name), encode_name(log_id)),
            Create(tree.root, b""),
            Create(tree.head, encode_head(head)),
            *(Create(folder, b"") for folder in tree.folders),
            Create(tree.schema(0), encode_schema(schema)),
        ]

    def _deletion_start(self, name: str, nodes: LogNodes, found: HeadAt) -> list[Operation]:
        return [
            Put(nodes.tree.head, encode_head(deleting(found.head)), found.version),
            # Of any version: while the head is as it was read, the name belongs to this very log.
            Delete(self._paths.name(name), None),
        ]
