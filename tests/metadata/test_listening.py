"""What is said of a port that cannot be had: which, why, by which setting it was chosen, and what to do."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from bookkeeper_metadata.foundation.listening import port_unavailable


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (
            OSError(errno.EADDRINUSE, "Address already in use"),
            "another process has this port; end it (`ss -ltnp` names it), or choose another port "
            "with --http-port. address=h:80 setting=http_port",
        ),
        (
            OSError(errno.EACCES, "Permission denied"),
            "only the system may have this port; choose another port with --http-port. "
            "address=h:80 setting=http_port",
        ),
        (
            OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
            "this machine has no such address (Cannot assign requested address); "
            "choose another with --http-host. address=h:80 setting=http_host",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "this machine has no such address (Name or service not known); "
            "choose another with --http-host. address=h:80 setting=http_host",
        ),
        (
            OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
            "Too many open files; choose another port with --http-port. "
            "address=h:80 setting=http_port",
        ),
    ],
    ids=["taken", "the system's", "not here", "unknown", "another reason"],
)
def test_each_reason_has_its_advice(cause: OSError, said: str) -> None:
    error = port_unavailable(cause, "h", 80, "http_port")

    assert str(error) == f"cannot listen: {said}"
    assert error.definite


def test_a_remark_stands_beside_the_port_only() -> None:
    taken, away = (
        str(port_unavailable(OSError(number, "no"), "h", 1, "port", remark=", and more"))
        for number in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
    )

    assert "with --port, and more. address" in taken
    assert "and more" not in away
