"""The bookie process: composition of storage, bookie, gRPC and registration; start, drain, stop.

Order of a start: the port is bound first (two bookies cannot share one), the directories are claimed
and the start is counted, storage is opened and replayed, after damage the ledgers that the metadata
names go into limbo, the cookie is written, the service answers, and only then is the bookie
registered, for registration says "write to me". A stop goes the other way round; during a start,
which has acknowledged nothing, it simply ends the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

# Read once, when grpc is imported. It would write of each handshake that fails, to standard error and by itself: without end where
# strangers connect, and waiting for whoever reads that.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from bookie_server.bookie import Bookie
from bookie_server.ending import end_failed, end_in_time, end_process, stop_on_signals
from bookie_server.identity import claim_identity
from bookie_server.integrity.limbo import put_ledgers_in_limbo, wait_until_unregistered
from bookie_server.lent_loop import LentLoop
from bookie_server.memory.trimming import trim_memory
from bookie_server.registrar import Registrar, require_no_java
from bookie_server.serving.carriers import Carriers
from bookie_server.serving.server_tls import roles_of
from bookie_server.serving.service import BookieService
from bookie_server.settings import BookieSettings
from bookie_server.space.sealed_start import is_for_want_of_room, is_full, overlay
from bookie_server.space.watch import SpaceWatch
from bookie_server.storage.disk.descriptors import connection_limit, raise_descriptor_limit
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.engine import Storage
from bookie_server.storage.identity.cookie_file import instance_id_of
from bookie_server.storage.opening import open_storage
from bookie_server.upkeep import Upkeep, upkeep_of
from bookie_server.wire.messages import BookieInfo
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cluster import instance_id, read_layout
from bookkeeper_metadata.endpoints import HTTP, HTTP_ENDPOINT, TLS, BookieServiceInfo, Endpoint
from bookkeeper_metadata.errors import ClusterNotInitializedError, MetadataCorruptError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.readonly import ReadonlyWishes
from bookkeeper_metadata.store.connect import connect
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import NodeExistsError, StoreConflict
from bookkeeper_metadata.version import __version__

if TYPE_CHECKING:
    from bookie_server.observing.observer import Observer

_UNREGISTER_WITHIN_S = 3.0
"""The metadata service may be silent, and what was admitted is to be answered all the same."""
_END_UPKEEP_WITHIN_S = 5.0
"""Where it is not for a signal that the bookie ends: for what waits for a disk."""
_LOGGER = logging.getLogger(__name__)


class Start(NamedTuple):
    """What goes with one start of the process, and is no setting."""

    may_replace: bool = False
    """The operator says that directories which are missing or empty are lost."""
    on_registered: Callable[[], None] = lambda: None
    """Called when the bookie is registered, on its event loop; again if it makes an ordinary start behind a sealed one."""


def run(settings: BookieSettings, start: Start) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code: 0 stopped, 1 could not go on.

    The first signal drains for at most ``drain_timeout_ms``, a second one ends the process at once; see :mod:`bookie_server.ending`.
    For a process that ends with it: 30 s later at the latest.
    """
    # Frames are acyclic and short-lived: frequent collections only cost time (docs/performance.md).
    gc.set_threshold(50_000, 20, 100)
    try:
        soft_limit = raise_descriptor_limit()
        connections_max = connection_limit(soft_limit, settings.connections_max)
        _LOGGER.info("descriptors. limit=%d connections_max=%d", soft_limit, connections_max)
        settings = replace(settings, connections_max=connections_max)
        with asyncio.Runner(loop_factory=LentLoop) as runner:
            return runner.run(_trim_and_serve(settings, start))
    except (BookKeeperError, OSError) as error:
        name = error.name if isinstance(error, BookKeeperError) else "BK_BOOKIE_FAILED"
        _LOGGER.error("bookie stopped. error=%s detail=%s", name, error)
        return 1


async def _trim_and_serve(settings: BookieSettings, start: Start) -> int:
    trimming = asyncio.create_task(trim_memory(settings), name="trim")
    try:
        return await _serve_for_good(settings, start)
    finally:
        end_in_time()
        await end_tasks([trimming])


async def _serve_for_good(settings: BookieSettings, start: Start) -> int:
    """Serve until the process is to end; while a disk is full, sealed (see ``space.sealed_start``)."""
    # Of all its starts: a signal may come between two of them.
    stopping = asyncio.Event()
    stop_on_signals(stopping, settings.drain_timeout_ms / 1000)
    while True:
        is_sealed = await is_full(RealFileSystem(), settings)
        try:
            exit_code = await _serve(settings, start, stopping, is_sealed=is_sealed)
        except (BookKeeperError, OSError) as error:
            if is_sealed or not is_for_want_of_room(error):
                raise
            _LOGGER.warning("no room for a start. detail=%s", error)
            exit_code = await _serve(settings, start, stopping, is_sealed=True)
        if exit_code is not None:
            return exit_code


async def _serve(
    settings: BookieSettings, start: Start, stopping: asyncio.Event, *, is_sealed: bool
) -> int | None:
    """Serve until it is to stop, or a failure; ``None``: it was sealed, and there is room now."""
    carriers = Carriers(settings)
    bookie_id = settings.registered_id
    settings = replace(settings, bookie_id=bookie_id)
    observer = _observer(settings)
    store, root = await connect(settings.metadata_service_uri, security=settings)
    running: list[asyncio.Task[None]] = []
    try:
        stopped = asyncio.create_task(stopping.wait(), name="wait-for-signal")
        cluster_id = await _cluster_id(store, root)
        registry = BookieRegistry(store, root)
        if not settings.rpc_port:
            await require_no_java(registry)
        preparing = asyncio.create_task(
            _prepare(store, root, settings, cluster_id, start.may_replace, is_sealed=is_sealed),
            name="prepare",
        )
        await _until_first(preparing, stopped)
        if not preparing.done():
            _LOGGER.info("bookie stopped before it was ready. bookie_id=%s", bookie_id)
            # Nothing was acknowledged, and a thread may be in the middle of a long replay.
            end_process(0)
        bookie, upkeep = preparing.result()
        bookie.failed.add_done_callback(end_failed)
        identity = BookieInfo(bookie_id, cluster_id, __version__)
        directory = settings.ledger_directories[0]
        service = BookieService(bookie, identity, directory, roles_of(settings))
        await carriers.start(service)
        info = BookieServiceInfo((*carriers.endpoints, *_http_endpoints(settings)))
        registrar = Registrar(registry, bookie_id, info, start.on_registered)
        if observer is not None:
            observer.on_ready(bookie, identity, registrar)
        watch = SpaceWatch(bookie, RealFileSystem(), settings.storage, registrar.set_readonly)
        await ReadonlyWishes(store, root).watch(bookie_id, bookie.set_readonly_by_hand)
        await _stay_registered(registrar, watch, bookie, upkeep, stopped, running=running)
        has_room = bookie.space.is_sealed and not stopped.done()
        stopped.cancel()
        await _drain(carriers, service, bookie, settings.drain_timeout_ms / 1000)
        # Behind it: one may be waiting for a disk that hangs.
        await end_tasks(running)
        await bookie.stop()
        if has_room:
            _LOGGER.info("room for an ordinary start: making one. bookie_id=%s", bookie_id)
            return None
        _LOGGER.info("bookie stopped. bookie_id=%s", bookie_id)
        return 0
    finally:
        if observer is not None:
            observer.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_UPKEEP_WITHIN_S):
                await end_tasks(running)
        await carriers.stop()
        await store.close()


class _Ready(NamedTuple):
    """What a start comes to."""

    bookie: Bookie
    upkeep: Mapping[str, Upkeep]
    """Nothing where nothing is written, a deletion least of all: the bookie is sealed."""


async def _prepare(
    store: MetadataStore,
    root: str,
    settings: BookieSettings,
    cluster_id: str,
    may_replace: bool,
    *,
    is_sealed: bool,
) -> _Ready:
    """The bookie on its directories, ready to answer."""
    real = RealFileSystem()
    overlaid = overlay(real, settings) if is_sealed else None
    files: FileSystem = real if overlaid is None else overlaid
    identity = await claim_identity(
        store,
        root,
        files,
        settings,
        cluster_id=cluster_id,
        random=SystemRandom(),
        may_replace=may_replace,
        is_counted=not is_sealed,
    )
    if overlaid is not None:
        identity.locks.callback(overlaid.close)
    storage = await asyncio.to_thread(_open_storage, files, settings, cluster_id, identity.locks)
    try:
        bookie = Bookie(storage, settings)
        bookie.space.is_sealed = is_sealed
        if storage.contents.is_damaged:
            await wait_until_unregistered(store, root, settings.bookie_id)
            await put_ledgers_in_limbo(storage, store, root, settings.bookie_id)
        if is_sealed:
            _LOGGER.error("serving reads only, until there is room for a start")
        else:
            await identity.write_cookie()
        await identity.watch(bookie.fail)
        await bookie.start()
    except Exception:
        # Where that was for want of room, the sealed start of this process needs the directories.
        storage.close()
        raise
    counter = identity.collection_counter(files, settings.storage.directories)
    return _Ready(bookie, upkeep_of(bookie, settings, store, root, counter=counter))


def _observer(settings: BookieSettings) -> Observer | None:
    if not settings.http_port:
        return None
    # Here: its library takes 3 MiB, which a bookie that shows nothing does without.
    from bookie_server.observing.observer import Observer

    return Observer(settings)


def _http_endpoints(settings: BookieSettings) -> tuple[Endpoint, ...]:
    if not settings.http_port:
        return ()
    extensions = (TLS,) if settings.tls_of_http is not None else ()
    where = HTTP_ENDPOINT, settings.http_host, settings.http_port, HTTP
    return (Endpoint(*where, extensions=extensions),)


async def _until_first(*ends: asyncio.Future[Any]) -> None:
    """Wait until one of the futures has ended; raise its exception if it has one."""
    done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in done:
        end.result()


async def _stay_registered(
    registrar: Registrar,
    watch: SpaceWatch,
    bookie: Bookie,
    upkeep: Mapping[str, Upkeep],
    stopped: asyncio.Task[Any],
    *,
    running: list[asyncio.Task[None]],
) -> None:
    """Stay registered, as what there is room for, until a signal comes or something fails.

    A sealed bookie does until there is room for an ordinary start, too. What its upkeep is done by is put into ``running``, and
    goes on.
    """
    # Before it registers: a disk that is full already must attract no writers.
    await watch.look()
    looking = asyncio.create_task(watch.run(), name="look-at-disks")
    # A killed predecessor's session may take seconds to expire; a signal must work meanwhile.
    registering = asyncio.create_task(_register(registrar), name="register")
    tasks = [looking, registering]
    ends: list[asyncio.Future[Any]] = [stopped, looking]
    if bookie.space.is_sealed:
        tasks.append(asyncio.create_task(watch.wait_for_start(), name="wait-for-room"))
        ends.append(tasks[-1])
    try:
        await _until_first(registering, *ends)
        # Behind it: whoever mends ledgers takes a bookie that is not registered for lost.
        running += [asyncio.create_task(run(), name=name) for name, run in upkeep.items()]
        # A bookie whose registration cannot be kept gets no new ledgers, so it ends and says why.
        keepers = [registrar.keeper] if registrar.keeper is not None else []
        await _until_first(*ends, *running, *keepers)
    finally:
        await end_tasks(tasks)
        # First, so that no writer chooses this bookie while it drains.
        await _unregister(registrar)


async def _unregister(registrar: Registrar) -> None:
    try:
        async with asyncio.timeout(_UNREGISTER_WITHIN_S):
            await registrar.stop()
    except (BookKeeperError, StoreConflict, TimeoutError) as error:
        # It ends with the session, and writers that choose this bookie meanwhile find it gone.
        _LOGGER.warning("the registration stays until its session ends. detail=%s", error)


async def _register(registrar: Registrar) -> None:
    try:
        await registrar.start()
    except NodeExistsError as cause:
        raise StorageRefusedError(
            cause.path, "another live process is registered under this bookie id"
        ) from cause
    _LOGGER.info("bookie ready. %s pid=%d", registrar, os.getpid())


def _open_storage(
    files: FileSystem, settings: BookieSettings, cluster_id: str, locks: ExitStack
) -> Storage:
    """Open the storage; blocks while the journals are replayed, and logs the progress."""
    started_s = time.monotonic()
    spoke_s = started_s

    def progress(replayed: int) -> None:
        nonlocal spoke_s
        if time.monotonic() - spoke_s > 1:
            spoke_s = time.monotonic()
            _LOGGER.info("replaying journal. mib=%d", replayed >> 20)

    # Derived from cluster and name, so files of another cluster or bookie are refused.
    own_id = instance_id_of(cluster_id, settings.bookie_id)
    storage = open_storage(
        files,
        settings.storage,
        locks,
        instance_id=own_id,
        clock_ms=lambda: time.time_ns() // 1_000_000,
        progress=progress,
    )
    report = storage.recovery
    known, buried = storage.contents.ledgers, (last for _, last in storage.contents.tombstones)
    _LOGGER.info(
        "storage open. ledgers=%d ledger_id_max=%d replayed_records=%d replayed_bytes=%d torn_bytes=%d ms=%d",
        len(known),
        # Behind a restored copy of the metadata nobody else knows which ids were given out.
        max(chain(known, buried), default=-1),
        report.records,
        report.bytes_replayed,
        report.bytes_torn,
        (time.monotonic() - started_s) * 1000,
    )
    for damage in report.damage:
        _LOGGER.error("storage damaged. %s", damage)
    return storage


async def _cluster_id(store: MetadataStore, root: str) -> str:
    await read_layout(store, root)  # raises when there is no cluster here
    found = await instance_id(store, root)
    if found is None:
        raise ClusterNotInitializedError(root)
    try:
        uuid.UUID(found)
    except ValueError as cause:
        # Whatever this bookie writes is to carry it.
        path = Paths(root).instance_id
        raise MetadataCorruptError(path, f"no UUID, but {found!r:.100}") from cause
    return found


async def _drain(
    carriers: Carriers, service: BookieService, bookie: Bookie, timeout_s: float
) -> None:
    """Take no more requests, and wait until what was admitted is answered."""
    service.is_draining = True
    try:
        async with asyncio.timeout(timeout_s):
            await bookie.wait_until_settled()
            await asyncio.sleep(0)  # the last group's replies are sent by tasks that run next
    except TimeoutError:
        _LOGGER.warning("drain timed out; unanswered adds are left to their writers")
    await carriers.stop(0.1)
