"""Launchers side by side draw ports from parts that do not overlap."""

from __future__ import annotations

import pytest

from spark_bookkeeper.local.ports import PORT_MIN, free_port

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
