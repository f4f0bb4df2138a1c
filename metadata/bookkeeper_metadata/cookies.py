"""Cookies: which bookies ever belonged to the cluster, and how often each has started.

A cookie is a persistent node named by the bookie's id, written when all its directories have their
own cookie files. So an id that has a cookie once had directories, and empty ones under that id are a
lost disk. Its text is Apache's: directories as paths, for people and for Apache's tools; a directory
itself is known by what the bookie stored in it, not by its path.

The start counter beside it tells old disks from old metadata: every start counts on all disks first,
then here. Its node lies outside Apache's tree, whose tools take every node there for one of theirs.

Source: Apache ``Cookie``, ``ZKRegistrationManager.writeCookie``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, replace

from google.protobuf import text_format

from bookkeeper_metadata.bookies import BookieRegistry, check_bookie_id
from bookkeeper_metadata.errors import (
    BookieRunningError,
    ClusterNotInitializedError,
    MetadataCorruptError,
    NoSuchCookieError,
)
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.proto.cookie_pb2 import CookieFormat
from bookkeeper_metadata.proto.text import parse_text
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import Delete, Node, Operation, Put

LAYOUT_VERSION = "5"
"""First line of what is written. 4 lacks the index directories and is read as well."""
_READABLE_VERSIONS = ("4", LAYOUT_VERSION)


@dataclass(frozen=True, slots=True)
class Cookie:
    """What a bookie's cookie says; the fields are those of Apache's message."""

    bookie_id: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    instance_id: str | None = None
    """The cluster's."""


@dataclass(frozen=True, slots=True)
class StartCounter:
    """How often a bookie has started, as the metadata has it."""

    starts: int
    start_id: str = ""
    """Drawn at random by the latest start: two can count the same number, on different disks."""
    is_metadata_older: bool = False
    """The disks counted further than the metadata did: this is a restored copy of it. Nothing may
    be deleted for its sake until an operator has accepted it."""
    is_forgotten: bool = False
    """The cookie was deleted. The count goes on, so that the old disks stay old."""
    collections: int = 0
    """How often the bookie has compared its ledgers with this metadata. A copy that is restored has
    fewer, for the disks count first."""


_MORE_THAN_ANY = 2**40
"""Starts of a bookie whose counter cannot be read when it is forgotten: all its disks count as old."""


@dataclass(frozen=True, slots=True)
class RecordedIdentity:
    """What the metadata knows of a bookie; versions are -1 where there is no node."""

    cookie: Cookie | None = None
    cookie_version: int = -1
    counter: StartCounter | None = None
    counter_version: int = -1

    @property
    def is_known(self) -> bool:
        """Whether a bookie of this id ever started and was not forgotten since."""
        is_counted = self.counter is not None and not self.counter.is_forgotten
        return self.cookie is not None or is_counted


def encode_cookie(cookie: Cookie) -> bytes:
    """The text Apache's tools read."""
    message = CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=",".join(cookie.journal_directories),
        ledgerDirs=_encode_directories(cookie.ledger_directories),
    )
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    text = text_format.MessageToString(message)
    return f"{LAYOUT_VERSION}\n{text}".encode()


def parse_cookie(value: bytes, path: str) -> Cookie:
    """The inverse of ``encode_cookie``, for Apache's own cookies, too.

    Raises:
        MetadataCorruptError: it is no cookie of a known layout.
    """
    try:
        version, _, text = value.decode().partition("\n")
        if version not in _READABLE_VERSIONS:
            raise ValueError(f"cookie layout {version[:20]!r} is not one of {_READABLE_VERSIONS}")
        message = parse_text(text, CookieFormat())
        return Cookie(
            message.bookieHost,
            tuple(message.journalDir.split(",")),
            _parse_directories(message.ledgerDirs),
            message.instanceId if message.HasField("instanceId") else None,
        )
    except ValueError as cause:
        raise MetadataCorruptError(path, f"not a cookie: {cause}") from cause


def _encode_directories(directories: tuple[str, ...]) -> str:
    return "\t".join([str(len(directories)), *directories])


def _parse_directories(text: str) -> tuple[str, ...]:
    count, *directories = text.split("\t")
    # Apache writes a tab behind the last directory as well.
    directories = [directory for directory in directories if directory]
    if count != str(len(directories)):
        raise ValueError(f"{len(directories)} ledger directories where {count!r} are announced")
    return tuple(directories)


def encode_counter(counter: StartCounter) -> bytes:
    """The value of a start counter's node."""
    return json.dumps(asdict(counter)).encode()


def parse_counter(value: bytes, path: str) -> StartCounter:
    """The inverse of ``encode_counter``.

    Raises:
        MetadataCorruptError: it is something else.
    """
    try:
        counter = StartCounter(**json.loads(value))
        kinds = tuple(map(type, astuple(counter)))
        if kinds != (int, str, bool, bool, int) or min(counter.starts, counter.collections) < 0:
            raise ValueError(str(counter))
        return counter
    except (ValueError, TypeError, RecursionError) as cause:
        raise MetadataCorruptError(path, f"not a start counter: {cause!r}") from cause


class CookieStore:
    """The cookies and start counters of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self._paths = Paths(root)

    async def read(self, bookie_id: str) -> RecordedIdentity:
        """Read what is known of a bookie, as fresh as anything written before this call.

        Raises:
            MetadataCorruptError: a node holds something else; it was left as it is.
        """
        cookie, counter = await self._nodes(bookie_id)
        found = RecordedIdentity()
        if cookie is not None:
            parsed = parse_cookie(cookie.value, self._paths.cookie(bookie_id))
            found = replace(found, cookie=parsed, cookie_version=cookie.version)
        if counter is not None:
            counted = parse_counter(counter.value, self._paths.start_counter(bookie_id))
            found = replace(found, counter=counted, counter_version=counter.version)
        return found

    async def _read_for_deletion(self, bookie_id: str) -> RecordedIdentity:
        """As :meth:`read`, but what cannot be understood must not keep anybody from deleting it."""
        try:
            return await self.read(bookie_id)
        except MetadataCorruptError:
            cookie, counter = await self._nodes(bookie_id)
        found = RecordedIdentity(cookie_version=-1 if cookie is None else cookie.version)
        if counter is None:
            return found
        try:
            counted = parse_counter(counter.value, self._paths.start_counter(bookie_id))
        except MetadataCorruptError:
            counted = StartCounter(_MORE_THAN_ANY)
        return replace(found, counter=counted, counter_version=counter.version)

    async def _nodes(self, bookie_id: str) -> tuple[Node | None, Node | None]:
        """The nodes of a bookie's cookie and start counter."""
        await self._store.sync(self._paths.root)
        cookie = await self._store.get(self._paths.cookie(check_bookie_id(bookie_id)))
        return cookie, await self._store.get(self._paths.start_counter(bookie_id))

    async def bookie_ids(self) -> list[str]:
        """Ids of all bookies that ever belonged to the cluster, sorted.

        Raises:
            ClusterNotInitializedError: there is no cluster here.
        """
        await self._store.sync(self._paths.root)
        ids = await self._store.children(self._paths.cookies)
        if ids is None:
            raise ClusterNotInitializedError(self._paths.root)
        return ids

    async def write_cookie(self, cookie: Cookie, recorded: RecordedIdentity) -> None:
        """Write a cookie unless it is what was ``recorded`` already.

        Raises:
            NodeExistsError, BadVersionError, NoNodeError: somebody changed it since.
        """
        path = self._paths.cookie(cookie.bookie_id)
        if recorded.cookie is None:
            await self._store.create(path, encode_cookie(cookie), make_parents=True)
        elif cookie != recorded.cookie:
            await self._store.put(path, encode_cookie(cookie), recorded.cookie_version)

    async def count_start(
        self, bookie_id: str, counter: StartCounter, recorded: RecordedIdentity
    ) -> None:
        """Write a start counter.

        Raises:
            NodeExistsError, BadVersionError, NoNodeError: another process starts under this id.
        """
        path = self._paths.start_counter(bookie_id)
        if recorded.counter is None:
            await self._store.create(path, encode_counter(counter), make_parents=True)
        else:
            await self._store.put(path, encode_counter(counter), recorded.counter_version)

    async def accept_metadata(self, bookie_id: str) -> bool:
        """Let a bookie trust metadata again that its disks had counted further than.

        Returns whether there was anything to accept.

        Raises:
            NoSuchCookieError: no bookie of this id ever started.
            BadVersionError: it starts at this moment.
        """
        recorded = await self.read(bookie_id)
        if recorded.counter is None:
            raise NoSuchCookieError(bookie_id)
        if not recorded.counter.is_metadata_older:
            return False
        accepted = replace(recorded.counter, is_metadata_older=False)
        await self.count_start(bookie_id, accepted, recorded)
        return True

    async def check_gone(self, bookie_id: str) -> RecordedIdentity:
        """What is known of a bookie that may be forgotten: it is known, and does not run.

        Raises:
            NoSuchCookieError: there is nothing to forget.
            BookieRunningError: a process is registered under this id.
        """
        recorded = await self._read_for_deletion(bookie_id)
        if recorded.cookie_version < 0 and not recorded.is_known:
            raise NoSuchCookieError(bookie_id)
        if await BookieRegistry(self._store, self._paths.root).is_registered(bookie_id):
            raise BookieRunningError(bookie_id)
        return recorded

    async def delete(self, bookie_id: str) -> None:
        """Forget a bookie that is gone for good; an empty one may then start under its id.

        Its start counter goes on: disks that come back all the same are old ones then.

        Raises:
            NoSuchCookieError, BookieRunningError: as :meth:`check_gone`.
            BadVersionError, NoNodeError: it starts at this moment.
        """
        recorded = await self.check_gone(bookie_id)
        changes: list[Operation] = []
        # Nobody wanted the next bookie of this id to be read-only.
        wish_path = self._paths.readonly_wish(bookie_id)
        if (wish := await self._store.get(wish_path)) is not None:
            changes.append(Delete(wish_path, wish.version))
        if recorded.cookie_version >= 0:
            changes.append(Delete(self._paths.cookie(bookie_id), recorded.cookie_version))
        if recorded.counter is not None:
            # A start of its own, so that a process which is on its way at this moment ends.
            forgotten = StartCounter(recorded.counter.starts + 1, is_forgotten=True)
            path = self._paths.start_counter(bookie_id)
            changes.append(Put(path, encode_counter(forgotten), recorded.counter_version))
        await self._store.multi(changes)
