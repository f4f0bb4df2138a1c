"""Why a port cannot be had, by which setting it was chosen, and what to do."""

from __future__ import annotations

import errno
import socket

from bookkeeper_metadata.foundation.errors import BookKeeperError


class PortUnavailableError(BookKeeperError):
    """A process cannot listen where it is told to: another one does, or this machine does not allow it."""

    name = "BK_PORT_UNAVAILABLE"
    definite = True

    detail: str
    address: str
    setting: str
    message = "cannot listen: {detail}. address={address} setting={setting}"


def port_unavailable(
    cause: OSError, host: str, port: int, setting: str, *, host_setting: str = "", remark: str = ""
) -> PortUnavailableError:
    """The error of a process that was refused a port.

    ``setting`` names the port's, and with ``host`` in the place of ``port`` the host's, unless that is another; each is
    a flag as well. ``remark``: what else to know of another port.
    """
    reason = cause.strerror or str(cause)
    if isinstance(cause, socket.gaierror) or cause.errno == errno.EADDRNOTAVAIL:
        setting = host_setting or setting.replace("port", "host")
        detail = (
            f"this machine has no such address ({reason}); choose another with {_flag(setting)}"
        )
    else:
        if cause.errno == errno.EADDRINUSE:
            reason = "another process has this port; end it (`ss -ltnp` names it), or"
        elif cause.errno == errno.EACCES:
            reason = "only the system may have this port;"
        else:
            reason += ";"
        detail = f"{reason} choose another port with {_flag(setting)}{remark}"
    return PortUnavailableError(detail, f"{host}:{port}", setting)


def _flag(setting: str) -> str:
    return "--" + setting.replace("_", "-")
