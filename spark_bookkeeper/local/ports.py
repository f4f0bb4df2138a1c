"""Chooses TCP ports that stay free while the process that listens on them is down.

A bookie's id is its host and port, so a local cluster's ports live as long as its data. Ports are
drawn from below the kernel's ephemeral range: an outgoing connection can never take one while its
bookie is killed, nor can a client's connection attempt to a dead port connect to itself.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
PORT_MIN = 12_000
"""Well-known services use the ports below."""

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_MIN_DEFAULT = 32_768
_ATTEMPTS_MAX = 1_000


def free_port(taken: set[int]) -> int:
    """Draw a loopback port that is free and not in ``taken``, and add it there.

    Raises:
        OSError: no free port was found in a thousand draws.
    """
    draw = random.Random()  # seeded by the system: two clusters must not draw the same ports
    for _ in range(_ATTEMPTS_MAX):
        port = draw.randrange(PORT_MIN, _ephemeral_min())
        if port not in taken and _is_free(port):
            taken.add(port)
            return port
    raise OSError(f"no free port on {LOOPBACK} between {PORT_MIN} and {_ephemeral_min()}")


def is_listening(port: int) -> bool:
    """Whether a process accepts connections at this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _ephemeral_min() -> int:
    try:
        low = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL_MIN_DEFAULT
    # A range that begins so low leaves too few ports below it: take some of its own, then.
    return low if low > PORT_MIN + 1_000 else _EPHEMERAL_MIN_DEFAULT
