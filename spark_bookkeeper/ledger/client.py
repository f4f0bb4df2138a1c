"""LedgerClient: create, open, recover, delete and list ledgers of one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from bookie_server.wire.messages import ReadLacRequest, Status
from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.endpoints import HTTP, HTTP_ENDPOINT, Endpoint
from bookkeeper_metadata.errors import LedgerExistsError, NoSuchLedgerError
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.model import DigestType, Fragment, LedgerMetadata
from bookkeeper_metadata.readonly import ReadonlyWishes
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.errors import (
    LedgerDeletedError,
    LedgerInUseError,
    LedgerRecoveryError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.last_confirmed import look_into, read_last_confirmed
from spark_bookkeeper.ledger.measures import timed
from spark_bookkeeper.ledger.protocol.doubt import Doubt
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.replication import with_held_mark
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.recovery import begin_recovery, recover_ledger, shut_out_writer
from spark_bookkeeper.ledger.write_handle import WriteHandle

LOG_MARK = "log"
"""Custom metadata key under which a log marks its ledgers: only the log may delete them."""


@dataclass(frozen=True, slots=True)
class BookieStatus:
    """A bookie of the cluster."""

    bookie_id: str
    address: str
    """``host:port`` of its endpoint; empty when it has none we speak, or is away."""
    writable: bool
    is_away: bool = False
    """It has a cookie, and no process is registered under its id."""
    readonly_by: str = ""
    """Why it takes no new entries: ``hand`` where an operator wants it so, else ``disk``."""
    http_address: str = ""
    """``http://host:port``, or ``https://``, where it shows metrics and health; empty where it has no such port, or is away."""


class LedgerClient:
    """The ledger operations; use within one event loop."""

    def __init__(self, cluster: LedgerContext) -> None:
        self.cluster = cluster

    async def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: str = "CRC32C",
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        extra_operations: ExtraOperations | None = None,
    ) -> WriteHandle:
        """Create a ledger and become its writer.

        Where fewer than ``ensemble_size`` bookies are writable it has fewer members, but at least
        ``write_quorum``, with places for bookies that are away; see ``protocol.placement``.

        ``extra_operations`` names metadata operations that are carried out in one step with the
        creation, or not at all.

        Raises:
            ValueError: impossible quorums or digest type.
            NotEnoughBookiesError: the cluster never had ``write_quorum`` bookies, or fewer than
                ``ack_quorum`` of them are writable and none came back in time.
            TlsNeededError, TlsNotOfferedError: this client and a bookie can never talk.
            LedgerExistsError: ``ledger_id`` is taken.
            LedgerDeletedError: ``ledger_id`` is that of a ledger that was deleted.
        """
        if digest_type not in DigestType.__members__:
            known = ", ".join(DigestType.__members__)
            raise ValueError(f"unknown digest type {digest_type!r}; one of {known}")
        if not 1 <= ack_quorum <= write_quorum <= ensemble_size:
            raise ValueError(
                "quorums must satisfy 1 <= ack_quorum <= write_quorum <= ensemble_size; "
                f"{ack_quorum=} {write_quorum=} {ensemble_size=}"
            )
        first = await self.cluster.choose_ensemble(
            QuorumConfig(ensemble_size, write_quorum, ack_quorum)
        )
        metadata = LedgerMetadata(
            ensemble_size=len(first.members),
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            fragments=(Fragment(0, first.members),),
            digest_type=DigestType[digest_type],
            password=password,
            custom_metadata=dict(sorted(with_held_mark(custom_metadata or {}, first.held).items())),
        )
        self.cluster.connections.require_agreement(first.members)
        # Making the clients first: if one cannot be made, no ledger is left behind.
        for bookie_id in first.members:
            self.cluster.client(bookie_id)
        if ledger_id is not None:
            await self._require_unused(ledger_id)
        with timed(self.cluster.measures.creations):
            created_id, versioned = await self.cluster.ledgers.create(
                metadata, ledger_id=ledger_id, extra_operations=extra_operations
            )
        return WriteHandle(self.cluster, created_id, versioned, held=first.held)

    async def _require_unused(self, ledger_id: int) -> None:
        """Refuse an id under which there has been a ledger, as far as any bookie knows.

        One they take nothing for would fail at its first add. Under one whose entries they have not
        deleted yet, these would be read as the new ledger's, also by an ensemble change later. Bookies
        that are away, or do not answer, say nothing.

        Raises:
            LedgerExistsError: there is a ledger of this id.
            LedgerDeletedError: there was one.
        """
        bookie_ids = tuple(await self.cluster.registry.list_registered_ids())
        await self.cluster.prepare(bookie_ids)
        request = ReadLacRequest(ledger_id)
        asked = (self.cluster.client(bookie_id).read_lac(request) for bookie_id in bookie_ids)
        statuses = {reply.status for reply in await asyncio.gather(*asked)}
        # OK: it has entries.
        if statuses.isdisjoint((Status.OK, Status.DELETED)):
            return
        await self._sync()
        # Not left to the creation: the ledger that is alive now may be deleted by then.
        if await self.cluster.ledgers.is_gone(ledger_id):
            raise LedgerDeletedError(ledger_id)
        raise LedgerExistsError(ledger_id)

    async def open_ledger(
        self, ledger_id: int, *, password: bytes = b"", recovery: bool = False
    ) -> ReadHandle:
        """Open for reading. ``recovery`` first takes an open ledger over from its writer: fences
        it and closes it at its last entry. Without it an open ledger is read up to its LAC.

        An end that was decided before this call, in any session, is known to the handle.

        Raises:
            NoSuchLedgerError, UnauthorizedError: nothing was changed.
            LedgerRecoveryError, EntryUnreadableError: too few bookies answer.
        """
        with timed(self.cluster.measures.openings):
            return await self._open(ledger_id, password, recovery)

    async def _open(self, ledger_id: int, password: bytes, recovery: bool) -> ReadHandle:
        await self._sync()
        if recovery:
            versioned = await recover_ledger(self.cluster, ledger_id, password)
        else:
            versioned = await self.cluster.ledgers.read(ledger_id)
        metadata = versioned.metadata
        # Here and not by the bookies alone: a closed ledger is opened without asking any of them.
        if metadata.password != password:
            raise UnauthorizedError(ledger_id)
        if metadata.is_closed:
            return ReadHandle(self.cluster, ledger_id, versioned, metadata.last_entry)
        confirmed = await read_last_confirmed(self.cluster, ledger_id, metadata, is_fencing=False)
        # A new fragment begins behind the LAC, so all entries before it are confirmed.
        confirmed = max(confirmed, metadata.last_fragment.first_entry - 1)
        return ReadHandle(self.cluster, ledger_id, versioned, confirmed)

    async def check_password(self, ledger_id: int, password: bytes) -> None:
        """For a log, which asks about a ledger that it names.

        Raises: NoSuchLedgerError, UnauthorizedError.
        """
        try:
            # Not synced: mostly the log read of the ledger in this very session.
            found = await self.cluster.ledgers.read(ledger_id)
        except NoSuchLedgerError:
            # Where another session has taken its place, that may not have heard of the ledger.
            await self._sync()
            found = await self.cluster.ledgers.read(ledger_id)
        if found.metadata.password != password:
            raise UnauthorizedError(ledger_id)

    async def delete_ledger(
        self, ledger_id: int, *, force: bool = False, unfenced: bool = False
    ) -> None:
        """Delete a ledger; its entries become garbage on the bookies.

        A ledger that is not closed is recovered first. ``force`` does without a recovery, which may
        be impossible where entries are lost, but still fences the writer; if that fails the ledger
        stays as it is, IN_RECOVERY. ``unfenced`` does without the fence too, for bookies that will
        never answer again: adds of a writer that lives on may be acknowledged and are lost.

        Raises:
            ValueError: ``unfenced`` without ``force``.
            MetadataConflictError: it changed at the same moment; nothing was deleted.
            NoSuchLedgerError: there was none.
            LedgerInUseError: it belongs to a log.
            LedgerRecoveryError: not closed, and could not be; with ``force``: not fenced.
        """
        if unfenced and not force:
            raise ValueError("unfenced goes with force only: a recovery fences")
        await self._sync()
        versioned = await self.cluster.ledgers.read(ledger_id)
        log = versioned.metadata.custom_metadata.get(LOG_MARK)
        if log is not None:
            raise LedgerInUseError(ledger_id, log.decode(errors="replace"))
        password = versioned.metadata.password
        if not force:
            versioned = await recover_ledger(self.cluster, ledger_id, password, wants_copies=False)
        elif not unfenced:
            versioned = await shut_out_writer(self.cluster, ledger_id, password)
        # Exactly what was fenced: another may have been created under this id meanwhile.
        await self.cluster.ledgers.delete(ledger_id, versioned.version)

    async def dispose_of_ledger(self, ledger_id: int) -> None:
        """Delete a ledger even if a log owns it; for that log's own use.

        Not synced, as :meth:`fence_ledger` is not: the log read of the ledger in this session.
        """
        await self._fence(ledger_id, is_doomed=True)
        await self.cluster.ledgers.delete(ledger_id)

    async def doubt_of_ledger(self, ledger_id: int) -> Doubt:
        """What the bookies of a ledger's last ensemble have of it, and which of them may have lost entries.

        Raises: NoSuchLedgerError, MetadataUnavailableError.
        """
        return await look_into(self.cluster, ledger_id, await self.ledger_metadata(ledger_id))

    async def recover_with_losses(self, ledger_id: int, *, password: bytes = b"") -> LedgerMetadata:
        """Recover a ledger so many of whose bookies may have lost entries that :func:`open_ledger` cannot.

        It ends before the first entry, behind the last that is known to be confirmed, that no bookie of its last ensemble has;
        what was acknowledged from there on is given up, for good. Of a ledger that can be recovered without that
        nothing is given up.

        Raises:
            LedgerRecoveryError: a bookie of its last ensemble does not answer, or cannot read what it has, or another
                bookie has more. The ledger is IN_RECOVERY then.
            NoSuchLedgerError, UnauthorizedError: nothing was changed.
        """
        await self._sync()
        versioned = await begin_recovery(self.cluster, ledger_id, password)
        if versioned.metadata.is_closed:
            return versioned.metadata
        doubt = await look_into(self.cluster, ledger_id, versioned.metadata)
        if why := doubt.objection:
            raise LedgerRecoveryError(ledger_id, why)
        closed = await recover_ledger(self.cluster, ledger_id, password, doubt=doubt)
        return closed.metadata

    async def fence_ledger(self, ledger_id: int) -> None:
        """Recover a ledger with the password in its metadata: for a log that takes it over.

        A closed ledger is left as it is.

        Raises: as recovery, and NoSuchLedgerError.
        """
        await self._fence(ledger_id, is_doomed=False)

    async def _fence(self, ledger_id: int, *, is_doomed: bool) -> None:
        metadata = (await self.cluster.ledgers.read(ledger_id)).metadata
        if not metadata.is_closed:
            # Of one that is about to be deleted nobody needs every copy.
            await recover_ledger(
                self.cluster, ledger_id, metadata.password, wants_copies=not is_doomed
            )

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedgerError, MetadataCorruptError."""
        await self._sync()
        return (await self.cluster.ledgers.read(ledger_id)).metadata

    async def list_ledgers(self) -> AsyncGenerator[int, None]:
        """Ids of all ledgers, ascending; every ledger created before this call is among them."""
        await self._sync()
        async for ledger_id in self.cluster.ledgers.list_ids():
            yield ledger_id

    async def bookies(self, *, with_away: bool = False) -> list[BookieStatus]:
        """All registered bookies, by id; ``with_away``: all that ever belonged to the cluster."""
        await self._sync()
        found: list[BookieStatus] = []
        wishes = ReadonlyWishes(self.cluster.store, self.cluster.root)
        for writable, infos in (
            (True, await self.cluster.registry.writable()),
            (False, await self.cluster.registry.readonly()),
        ):
            for bookie_id, info in infos.items():
                by = ""
                if not writable:
                    by = "hand" if await wishes.is_made(bookie_id) else "disk"
                address = _address(self.cluster.connections.endpoint_of(info))
                http = _http_address(info.endpoint(HTTP, HTTP_ENDPOINT))
                found.append(
                    BookieStatus(bookie_id, address, writable, readonly_by=by, http_address=http)
                )
        if with_away:
            known = await CookieStore(self.cluster.store, self.cluster.root).bookie_ids()
            away = set(known) - {bookie.bookie_id for bookie in found}
            found += [BookieStatus(bookie_id, "", False, is_away=True) for bookie_id in away]
        return sorted(found, key=lambda bookie: bookie.bookie_id)

    async def _sync(self) -> None:
        """Make later reads of this session see all that was changed before this call, in any."""
        await self.cluster.store.sync(self.cluster.root)


def _http_address(endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return ""
    return f"{'https' if endpoint.has_tls else 'http'}://{endpoint.address}"


def _address(endpoint: Endpoint | None) -> str:
    return "" if endpoint is None else endpoint.address
