"""Messages as text, as Apache writes some of its nodes."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
TEXT_SIZE_MAX, LINE_SIZE_MAX = 64 * 1024, 16 * 1024
"""Characters. Hundreds of bookies' names fit. To pass over fields that are not known takes time by the square of a line's
length: in a node of 512 KiB 40 s, in which nothing else of a process goes on."""


def parse_text(text: str, message: M) -> M:
    """The message with what the text says; fields that are not known are passed over, since newer versions may have more.

    Raises:
        ValueError: it says nothing of the kind, or more than anybody writes.
    """
    if len(text) > TEXT_SIZE_MAX or max(map(len, text.splitlines()), default=0) > LINE_SIZE_MAX:
        raise ValueError(f"{len(text)} characters, or a line, of more than anybody writes")
    try:
        return text_format.Parse(text, message, allow_unknown_field=True)
    # Unknown fields are passed over by a function that calls itself, however deep they are nested.
    except (text_format.ParseError, RecursionError) as error:
        raise ValueError(str(error)[:200]) from error
