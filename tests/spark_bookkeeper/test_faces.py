"""The blocking classes: documented, typed and called as the asyncio classes behind them."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, assert_type, get_type_hints

import pytest

from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper import (
    BookKeeper,
    Entry,
    Log,
    LogReader,
    LogWriter,
    Position,
    ReadHandle,
    WriteHandle,
    aio,
)
from spark_bookkeeper.ledger.client import BookieStatus, LedgerClient

FACES: dict[type, type] = {
    face: getattr(aio, face.__name__)
    for face in (BookKeeper, Log, LogReader, LogWriter, ReadHandle, WriteHandle)
}
OWN_SIGNATURES = {"append", "append_async"}
"""They take any buffer, and return a future for threads."""

OWN_DOCUMENTATION = {
    "BookKeeper.close",
    "LogWriter.abandon",
    "LogWriter.append_async",
    "WriteHandle.abandon",
    "WriteHandle.append_async",
}


def public_members() -> list[tuple[type, type, str]]:
    """What both classes of a pair have."""
    return [
        (face, asyncio_class, name)
        for face, asyncio_class in FACES.items()
        for name in vars(face)
        if not name.startswith("_") and hasattr(asyncio_class, name)
    ]


@pytest.mark.parametrize(("face", "asyncio_class", "name"), public_members())
def test_a_member_is_documented_as_that_of_the_asyncio_class(
    face: type, asyncio_class: type, name: str
) -> None:
    said, behind = getattr(face, name).__doc__, getattr(asyncio_class, name).__doc__

    assert said
    assert (said == behind) is (f"{face.__name__}.{name}" not in OWN_DOCUMENTATION)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize(("face", "asyncio_class", "name"), public_members())
def test_a_method_takes_what_the_asyncio_method_takes(
    face: type, asyncio_class: type, name: str
) -> None:
    method, behind = getattr(face, name), getattr(asyncio_class, name)
    if isinstance(method, property) or name in OWN_SIGNATURES:
        return

    assert parameters_of(method) == parameters_of(behind)
    assert not inspect.iscoroutinefunction(method)


def test_help_and_signature_of_the_client_say_everything() -> None:
    """The documentation stands in the ledger client, two classes below."""
    text = pydoc.plain(pydoc.render_doc(BookKeeper.create_ledger))
    signature = inspect.signature(BookKeeper.create_ledger)

    assert "function create_ledger in module" in text
    assert "NotEnoughBookiesError: the cluster never had ``write_quorum`` bookies" in text
    assert signature == inspect.signature(LedgerClient.create_ledger)
    assert signature.parameters["ack_quorum"].default == 2
    assert signature.parameters["ack_quorum"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "create_ledger(self, *, ensemble_size:" in pydoc.plain(pydoc.render_doc(BookKeeper))


def test_what_a_method_returns_is_a_face_as_well() -> None:
    returned = {
        "create_ledger": WriteHandle,
        "open_ledger": ReadHandle,
        "create_log": Log,
        "open_log": Log,
        "ledger_metadata": LedgerMetadata,
    }

    assert {name: get_type_hints(getattr(BookKeeper, name))["return"] for name in returned} == (
        returned
    )
    assert get_type_hints(Log.writer)["return"] is LogWriter


if TYPE_CHECKING:
    # Never runs: mypy reads it, and strict mode refuses a ``type: ignore`` that hides nothing.
    def types_of_a_client(bk: BookKeeper) -> None:
        assert_type(bk.create_ledger(ensemble_size=3, password=b"s"), WriteHandle)
        assert_type(bk.open_ledger(7, recovery=True), ReadHandle)
        assert_type(bk.delete_ledger(7, force=True), None)
        assert_type(bk.ledger_metadata(7), LedgerMetadata)
        assert_type(bk.list_ledgers(), Iterator[int])
        assert_type(bk.bookies(), list[BookieStatus])
        assert_type(bk.create_log("orders", schema=b""), Log)
        assert_type(bk.open_log("orders"), Log)
        assert_type(bk.list_logs(), list[str])
        bk.create_ledger(3)  # type: ignore[call-arg]
        bk.create_ledger(ensemble_size="3")  # type: ignore[arg-type]
        bk.open_ledger(ledger="7")  # type: ignore[call-arg]
        bk.delete_ledger()  # type: ignore[call-arg]

    def types_of_handles(log: Log, reader: ReadHandle, writer: WriteHandle) -> None:
        assert_type(log.writer(password=b"s"), LogWriter)
        assert_type(log.transactions(), dict[str, int])
        assert_type(log.truncate(before=5), int)
        assert_type(log.schema, bytes)
        assert_type(log.reader("earliest"), LogReader)
        assert_type(next(log.tail()), tuple[Position, Entry])
        assert_type(reader.read_last_add_confirmed(), int)
        assert_type(reader.read(0, 1), Iterator[Entry])
        assert_type(reader.metadata, LedgerMetadata)
        assert_type(writer.append(b"x"), int)
        assert_type(writer.flush(), None)
        log.truncate("5")  # type: ignore[arg-type]
        log.writer(settings=3)  # type: ignore[arg-type]

    async def types_of_the_asyncio_client(bk: aio.BookKeeper) -> None:
        assert_type(await bk.create_ledger(ack_quorum=2), aio.WriteHandle)
        assert_type(await bk.open_ledger(7, password=b"s"), aio.ReadHandle)
        await bk.create_ledger(ack_quorum=None)  # type: ignore[arg-type]
