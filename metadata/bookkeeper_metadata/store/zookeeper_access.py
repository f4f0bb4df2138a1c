"""What a connection to ZooKeeper is made with: the content of the files that the settings name."""

from __future__ import annotations

from dataclasses import dataclass, field

from bookkeeper_metadata.errors import CredentialsFileError
from bookkeeper_metadata.foundation.secret_file import read_secret
from bookkeeper_metadata.foundation.tls.contexts import Tls, tls_of
from bookkeeper_metadata.store.acl import (
    OPEN,
    Acl,
    Identity,
    acl_for,
    digest_id,
    has_administrator,
    parse_acl,
)
from bookkeeper_metadata.store.zookeeper_settings import ZooKeeperSettings


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """Ready to connect with."""

    tls: Tls | None = None
    credential: str = field(default="", repr=False)
    """``user:password``; empty: nobody's."""
    acl: Acl = OPEN
    """Of every node that is created."""

    @property
    def user(self) -> str | None:
        """As whom, for messages."""
        return self.credential.partition(":")[0] or None

    @property
    def identity(self) -> Identity | None:
        """As whom, in ACLs."""
        return ("digest", digest_id(self.credential)) if self.credential else None


def load_access(settings: ZooKeeperSettings) -> ZooKeeperAccess:
    """Read the files.

    Raises:
        TlsFilesError, CredentialsFileError: one is not there, or not what it should be; names it.
    """
    tls = tls_of(settings.zookeeper_tls_files)
    others = parse_acl(settings.zookeeper_acl)
    if not settings.zookeeper_auth_path:
        return ZooKeeperAccess(tls, acl=others or OPEN)
    credential = _read_credential(settings.zookeeper_auth_path)
    acl = acl_for(credential, others)
    if not has_administrator(acl):
        raise CredentialsFileError(
            "zookeeper_acl gives its user less than everything, and nobody else everything: nodes could never be changed again",
            settings.zookeeper_auth_path,
        )
    return ZooKeeperAccess(tls, credential, acl)


def _read_credential(path: str) -> str:
    try:
        line = read_secret(path).decode()
    # Without causes: one would show bytes of the password.
    except UnicodeDecodeError:
        raise CredentialsFileError("it is not UTF-8", path) from None
    except OSError as error:
        raise CredentialsFileError(error.strerror or str(error), path) from None
    if line.startswith("\ufeff"):
        raise CredentialsFileError("it begins with a byte order mark", path)
    user, _, password = line.partition(":")
    if not user.strip() or not password:
        raise CredentialsFileError("its first line is not user:password", path)
    return line
