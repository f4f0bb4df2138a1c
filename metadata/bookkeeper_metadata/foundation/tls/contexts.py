"""TLS of a process: contexts made of its PEM files, and made anew when the files change.

A certificate is replaced by replacing files; connections made from then on use the new one. Files that do not fit
together, as while they are being replaced, leave in force what was loaded before.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from typing import NoReturn
from weakref import WeakSet

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.secret_file import warn_of_readers
from bookkeeper_metadata.foundation.tls.settings import TlsFiles

_LOGGER = logging.getLogger(__name__)
_LOOK_AGAIN_S = 1.0
"""How often the files are looked at, by whoever makes a connection."""
_TRY_AGAIN_S = 10.0
"""How often ones are loaded that could not be, and have not changed since: it takes the event loop some milliseconds."""


class TlsFilesError(BookKeeperError):
    """A file that TLS needs is not there, or not what it should be; nothing was connected or served."""

    name = "BK_TLS_FILES"
    definite = True

    detail: str
    path: str
    message = "TLS needs another file: {detail}. path={path}"


@dataclass(frozen=True, slots=True)
class PemFiles:
    """What is in the files, for a library that takes no paths."""

    trust: bytes
    certificate: bytes | None
    key: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Loaded:
    client: ssl.SSLContext
    servers: dict[bool, ssl.SSLContext]
    """By whether a client must have a certificate."""
    pem: PemFiles


_known: WeakSet[Tls] = WeakSet()


def _renew_locks() -> None:
    for each in tuple(_known):
        each.renew_lock()


os.register_at_fork(after_in_child=_renew_locks)


class Tls:
    """Of one set of files; may be used by any thread.

    Raises:
        TlsFilesError: they are not all there, or do not fit together.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._lock = threading.Lock()
        _known.add(self)
        self._stamp = _stamp_of(files)
        """Of what is in force."""
        self._failed: tuple[object, str] = None, ""
        """The stamp of files that could not be loaded, and why."""
        self._try_at_s = 0.0
        self._loaded = _load(files)
        self._look_at_s = time.monotonic() + _LOOK_AGAIN_S
        self.generation = 0
        """How often other files have come into force."""

    def client_context(self) -> ssl.SSLContext:
        """For connecting; the peer's certificate must be for the host that is connected to."""
        return self._current().client

    def server_context(self, *, wants_certificate: bool) -> ssl.SSLContext:
        """For serving; ``wants_certificate``: from every client.

        Raises:
            TlsFilesError: there is no certificate to serve with.
        """
        current = self._current()
        if not current.servers:
            raise TlsFilesError("a server needs a certificate", self.files.certificate_path)
        return current.servers[wants_certificate]

    def pem(self) -> PemFiles:
        """The files' content."""
        return self._current().pem

    def renew_lock(self) -> None:
        """In a child: a thread of the parent may have held it, which is not here to let it go."""
        self._lock = threading.Lock()

    def look(self) -> None:
        """Look at the files, unless that was a moment ago."""
        self._current()

    def _current(self) -> _Loaded:
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._look_at_s:
                self._look_at_s = now_s + _LOOK_AGAIN_S
                self._load_changed()
            return self._loaded

    def _load_changed(self) -> None:
        stamp = _stamp_of(self.files)
        now_s = time.monotonic()
        if stamp == self._stamp or (stamp == self._failed[0] and now_s < self._try_at_s):
            return
        try:
            loaded = _load(self.files)
        except TlsFilesError as error:
            # Tried again by and by: it may be for want of descriptors, or of a right that somebody is about to give.
            self._try_at_s = now_s + _TRY_AGAIN_S
            if self._failed != (failed := (stamp, str(error))):
                self._failed = failed
                _LOGGER.warning("changed files of TLS are not used. error=%s", error)
            return
        self._stamp, self._failed = stamp, (None, "")
        # Touched, moved about, or given to somebody else, they are no others.
        if loaded.pem != self._loaded.pem:
            self._loaded = loaded
            self.generation += 1
            _LOGGER.info("changed files of TLS are used from now on. files=%s", self.files)


def tls_of(files: TlsFiles | None) -> Tls | None:
    """The one of these files in this process, if there are any; raises as :class:`Tls` does, and tries again next time."""
    return None if files is None else _one_of(files)


@cache
def _one_of(files: TlsFiles) -> Tls:
    return Tls(files)


def _stamp_of(files: TlsFiles) -> tuple[tuple[int, ...] | None, ...]:
    return tuple(map(_stamp, (files.trust_path, files.certificate_path, files.key_path)))


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _load(files: TlsFiles) -> _Loaded:
    # Before OpenSSL opens them, which would wait for a pipe.
    trust = _read(files.trust_path)
    key = certificate = None
    if files.certificate_path:
        certificate = _read(files.certificate_path, has_key=not files.key_path)
        key = _read(files.key_path, has_key=True) if files.key_path else certificate
    client = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    servers: dict[bool, ssl.SSLContext] = {}
    if files.certificate_path:
        for wants_certificate in (False, True):
            server = _context(ssl.PROTOCOL_TLS_SERVER, files)
            server.verify_mode = ssl.CERT_REQUIRED if wants_certificate else ssl.CERT_NONE
            server.num_tickets = 0
            servers[wants_certificate] = server
    return _Loaded(client, servers, PemFiles(trust, certificate, key))


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Nobody resumes a session here.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    # Python 3.11.2, of Debian 12, takes a connection that was cut for one that was ended; OpenSSL 1.1 has no such choice.
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    if context.check_hostname:
        # A common name is who somebody is, and no host.
        context.hostname_checks_common_name = False
    try:
        context.load_verify_locations(files.trust_path)
    except (OSError, ValueError) as error:
        raise TlsFilesError(
            f"no certificates to trust in it ({error})", files.trust_path
        ) from error
    if files.certificate_path:
        try:
            context.load_cert_chain(
                files.certificate_path, files.key_path or None, password=_refuse_password
            )
        except (OSError, ValueError) as error:
            paths = f"{files.certificate_path} {files.key_path}".strip()
            raise TlsFilesError(f"no certificate with its key ({error})", paths) from error
    return context


def _refuse_password() -> NoReturn:
    raise ValueError("the key is encrypted; decrypt it into a file that only this user can read")


def _read(path: str, *, has_key: bool = False) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise TlsFilesError("it is no ordinary file", path)
        if has_key:
            warn_of_readers(path)
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise TlsFilesError(getattr(error, "strerror", None) or str(error), path) from error
