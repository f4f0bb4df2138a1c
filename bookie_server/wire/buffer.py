"""Bytes as they travel: whole, or a view into something larger that is not copied."""

from __future__ import annotations

Buffer = bytes | memoryview
