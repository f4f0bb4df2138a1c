"""Noted: what is logged once, however often it comes."""

from __future__ import annotations

_NOTES_MAX = 100
"""Senders look again and again for the bookie they mean; each that is missed is named once, up to this."""


class Noted:
    """Remembers what it was asked about."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def is_news(self, text: str) -> bool:
        """Whether this is asked for the first time, and not too much was before."""
        is_news = text not in self._noted and len(self._noted) < _NOTES_MAX
        if is_news:
            self._noted.add(text)
        return is_news
