"""The one error hierarchy of the project: what happened, and what the caller may conclude.

An error class is a declaration: a docstring, its flags, its fields and its ``message``, a template
over the fields. The constructor, and that errors pickle between Spark's processes, follow from it.
A message is lowercase, with the fields last as ``key=value``.

Every class carries Apache BookKeeper's numeric ``code`` where Apache has one, the stable ``name``
that users see (``BK_…``), and two flags that a caller acts on: ``retryable`` and ``definite``.
Source of codes: ``BKException.Code``.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, dataclass_transform


class _Sentence(string.Formatter):
    """Fills ``{field}`` and ``{field[0]}`` from an error's attributes.

    A tuple is joined by commas, or by what the template gives as format (``{differences:; }``). An
    empty one, and ``None``, read ``none``.
    """

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return getattr(args[0], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or value == ():
            return "none"
        if isinstance(value, tuple):
            return (format_spec or ",").join(map(str, value))
        return str(value)


_SENTENCE = _Sentence()
_KEY = re.compile(r"\b(\w+)=$")
"""What comes before a field that the message gives as a fact."""


@dataclass_transform(eq_default=False)
class BookKeeperError(Exception):
    """Root of everything this project raises on purpose."""

    code: ClassVar[int] = -999
    name: ClassVar[str] = "BK_UNEXPECTED"
    retryable: ClassVar[bool] = False
    """Doing the same thing again can succeed."""
    definite: ClassVar[bool] = False
    """It surely did not happen. ``False`` means "unknown": the effect may still become visible."""
    message: ClassVar[str] = ""
    """What ``str`` of the error says, with the fields' values in the place of ``{field}``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        # Pickle and repr make the error anew from its args, which hold no keyword arguments.
        self.args = tuple(getattr(self, field.name) for field in dataclasses.fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return _SENTENCE.format(self.message, self) if self.message else super().__str__()

    def facts(self) -> dict[str, str]:
        """The values that the message gives as ``key=value``, each whole: in the text nothing says where one ends."""
        found = {}
        for before, field, form, _ in _SENTENCE.parse(self.message):
            if field is not None and (key := _KEY.search(before)):
                value, _ = _SENTENCE.get_field(field, (self,), {})
                found[key[1]] = _SENTENCE.format_field(value, form or "")
        return found


class ClientClosedError(BookKeeperError):
    """This client or handle has been closed by its owner."""

    code = -19
    name = "BK_CLIENT_CLOSED"
    definite = True
    message = "already closed. what={what}"

    what: str
