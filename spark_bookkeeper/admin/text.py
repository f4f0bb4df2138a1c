"""Bytes of others as text that can be shown to people."""

from __future__ import annotations


def printable(value: bytes) -> str:
    """Bytes as text where they are text, else as ``0x…``."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + value.hex()
    return text if text.isprintable() else "0x" + value.hex()
