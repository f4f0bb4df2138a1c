"""Under-replication: which ledgers lack copies, who mends them, and whether anybody shall.

A *mark* is a node that names a ledger and the bookies whose copies of it are missing. Whoever mends the
ledger holds the mark's *lock* meanwhile, and deletes the mark only as it was read before: what was
marked in between is not lost, for every marking changes the version or makes a new node, one that
says nothing new as well. A lock is advice, as all locks are; the ledger's metadata is changed by
compare-and-set. Paths and texts are Apache's, whose auto-recovery may work on the same marks.

Source: Apache ``ZkLedgerUnderreplicationManager``, whose marking leaves a mark as it is that says
nothing new: a worker that has looked at the ledger before then deletes it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from random import Random

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from bookkeeper_metadata.errors import (
    MetadataConflictError,
    MetadataCorruptError,
    MetadataUnavailableError,
)
from bookkeeper_metadata.foundation.backoff import back_off
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.paths import Paths, PeriodicCheck, marked_ledger
from bookkeeper_metadata.proto.text import parse_text
from bookkeeper_metadata.proto.underreplication_pb2 import (
    CheckTimeFormat,
    LockDataFormat,
    UnderreplicatedLedgerFormat,
)
from bookkeeper_metadata.store.folders import delete_empty_folders
from bookkeeper_metadata.store.interface import MetadataStore, Registration
from bookkeeper_metadata.store.operations import (
    BadVersionError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from bookkeeper_metadata.update import read_back

_LOGGER = logging.getLogger(__name__)

ATTEMPTS_MAX = 20
"""Attempts of one change; losing all of them means that others change the mark without pause."""
_LEVELS = 4
_FOLDERS_AT_ONCE = 64
_DELAY_DIGITS_MAX = 10
"""Of seconds, in Apache's 32 bits; what is longer is no delay, and Python refuses to read thousands of them."""
_FOLDER = re.compile(r"[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class Mark:
    """That a ledger lacks copies."""

    bookie_ids: tuple[str, ...]
    """Whose copies are missing; in Apache's words the replicas."""
    marked_ms: int | None = None
    """Wall clock when it was said last, milliseconds since the epoch, if that was written down."""
    version: int = -1
    """Of the node it was read from."""
    made_ms: int = 0
    """When that node was made, by the service's clock: the versions of one that is made again begin anew."""


_NAMED_MAX = 100
"""Bookies that a mark names, and characters of each: a text has a bound, and a ledger's metadata may name anything."""
_NAME_SIZE_MAX = 255


def encode_mark(mark: Mark) -> bytes:
    """The text that Apache's tools read; of very many bookies some: who mends the ledger finds out who lacks what."""
    names = [id for id in mark.bookie_ids if len(id) <= _NAME_SIZE_MAX and id.isprintable()]
    message = UnderreplicatedLedgerFormat(replica=names[:_NAMED_MAX])
    if mark.marked_ms is not None:
        message.ctime = mark.marked_ms
    return text_format.MessageToString(message).encode()


def parse_mark(node: Node, path: str) -> Mark:
    """The inverse of ``encode_mark``, for Apache's own marks, too.

    Raises:
        MetadataCorruptError: it is no mark.
    """
    try:
        message = parse_text(node.value.decode(), UnderreplicatedLedgerFormat())
    except ValueError as cause:
        raise MetadataCorruptError(path, f"not a mark of a ledger: {cause}") from cause
    marked_ms = message.ctime if message.HasField("ctime") else None
    return Mark(tuple(message.replica), marked_ms, node.version, node.created_ms)


class MarkLock:
    """The right to mend one ledger; it may be lost with the session."""

    def __init__(self, registration: Registration) -> None:
        self._registration = registration

    async def release(self) -> None:
        """Let others mend the ledger."""
        await self._registration.withdraw()


class Underreplication:
    """The marks of one cluster; owns neither the store nor ``random``."""

    def __init__(self, store: MetadataStore, root: str, *, random: Random) -> None:
        self._store = store
        self._paths = Paths(root)
        self._random = random
        self._unreleased: list[MarkLock] = []

    # -- marks ------------------------------------------------------------------------------------

    async def mark(self, ledger_id: int, bookie_ids: Collection[str], *, now_ms: int) -> Mark:
        """Say that the copies of these bookies are missing, beside those that are said to be already.

        Raises:
            MetadataCorruptError: there is a mark that cannot be understood; it is left as it is.
            MetadataConflictError: others changed the mark at every attempt.
            MetadataUnavailableError: unknown whether it is marked; marking twice does no harm.
        """
        path = self._paths.mark(ledger_id)
        fresh = Mark(tuple(dict.fromkeys(bookie_ids)), now_ms, version=0)
        # Of a lost bookie's ledgers hardly any is marked yet, or has a folder: those take one request.
        with suppress(NodeExistsError, NoNodeError):
            folder = Create(path.rpartition("/")[0], b"")
            await self._store.multi([folder, Create(path, encode_mark(fresh))])
            return fresh
        for attempt in range(ATTEMPTS_MAX):
            await back_off(attempt, self._random)
            node = await self._store.get(path)
            before = () if node is None else parse_mark(node, path).bookie_ids
            wanted = Mark(tuple(dict.fromkeys((*before, *bookie_ids))), now_ms)
            # Whoever mends the ledger may empty folders and delete them between the two.
            with suppress(NodeExistsError, NoNodeError, BadVersionError):
                return replace(wanted, version=await self._write(path, encode_mark(wanted), node))
        raise MetadataConflictError(path, f"lost {ATTEMPTS_MAX} races in a row")

    async def read(self, ledger_id: int) -> Mark | None:
        """What is said of the ledger.

        Raises:
            MetadataCorruptError: it cannot be understood.
        """
        path = self._paths.mark(ledger_id)
        node = await self._store.get(path)
        return None if node is None else parse_mark(node, path)

    async def clear(self, ledger_id: int, known: Mark) -> bool:
        """Delete the mark as :meth:`read` returned it, the ledger being whole; false if another is there by now.

        The store compares versions only, and a mark that was deleted and made again has the same. The lock
        keeps others from deleting it, but may be lost with its session; and behind a delete whose reply was
        lost anybody may have marked the ledger anew. So it is read before every attempt. What is left are the
        milliseconds between the two, in which one would have to delete it, our lock being lost, and another to
        mark the ledger. That is made good by the next audit of all lost bookies, look at damage or check of copies.

        Its folder goes with it; those around that are for :meth:`delete_empty_folders`.

        Raises:
            MetadataCorruptError: something is there that cannot be understood; it is left as it is.
            MetadataUnavailableError: unknown whether it is deleted.
        """
        path = self._paths.mark(ledger_id)
        await self._store.sync(path)  # our server may not know of a new one yet
        node = await self._store.get(path)
        for attempt in range(ATTEMPTS_MAX):
            await back_off(attempt, self._random)
            if node is None:
                break
            if parse_mark(node, path) != known:
                return False
            try:
                await self._delete(path, known.version)
                break
            except NoNodeError:
                break
            except BadVersionError:
                return False
            except MetadataUnavailableError as lost:
                node = await read_back(self._store, path, self._random, lost)
        else:
            raise MetadataUnavailableError(self._store.service, "every reply to a delete was lost")
        return True

    async def _delete(self, path: str, version: int) -> None:
        try:
            folder = Delete(path.rpartition("/")[0], None)
            await self._store.multi([Delete(path, version), folder])
        except NotEmptyError:
            # The folder is one ledger's, so that is nobody's mark; whatever it is, it stays.
            await self._store.delete(path, version)

    async def delete_empty_folders(self, ledger_ids: Iterable[int]) -> None:
        """Delete what folders the marks of these ledgers have left empty, once for all that lay side by side."""
        around = {self._paths.mark(ledger_id).rsplit("/", 2)[0] for ledger_id in ledger_ids}
        for folder in sorted(around):
            await delete_empty_folders(self._store, folder, self._paths.underreplicated_ledgers)

    async def list_marked_ledgers(self, random: Random | None = None) -> AsyncIterator[int]:
        """The marked ledgers, ascending; in some other order with ``random``, which many workers
        want who begin at the same moment. Marks made or deleted meanwhile may or may not appear.
        """
        async for ledger_id in self._walk(self._paths.underreplicated_ledgers, _LEVELS, random):
            yield ledger_id

    async def _walk(self, path: str, depth: int, random: Random | None) -> AsyncIterator[int]:
        names = await self._store.children(path) or []
        if random is not None:
            random.shuffle(names)
        folders = [f"{path}/{name}" for name in names if _FOLDER.fullmatch(name)]
        if depth > 1:
            for folder in folders:
                async for ledger_id in self._walk(folder, depth - 1, random):
                    yield ledger_id
            return
        # Each of these has one mark: one after the other they would take a round trip each.
        for begin in range(0, len(folders), _FOLDERS_AT_ONCE):
            batch = folders[begin : begin + _FOLDERS_AT_ONCE]
            for found in await each(self._marked_in, batch, concurrency_max=len(batch)):
                for ledger_id in found:
                    yield ledger_id

    async def _marked_in(self, folder: str) -> list[int]:
        """The ledgers that nodes in it are named after, ascending."""
        names = await self._store.children(folder) or []
        return [ledger_id for name in names if (ledger_id := marked_ledger(name)) is not None]

    # -- locks ------------------------------------------------------------------------------------

    async def list_locked_ledgers(self) -> set[int]:
        """The ledgers that somebody mends."""
        return set(await self._marked_in(self._paths.underreplication_locks))

    async def try_lock(self, ledger_id: int, holder: str) -> MarkLock | None:
        """The right to mend the ledger; ``None`` while anybody has it. ``holder`` is for people to read."""
        path = self._paths.mark_lock(ledger_id)
        # Asked first: a node of another session is waited for, as its session may be dead.
        if await self._store.get(path) is not None:
            return None
        value = text_format.MessageToString(LockDataFormat(bookieId=holder)).encode()
        try:
            return MarkLock(await self._store.ephemeral(path, value))
        except NodeExistsError:
            return None

    @asynccontextmanager
    async def lock(self, ledger_id: int, holder: str) -> AsyncIterator[bool]:
        """Have the right to mend the ledger meanwhile; false: somebody else has it.

        Raises:
            MetadataUnavailableError: unknown whether anybody has it. That it is given back is not reported; see
                :meth:`release_left`.
        """
        held = await self.try_lock(ledger_id, holder)
        try:
            yield held is not None
        finally:
            if held is not None:
                await self._give_back(held)

    async def _give_back(self, lock: MarkLock) -> None:
        self._unreleased.append(lock)
        try:
            await lock.release()
        except MetadataUnavailableError as error:
            _LOGGER.warning("lock to be released later. detail=%s", error)
        else:
            self._unreleased.remove(lock)  # not where this was cancelled

    async def release_left(self) -> None:
        """Give back locks that could not be given back: left alone, they keep everybody from their ledgers as long
        as this session lives.

        Raises:
            MetadataUnavailableError: some are left still.
        """
        for lock in tuple(self._unreleased):
            await lock.release()
            if lock in self._unreleased:
                self._unreleased.remove(lock)

    # -- whether, and when ------------------------------------------------------------------------

    async def set_enabled(self, is_enabled: bool) -> bool:
        """Have auditor and workers of the cluster go on or pause; returns whether that is a change."""
        path = self._paths.underreplication_disable
        try:
            if is_enabled:
                await self._store.delete(path)
            else:
                await self._store.create(path, b"", make_parents=True)
        except (NodeExistsError, NoNodeError):
            return False
        return True

    async def is_enabled(self) -> bool:
        """Whether they shall work."""
        return await self._store.get(self._paths.underreplication_disable) is None

    async def is_attended(self) -> bool:
        """Whether somebody is there who mends what is marked, now or once that is enabled: else a mark is only left behind.

        It is disabled while bookies are restarted one by one, and just then writers go on without some of them.
        """
        return bool(await self._store.children(self._paths.auditor_election))

    async def watch_enabled(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``changed`` with that now, before this returns, and after every change."""
        path = self._paths.underreplication_disable
        return await self._store.watch(path, lambda node: changed(node is None))

    async def set_lost_bookie_delay(self, seconds: int) -> None:
        """How long a single lost bookie is waited for before its ledgers are marked.

        Writing it, the same value too, has the auditor look at once.
        """
        path, value = self._paths.lost_bookie_delay, b"%d" % seconds
        for attempt in range(ATTEMPTS_MAX):
            await back_off(attempt, self._random)
            node = await self._store.get(path)
            with suppress(NodeExistsError, NoNodeError, BadVersionError):
                await self._write(path, value, node)
                return
        raise MetadataConflictError(path, f"lost {ATTEMPTS_MAX} races in a row")

    async def watch_lost_bookie_delay(
        self, changed: Callable[[int | None], None]
    ) -> Callable[[], None]:
        """Call ``changed`` with the seconds now, before this returns, and whenever they are written.

        ``None``: nobody ever wrote any, or nothing that is a number.
        """

        path = self._paths.lost_bookie_delay
        return await self._store.watch(path, lambda node: changed(_parse_delay(node)))

    async def lost_bookie_delay(self) -> int | None:
        """The seconds now, as :meth:`watch_lost_bookie_delay` tells them."""
        return _parse_delay(await self._store.get(self._paths.lost_bookie_delay))

    async def last_check_ms(self, check: PeriodicCheck) -> int | None:
        """When such a check was finished last, in milliseconds since the epoch; ``None``: never.

        Raises:
            MetadataCorruptError: the node says something else.
        """
        path = self._paths.last_check(check)
        node = await self._store.get(path)
        if node is None:
            return None
        try:
            return CheckTimeFormat.FromString(node.value).ctime
        except DecodeError as cause:
            raise MetadataCorruptError(path, f"not the time of a check: {cause}") from cause

    async def note_check(self, check: PeriodicCheck, now_ms: int) -> None:
        """Have the next auditor know when such a check was finished."""
        path = self._paths.last_check(check)
        value = CheckTimeFormat(ctime=now_ms).SerializeToString()
        # There is one auditor; should another write at the same moment, its time is as good.
        with suppress(NodeExistsError, NoNodeError, BadVersionError):
            await self._write(path, value, await self._store.get(path))

    async def _write(self, path: str, value: bytes, known: Node | None) -> int:
        """Write over what is known of a node, or make it; returns its version then."""
        if known is not None:
            return await self._store.put(path, value, known.version)
        await self._store.create(path, value, make_parents=True)
        return 0


def _parse_delay(node: Node | None) -> int | None:
    text = b"" if node is None else node.value
    return int(text) if text.isdigit() and len(text) <= _DELAY_DIGITS_MAX else None
