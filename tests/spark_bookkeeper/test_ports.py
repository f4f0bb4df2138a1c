"""Launchers side by side draw ports from parts that do not overlap."""

from __future__ import annotations

import socket

import pytest

from spark_bookkeeper.local import ports
from spark_bookkeeper.local.ports import LOOPBACK, PORT_MIN, free_port

VARIABLE = "BOOKKEEPER_LOCAL_PORTS"


def drawn(part: str, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Many ports, as a process with this part draws them."""
    monkeypatch.setenv(VARIABLE, part)
    taken: set[int] = set()
    for _ in range(200):
        free_port(taken)
    return taken


def test_parts_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [drawn(part, monkeypatch) for part in ("1/3", "2/3", "3/3")]

    assert min(parts[0]) >= PORT_MIN
    assert max(parts[0]) < min(parts[1])
    assert max(parts[1]) < min(parts[2])


@pytest.mark.parametrize("part", ["", "0/2", "3/2", "1", "1/0", "1/100", "a/b", " 1/2"])
def test_what_names_no_part_is_refused(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, part)

    with pytest.raises(ValueError, match=f"{VARIABLE} must be k/n"):
        free_port(set())


@pytest.mark.parametrize("count", [1, 2, 3, 7, 99])
def test_no_port_belongs_to_two_parts(count: int) -> None:
    parts = [ports._ports_of_part(f"{number}/{count}", 32_768) for number in range(1, count + 1)]

    assert len(set().union(*parts)) == sum(map(len, parts)) > 20_000
    assert min(parts[0]) == PORT_MIN
    assert max(parts[-1]) < 32_768


def only(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_ports_of_part", lambda part, end: range(port, port + 1))


def test_a_port_in_use_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as used:
        used.bind((LOOPBACK, 0))
        only(used.getsockname()[1], monkeypatch)

        with pytest.raises(OSError, match="no free port"):
            free_port(set())


def test_a_port_drawn_before_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bookie may be down at the moment."""
    taken: set[int] = set()
    only(free_port(taken), monkeypatch)

    with pytest.raises(OSError, match="no free port"):
        free_port(taken)
