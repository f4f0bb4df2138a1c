"""One ZooKeeper session on an event loop: requests out, answers and session changes in.

Only this file and ``zookeeper_handler`` import kazoo, which keeps the session in a thread of its own;
every request is handed to it and its answer handed back to the event loop. A mutation is sent once. Losing the
connection or the session under it, or no answer in time, is an unknown outcome; kazoo's own retries
would report our success as a conflict. Reads change nothing and are repeated within a time budget.
While the connection is down requests wait for it instead of queueing up inside kazoo, where they
could be applied long after their outcome was reported as unknown; those, too, that come between kazoo's
hearing of the loss and the event loop's. If no server will ever connect again, for
its data are older than what was seen (``zookeeper_age``) or TLS fails, their errors say so. What ZooKeeper refuses for want
of a permission is neither unknown nor a word about what is there: it has an error of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Auth
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import ACL, Id

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.store import operations
from bookkeeper_metadata.store.acl import Acl
from bookkeeper_metadata.store.zookeeper_access import ZooKeeperAccess
from bookkeeper_metadata.store.zookeeper_age import newest_zxid
from bookkeeper_metadata.store.zookeeper_handler import PollingHandler

_LOGGER = logging.getLogger(__name__)
_KAZOO_LOGGER = logging.getLogger(f"{__name__}.kazoo")
# Every dropped connection makes kazoo log several warnings; this module says it once.
_KAZOO_LOGGER.setLevel(logging.CRITICAL)
# To whoever asks for all of it, it would say the password.
_KAZOO_LOGGER.addFilter(
    lambda record: not any(isinstance(each, Auth) for each in record.args or ())
)

_RETRY_PAUSE_S = 0.05
# For ever: an outage of the service, however long, must not end a bookie. Every request has a time
# limit of its own.
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_STOP_WITHIN_S = 11.0
"""kazoo waits for its server, but 10 s at the least; with a longer session timeout that and a second."""
_LOOK_PAUSE_S = 2.0
"""Between two questions why there is no connection; after a short outage none is asked."""
_OLDER = "; its data are older than what this process has seen, as after a restore from a backup: start this process again"

_CONFLICTS: dict[type[Exception], type[operations.StoreConflict]] = {
    kazoo_errors.NodeExistsError: operations.NodeExistsError,
    kazoo_errors.NoNodeError: operations.NoNodeError,
    kazoo_errors.BadVersionError: operations.BadVersionError,
    kazoo_errors.NotEmptyError: operations.NotEmptyError,
}
_NOT_AUTHENTICATED = "ZooKeeper does not authenticate this user; it may not know the scheme digest"
_NO_ACCESS: dict[type[Exception], str] = {
    kazoo_errors.NoAuthError: "the ACL of the node - to create and delete, of its parent - does not let this user do it; "
    "a wrong password shows so, too",
    kazoo_errors.AuthFailedError: _NOT_AUTHENTICATED,
    kazoo_errors.SessionClosedRequireSaslError: "ZooKeeper serves only users that it has authenticated",
    kazoo_errors.InvalidACLError: "ZooKeeper takes no such ACL (zookeeper_acl)",
}
_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""What a refused multi answers for the operations that were not to blame."""

Submit = Callable[[], Any]
"""Hands one request to kazoo; returns its IAsyncResult."""


class ZooKeeperSession:
    """A client that reconnects by itself; ``renewed`` is called with every new session.

    Made on the event loop that uses it; its owner opens and closes it.
    """

    def __init__(
        self,
        servers: Sequence[str],
        session_timeout_ms: int,
        renewed: Callable[[], None],
        access: ZooKeeperAccess,
    ) -> None:
        self.service = ",".join(servers)
        self.timeout_s = session_timeout_ms / 1000
        self.id = 0
        """Of the present or latest session."""
        self._access = access
        self._handler = handler = PollingHandler(self.timeout_s, access.tls)
        self.client: Any = KazooClient(
            hosts=self.service,
            timeout=self.timeout_s,
            handler=handler,
            connection_retry=dict(_RECONNECT),
            default_acl=as_zookeepers(access.acl),
            # Sent first on each connection, that of a new session, too.
            auth_data={("digest", access.credential)} if access.credential else None,
            logger=_KAZOO_LOGGER,
        )
        handler.is_connected = lambda: self.client.connected
        self._on_session_renewed = renewed
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._submitting = threading.Lock()
        self._is_taking = False
        """Whether a request may be handed to kazoo: as :attr:`_connected`, but as soon as kazoo's thread knows."""
        self._waiting: set[asyncio.Future[Any]] = set()
        self._reviving: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._hint = ""
        """Why there is no connection, where that is known."""
        self._is_unauthenticated = False
        """Whether there is none because the server knows no such user."""
        self._over = asyncio.Event()
        self.client.add_listener(self._on_state)

    @property
    def is_closed(self) -> bool:
        """Whether its owner has closed it."""
        return self._over.is_set()

    async def open(self, connect_timeout_ms: int) -> None:
        """Connect for the first time.

        Raises:
            MetadataUnavailableError: no server answered within ``connect_timeout_ms``, or there are no descriptors to ask one.
            MetadataAccessError: one did, and does not authenticate this user.
        """
        try:
            self.client.start_async()
        except OSError as cause:
            # It has no sockets to tell its threads by. They are there already, and would stay.
            self._handler.stop()
            raise MetadataUnavailableError(self.service, f"not connected: {cause}") from cause
        timeout_s = connect_timeout_ms / 1000
        try:
            await self._connection(timeout_s, self._loop.time() + timeout_s)
            if self._access.credential:
                # Connected comes before authenticated. Whether a node is there may be asked by anybody.
                await self.read("/", lambda: self.client.exists_async("/"))
        except BaseException:
            # Left alone, kazoo's thread would go on connecting for ever.
            await self.close()
            raise

    async def mutate(self, path: str, submit: Submit) -> Any:
        """Send once; ``path`` names the node in a :class:`bookkeeper_metadata.store.operations.StoreConflict`."""
        try:
            return await self._once(submit)
        except kazoo_errors.KazooException as refusal:
            raise self._as_refusal(path, refusal) from refusal

    async def read(self, path: str, submit: Submit) -> Any:
        """Ask until answered, at most for a session timeout.

        Raises:
            NoNodeError: the store answered that there is no such node.
        """
        deadline = self._loop.time() + self.timeout_s
        while True:
            try:
                return await self.mutate(path, submit)
            except MetadataUnavailableError:
                if self._loop.time() >= deadline:
                    raise
            await asyncio.sleep(_RETRY_PAUSE_S)

    def check_multi(self, paths: Sequence[str], results: Sequence[object]) -> None:
        """Raise if a multi failed: the refusal of the first operation that was refused itself."""
        has_failed = False
        for path, result in zip(paths, results, strict=True):
            if not isinstance(result, Exception):
                continue
            if not isinstance(result, _NOT_THE_CAUSE):
                raise self._as_refusal(path, result) from result
            has_failed = True
        if has_failed:
            raise MetadataUnavailableError(self.service, "a multi failed without a cause")

    async def close(self) -> None:
        """End the session and everything that waits for an answer. Idempotent."""
        if self.is_closed:
            return
        self._over.set()
        # Waited for, not cancelled: a thread of it may be about to start what is stopped below.
        if self._reviving is not None:
            await self._reviving
        if self._looking is not None:
            await end_tasks([self._looking])
        # Its callers hear that the store was closed; from kazoo they would hear of a lost
        # connection and would try again.
        for future in self._waiting:
            if not future.done():
                future.set_exception(ClientClosedError("metadata store"))
        self._connected.set()  # requests that wait for a connection find the session closed
        stopped = asyncio.Event()
        # Not of the threads that everybody uses, which an exit waits for: kazoo's may be in a look-up of a name, however long that takes.
        stopping = threading.Thread(
            target=self._stop, args=(stopped.set,), name="stop-zookeeper", daemon=True
        )
        try:
            stopping.start()
        except RuntimeError:
            # The interpreter is exiting and starts no more threads; no other task is left to block.
            self._stop(stopped.set)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(_STOP_WITHIN_S, self.timeout_s + 1)):
                await stopped.wait()

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Run on the event loop, from any thread; do nothing once the loop is closed."""
        # A store that nobody closed leaves kazoo's threads running when its loop is gone.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _stop(self, stopped: Callable[[], None]) -> None:
        """End the session, and say so on the event loop; blocks while kazoo's threads end."""
        try:
            self.client.stop()
            self.client.close()
        except (kazoo_errors.KazooException, OSError) as failure:
            _LOGGER.warning(
                "metadata client did not stop cleanly; service=%s cause=%r", self.service, failure
            )
        finally:
            self.post(stopped)

    def _on_state(self, state: str) -> None:
        # Read in kazoo's thread, which is the one that connects: when the loop gets to it, the
        # session may be another one already.
        is_connected = state == KazooState.CONNECTED
        with self._submitting:
            self._is_taking = is_connected
        client_id = self.client.client_id if is_connected else None
        if is_connected:
            self._handler.tls_failure = ""
        is_unauthenticated = self.client.client_state == KeeperState.AUTH_FAILED
        self.post(self._set_state, state, client_id[0] if client_id else 0, is_unauthenticated)
        if state == KazooState.SUSPENDED:
            # kazoo has ended what it had, and then calls this: what was handed to it in between would stay.
            # It offers no other way to have that ended.
            self.client._notify_pending(KeeperState.CONNECTING)

    async def _revive(self) -> None:
        """Until there is a connection: start kazoo's thread again whenever it has ended.

        An error it does not expect ends it for good; it says so only if it had a session then.
        """
        while not self._over.is_set() and not self._connected.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _RECONNECT["max_delay"])
            if self._over.is_set() or self.client.client_state != KeeperState.CLOSED:
                continue
            try:
                await asyncio.to_thread(self.client.start_async)
            except Exception as cause:  # noqa: BLE001 - kazoo raises bare ones here
                _LOGGER.warning("metadata client does not start again; cause=%r", cause)

    async def _look_for_reason(self) -> None:
        """Until there is a connection: find out whether one can be had at all."""
        while True:
            await asyncio.sleep(_LOOK_PAUSE_S)
            tls = self._access.tls
            context = None if tls is None else tls.client_context()
            newest = await newest_zxid(self.client.hosts, context)
            seen = self.client.last_zxid
            is_older = newest is not None and newest < seen
            if is_older and not self._hint:
                _LOGGER.error(
                    "metadata service takes no connection%s; service=%s zxid=%#x zxid_seen=%#x",
                    _OLDER,
                    self.service,
                    newest,
                    seen,
                )
            self._hint = _OLDER if is_older else ""

    def _set_state(self, state: str, session_id: int, is_unauthenticated: bool) -> None:
        self._is_unauthenticated = is_unauthenticated
        if state != KazooState.CONNECTED:
            self._connected.clear()
            if not self.is_closed:
                _LOGGER.warning(
                    "metadata connection lost; service=%s state=%s", self.service, state
                )
                if self._reviving is None or self._reviving.done():
                    self._reviving = self._loop.create_task(self._revive(), name="revive-zookeeper")
                if self._looking is None:
                    look = self._look_for_reason()
                    self._looking = self._loop.create_task(look, name="look-at-zookeeper")
            return
        if self._looking is not None:
            self._looking.cancel()
        self._looking, self._hint = None, ""
        # A reconnect in time keeps the session and its nodes; only another id means that they are
        # gone.
        is_new = session_id != self.id
        self.id = session_id
        self._connected.set()
        _LOGGER.info("metadata connected; service=%s session=%#x", self.service, session_id)
        if is_new:
            self._on_session_renewed()

    async def _connection(self, timeout_s: float, deadline_s: float) -> None:
        """Wait until there is a connection, at most until the deadline; ``timeout_s`` is for the error."""
        if self._connected.is_set():
            return  # every request comes here: no timer for those that need not wait
        if self._is_unauthenticated:
            raise self._no_access(_NOT_AUTHENTICATED, "/")
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._connected.wait()
        except TimeoutError as cause:
            raise MetadataUnavailableError(
                self.service, f"no connection within {round(timeout_s * 1000)} ms{self._reason()}"
            ) from cause

    def _reason(self) -> str:
        """Why there is no connection, as the end of a sentence; empty where that is not known."""
        failure = self._handler.tls_failure
        return f"; TLS failed: {failure}" if failure and not self._hint else self._hint

    async def _once(self, submit: Submit) -> Any:
        """Send one request once a connection is there, and wait for its answer."""
        answer = await self._submit(submit)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(future)
        try:
            # Called in a thread of kazoo's, where no future of asyncio may be touched.
            answer.rawlink(lambda result: self.post(_settle, future, result))
            async with asyncio.timeout(self.timeout_s):
                return await future
        except TimeoutError as cause:
            raise MetadataUnavailableError(
                self.service, f"no answer within {round(self.timeout_s * 1000)} ms"
            ) from cause
        finally:
            self._waiting.discard(future)

    async def _submit(self, submit: Submit) -> Any:
        """Hand a request to kazoo once a connection is there."""
        # Of them all together: connections may be made and lost faster than the loop hears of them.
        deadline_s = self._loop.time() + self.timeout_s
        while not self._over.is_set():
            await self._connection(self.timeout_s, deadline_s)
            with self._submitting:
                # It may have been close() that let us through.
                if self._is_taking and not self._over.is_set():
                    return submit()
            # Of the loss, and of the next connection, the loop will hear in a moment.
            self._connected.clear()
        raise ClientClosedError("metadata store")

    def _as_refusal(self, path: str, refusal: Exception) -> Exception:
        """Our error for a definite refusal; any other error means that the outcome is unknown."""
        if conflict := _CONFLICTS.get(type(refusal)):
            return conflict(path)
        if detail := _NO_ACCESS.get(type(refusal)):
            return self._no_access(detail, path)
        return MetadataUnavailableError(self.service, repr(refusal))

    def _no_access(self, detail: str, path: str) -> MetadataAccessError:
        return MetadataAccessError(detail, path, self._access.user, self.service)


def as_zookeepers(acl: Acl) -> list[ACL]:
    """The ACL as kazoo takes it."""
    return [ACL(grant.permissions, Id(grant.scheme, grant.id)) for grant in acl]


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    # Its caller gave up, by time or by cancellation, or the store was closed: nobody is left to
    # tell.
    if future.done():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)
