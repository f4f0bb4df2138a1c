"""Every error there is keeps the promises of its declaration: it travels, and it says what it knows."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark import cloudpickle

import bookie_server
import bookkeeper_metadata
import spark_bookkeeper
from bookkeeper_metadata.foundation.errors import BookKeeperError
from scripts.generate_documents import errors_document
from scripts.operators_errors import OPERATORS
from spark_bookkeeper.cli import commands, run
from spark_bookkeeper.datasource.errors import as_source_error
from spark_bookkeeper.datasource.explanations import EXPLANATIONS
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError, UnauthorizedError
from spark_bookkeeper.log.errors import EpochFencedError, LogFencedError

PACKAGES = (bookkeeper_metadata, bookie_server, spark_bookkeeper)
SAMPLES: dict[object, object] = {
    int: 1_700_000_000_001,
    int | None: 1_700_000_000_002,
    str: "what it is about",
    str | None: "what it may be about",
    tuple[str, ...]: ("first", "second"),
    tuple[int, int]: (1_700_000_000_003, 1_700_000_000_004),
    tuple[int, str]: (1_700_000_000_005, "with a name"),
}
"""A value for a field of each type, to be found again in the message."""
DUMPS: tuple[Callable[[object], bytes], ...] = (pickle.dumps, cloudpickle.dumps)
SHOWN_AS_TIME = {"timestamp_ms", "last_commit_ms"}
"""Fields that a message writes in ISO 8601."""
SHARES_A_NAME: set[type[BookKeeperError]] = {LogFencedError, EpochFencedError}
"""BK_FENCED is what all of a writer's errors are called whose place another took."""


def _subclasses(of: type[BookKeeperError]) -> Iterator[type[BookKeeperError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _subclasses(kind)


def _every_error() -> list[type[BookKeeperError]]:
    """The product's error classes, wherever one is declared."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    own = tuple(package.__name__ + "." for package in PACKAGES)
    found = {kind for kind in _subclasses(BookKeeperError) if kind.__module__.startswith(own)}
    return sorted(found, key=lambda kind: kind.__name__)


ERRORS = _every_error()
every_error = pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)


def sample_fields(kind: type[BookKeeperError]) -> dict[str, object]:
    hints = typing.get_type_hints(kind)
    return {name: SAMPLES[hints[name]] for name in kind.__match_args__}  # type: ignore[attr-defined]


@every_error
def test_an_error_survives_the_way_between_processes(kind: type[BookKeeperError]) -> None:
    fields = sample_fields(kind)
    by_position, by_keyword = kind(*fields.values()), kind(**fields)
    by_keyword.add_note("seen on executor 3")

    for error in (by_position, by_keyword):
        for dumps in DUMPS:
            found = pickle.loads(dumps(error))

            assert (type(found), found.args, vars(found)) == (kind, error.args, vars(error))
            assert (str(found), repr(found)) == (str(error), repr(by_position))
            assert isinstance(found, kind.__bases__)
            assert {name: getattr(found, name) for name in fields} == fields


def test_an_error_of_a_users_own_program_travels_with_its_class() -> None:
    class OwnError(BookKeeperError, ValueError):
        """Declared in a function, so that cloudpickle sends the class too."""

        rows: int
        causes: tuple[str, ...] = ()
        message = "own error. rows={rows} causes={causes:; }"

    sent: bytes = cloudpickle.dumps(  # type: ignore[no-untyped-call]
        (OwnError(rows=3, causes=("a", "b")), OwnError(4))
    )
    error, other = pickle.loads(sent)

    assert str(error) == "own error. rows=3 causes=a; b"
    assert str(other) == "own error. rows=4 causes=none"
    assert (error.args, other.args) == ((3, ("a", "b")), (4, ()))
    assert isinstance(error, ValueError)


@every_error
def test_a_message_names_every_field_of_its_error(kind: type[BookKeeperError]) -> None:
    fields = sample_fields(kind)
    said = str(kind(**fields))

    for name in set(fields) - SHOWN_AS_TIME:
        value = fields[name]
        for part in value if isinstance(value, tuple) else (value,):
            assert str(part) in said, f"{name} is not in: {said}"
    assert said.count("2023-11-14T22:13:20") == len(SHOWN_AS_TIME & set(fields))
    assert "log" not in fields or f"log={fields['log']}" in said
    assert not re.search(r"\{|\}|\.\.$", said)


def test_where_there_is_nothing_to_name_a_message_says_none() -> None:
    for kind in ERRORS:
        hints = typing.get_type_hints(kind)
        fields = sample_fields(kind)
        empty = {
            name: () if hints[name] == tuple[str, ...] else None
            for name in fields
            if hints[name] in (tuple[str, ...], str | None, int | None)
        }
        said = str(kind(**{**fields, **empty}))

        assert said.count("none") >= len(empty), said
        assert "None" not in said


def test_no_two_errors_share_a_name_or_a_code() -> None:
    own = [kind for kind in ERRORS if kind not in SHARES_A_NAME]
    names = Counter(vars(kind).get("name") for kind in own)
    codes = Counter(kind.code for kind in own if kind.code != BookKeeperError.code)

    assert [name for name, count in names.items() if count > 1 or name is None] == []
    assert [code for code, count in codes.items() if count > 1] == []
    assert {kind.name for kind in SHARES_A_NAME} == {"BK_FENCED"}


def test_every_error_is_raised_by_something() -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for package in PACKAGES
        for root in package.__path__
        for path in Path(root).rglob("*.py")
    ]

    for kind in ERRORS:
        assert any(re.search(rf"(?<!class ){kind.__name__}\(", text) for text in texts), kind


def test_every_error_that_reaches_spark_is_explained_and_no_other(repository: Path) -> None:
    modules = (
        "bookkeeper_metadata.errors",
        "bookkeeper_metadata.foundation.errors",
        "bookkeeper_metadata.foundation.tls",
        "spark_bookkeeper.ledger.errors",
        "spark_bookkeeper.log.errors",
        "spark_bookkeeper.datasource.errors",
    )
    names = {kind.name for kind in ERRORS if kind.__module__ in modules}
    source = (repository / "spark_bookkeeper/datasource/errors.py").read_text(encoding="utf-8")
    names |= set(re.findall(r'SourceError\(\s*"(BK_\w+)"', source))

    assert set(EXPLANATIONS) == names | {BookKeeperError.name}
    for name, found in EXPLANATIONS.items():
        for text in (found.cause, found.safety, found.action):
            assert re.fullmatch(r"[A-Z`].*\.", text), f"{name}: a sentence, please: {text}"


def test_every_other_error_is_explained_to_operators() -> None:
    """A bookie that refuses its disks, a local cluster that does not start: no document had them."""
    others = {kind.name for kind in ERRORS} - set(EXPLANATIONS)

    assert set(OPERATORS) == others | {"BK_BOOKIE_FAILED", "BK_INSECURE", "BK_USAGE"}
    document = errors_document()
    for kind in ERRORS:
        assert f"\n## {kind.name}\n" in document
        assert f"`{kind.__name__}`, " in document, kind
    for name, found in OPERATORS.items():
        for text in (found.cause, found.safety, found.action):
            assert re.fullmatch(r"[A-Z`].*\.", text), f"{name}: a sentence, please: {text}"


def test_an_error_tells_spark_its_name_whether_data_is_safe_and_what_to_do() -> None:
    class Lost(BookKeeperError):
        name = "BK_ENTRY_UNREADABLE"
        message = "no replica returned the entry. ledger_id=7"

    class Said(BookKeeperError):
        name = "BK_LOG_CONFLICT"
        message = "run it again. log=orders"

    assert str(as_source_error(Lost())) == (
        "[BK_ENTRY_UNREADABLE] no replica returned the entry. ledger_id=7. Nothing is known to be "
        "lost. Bring the ledger's bookies back, and read again."
    )
    assert str(as_source_error(Said())) == "[BK_LOG_CONFLICT] run it again. log=orders"


def test_the_command_line_says_when_trying_again_can_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for error in (NotEnoughBookiesError(3, ("b1",)), UnauthorizedError(7)):
        monkeypatch.setattr(commands, "main", Mock(side_effect=error))
        assert run([]) == 1
        said.append(capsys.readouterr().err)

    assert said == [
        "BK_NOT_ENOUGH_BOOKIES: not enough bookies; start those that are away, or more. "
        "needed=3 available=b1 away=none (trying again can help)\n",
        "BK_UNAUTHORIZED: wrong ledger password; pass the one the ledger was created with. "
        "ledger_id=7\n",
    ]
