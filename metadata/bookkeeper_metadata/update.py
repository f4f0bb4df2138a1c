"""Changing one ledger's metadata: read, transform, compare and set, and know how it ended.

A client that loses the race reads again and *decides again*: the transform sees the metadata as it is now
and may answer :class:`Stop`. Every attempt carries a writer token of its own; when a reply is lost
the value is read back, and only our token at exactly the next version counts as our success. What
another writer put on top of it is treated as a lost race, which is safe because transforms are
decided anew. Source: Apache ``MetadataUpdateLoop``; the token is Apache's ``cToken``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from bookkeeper_metadata.errors import (
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.foundation.backoff import back_off
from bookkeeper_metadata.model import Stop, Transform, Versioned
from bookkeeper_metadata.serde import encode_metadata, parse_metadata
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import BadVersionError, Node, NoNodeError

T = TypeVar("T")

UPDATE_ATTEMPTS_MAX = 20
"""Attempts of one update; losing all of them means that another client writes without pause."""
READ_BACK_ATTEMPTS_MAX = 5
"""Attempts to read a value back after a lost reply; then the outcome is reported as unknown."""


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """The node of one ledger's metadata."""

    store: MetadataStore
    path: str
    ledger_id: int

    async def read(self) -> Versioned:
        """The metadata as stored.

        Raises:
            NoSuchLedgerError: the store has no such node.
            MetadataCorruptError: its value is no metadata.
        """
        return self.parse(await self.store.get(self.path))

    def parse(self, node: Node | None) -> Versioned:
        """Parse a node; a creation time that was not recorded is taken from the node itself."""
        if node is None:
            raise NoSuchLedgerError(self.ledger_id)
        metadata = parse_metadata(node.value, self.path)
        if metadata.created_ms < 0:
            metadata = replace(metadata, created_ms=node.created_ms)
        return Versioned(metadata, node.version)


async def update_metadata(
    ledger: LedgerNode, transform: Transform[T], *, random: Random, known: Versioned | None = None
) -> Versioned | Stop[T]:
    """Apply ``transform``; returns the metadata stored then, or the transform's :class:`Stop`.

    ``known`` saves the first read: it is what the caller read before, and a compare-and-set at its
    version checks it. Metadata equal to what is stored (writer tokens aside) is not written, so
    joining a recovery that is under way leaves the version as it is.

    Raises:
        NoSuchLedgerError: the ledger is gone.
        MetadataCorruptError: the stored value cannot be understood.
        MetadataConflictError: every attempt lost; surely nothing was changed.
        MetadataUnavailableError: the outcome is unknown.
    """
    current = await ledger.read() if known is None else known
    is_ambiguous = False
    for attempt in range(UPDATE_ATTEMPTS_MAX):
        await back_off(attempt, random)
        wanted = transform(current.metadata)
        if isinstance(wanted, Stop):
            return wanted
        if replace(wanted, writer_token=current.metadata.writer_token) == current.metadata:
            return current
        stamped = replace(wanted, writer_token=fresh_token(random))
        try:
            value = encode_metadata(stamped)
            return Versioned(stamped, await ledger.store.put(ledger.path, value, current.version))
        except NoNodeError as cause:
            raise NoSuchLedgerError(ledger.ledger_id) from cause
        except BadVersionError:
            # Also how a stale ``known`` shows: that costs a round, never a wrong change.
            current = await ledger.read()
        except MetadataUnavailableError as lost:
            # Never sent again as it is: were the lost one applied, this would be refused, and our
            # success would pass for somebody else's.
            found = ledger.parse(await read_back(ledger.store, ledger.path, random, lost))
            expected = stamped.writer_token, current.version + 1
            if (found.metadata.writer_token, found.version) == expected:
                return found
            # Ours may have been stored and replaced since only if the version grew by more than one.
            is_ambiguous = is_ambiguous or found.version > current.version + 1
            current = found
    detail = f"lost {UPDATE_ATTEMPTS_MAX} races in a row"
    if is_ambiguous:
        raise MetadataUnavailableError(ledger.store.service, f"{detail} and at least one reply")
    raise MetadataConflictError(ledger.path, detail)


async def read_back(
    store: MetadataStore, path: str, random: Random, lost: MetadataUnavailableError
) -> Node | None:
    """Read a node after a lost reply; the change, if it was applied, is in what is returned.

    Raises:
        MetadataUnavailableError: ``lost`` itself, when the store stays silent.
    """
    for attempt in range(READ_BACK_ATTEMPTS_MAX):
        await back_off(attempt, random)
        try:
            # The session may have moved to a server that lags behind the one that lost the reply.
            await store.sync(path)
            return await store.get(path)
        except MetadataUnavailableError:
            continue
    raise lost


def fresh_token(random: Random) -> int:
    """A random writer token, positive and of 63 bits (0 means that none was recorded)."""
    return random.randrange(1, 2**63)
