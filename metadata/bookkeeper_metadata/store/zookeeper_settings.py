"""How a process gets into ZooKeeper, as settings: by TLS, as whom, and who else may use the nodes that it makes.

Paths and names only, so that they may travel, be logged and be compared; what is in the files is read by the process
that connects. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper_metadata.foundation.settings import Settings, variables_of
from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from bookkeeper_metadata.store.acl import has_administrator, parse_acl, shown_acl


@dataclass(frozen=True, kw_only=True)
class ZooKeeperSettings(Settings):
    """Parent of the settings of every process that connects; by itself, all that a connection needs."""

    zookeeper_trust_path: str = ""
    """PEM file of certificates that may vouch for ZooKeeper's servers, which are connected to by TLS then; their certificates must be for
    the hosts that the metadata service URI names. Empty: no TLS."""
    zookeeper_certificate_path: str = ""
    """PEM file with this process's certificate, for a ZooKeeper that asks for one. Empty: none."""
    zookeeper_key_path: str = ""
    """PEM file with the key of that certificate, not encrypted. Empty: it is in the same file."""
    zookeeper_auth_path: str = ""
    """File whose first line is `user:password`, as whom this process authenticates at ZooKeeper (its scheme `digest`). Every node
    that it creates is this user's then, and nobody else's unless `zookeeper_acl` says so. Empty: nobody, and nodes are anybody's."""
    zookeeper_acl: str = ""
    """Who else may use the nodes that this process creates: ZooKeeper's `scheme:id:cdrwa`, comma-separated, such as `world:anyone:r` or
    `digest:user:hash:cdrw`. It may name its own user, to have less than all."""

    def defects(self) -> list[str]:
        """Files that are no use without others, and an ACL that cannot be understood or that shuts everybody out."""
        needs = {
            "zookeeper_certificate_path": "zookeeper_trust_path",
            "zookeeper_key_path": "zookeeper_certificate_path",
        }
        found = [*super().defects(), *self.unmet(needs)]
        try:
            acl = parse_acl(self.zookeeper_acl)
        except ValueError as error:
            return [*found, f"zookeeper_acl {error}; zookeeper_acl={shown_acl(self.zookeeper_acl)}"]
        if acl and not self.zookeeper_auth_path and not has_administrator(acl):
            found.append(
                "zookeeper_acl without zookeeper_auth_path must grant somebody everything (cdrwa), or nodes could "
                f"never be changed again; zookeeper_acl={shown_acl(self.zookeeper_acl)}"
            )
        return found

    @property
    def zookeeper_tls_files(self) -> TlsFiles | None:
        """``None``: no TLS."""
        if not self.zookeeper_trust_path:
            return None
        return TlsFiles(
            self.zookeeper_trust_path, self.zookeeper_certificate_path, self.zookeeper_key_path
        )

    def of_zookeeper(self) -> dict[str, str]:
        """These settings alone, to make another process's with."""
        return {name: getattr(self, name) for name in ZOOKEEPER_VARIABLES}


ZOOKEEPER_VARIABLES = variables_of(ZooKeeperSettings)
"""The environment variable of each, for every kind of process and every client."""
