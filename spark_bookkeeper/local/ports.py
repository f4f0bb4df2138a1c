"""Chooses TCP ports that stay free while the process that listens on them is down.

A bookie's id is its host and port, so a local cluster's ports live as long as its data. Ports are
drawn from below the kernel's ephemeral range: an outgoing connection can never take one while its
bookie is killed, nor can a client's connection attempt to a dead port connect to itself.

Two launchers may draw the same port while no process of either listens on it. Those that run side by
side are kept apart by ``BOOKKEEPER_LOCAL_PORTS``: with ``2/3`` in it a process, and whatever it
starts, draws from the second of three equal parts.
"""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
PORT_MIN = 12_000
"""Well-known services use the ports below."""

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_MIN_DEFAULT = 32_768
_PART_VARIABLE = "BOOKKEEPER_LOCAL_PORTS"
_ATTEMPTS_MAX = 1_000


def free_port(taken: set[int]) -> int:
    """Draw a loopback port that is free and not in ``taken``, and add it there.

    Raises:
        OSError: no free port was found in a thousand draws.
        ValueError: ``BOOKKEEPER_LOCAL_PORTS`` names no part.
    """
    ports = _ports_of_part(os.environ.get(_PART_VARIABLE, "1/1"), _ephemeral_min())
    draw = random.Random()  # seeded by the system: two clusters must not draw the same ports
    for _ in range(_ATTEMPTS_MAX):
        port = draw.choice(ports)
        if port not in taken and _is_free(port):
            taken.add(port)
            return port
    raise OSError(f"no free port on {LOOPBACK} between {ports.start} and {ports.stop}")


def is_listening(port: int) -> bool:
    """Whether a process accepts connections at this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def taken(port: int) -> str:
    """What to say of a port at which another process listens."""
    return f"another process has port {port} (`ss -ltnp` names it)"


def _ports_of_part(part: str, end: int) -> range:
    """Those below ``end`` that ``part`` (``k/n``) has to itself."""
    match = re.fullmatch(r"([1-9]\d?)/([1-9]\d?)", part)
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError(
            f"{_PART_VARIABLE} must be k/n, the k-th of at most 99 parts; got {part!r}"
        )
    number, count = int(match[1]), int(match[2])
    size = (end - PORT_MIN) // count
    return range(PORT_MIN + (number - 1) * size, PORT_MIN + number * size)


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
