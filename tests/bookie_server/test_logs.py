"""Log lines for machines."""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import suppress
from itertools import takewhile

import pytest

from bookie_server import logs
from bookie_server.logs import ALIKE_MAX, SIZE_MAX, FewAlike, JsonLines, QueuedLines
from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from tests.patience import seconds

FILLER = "x" * 100


def line(message: str, *arguments: object) -> dict[str, object]:
    record = logging.LogRecord("a.b", logging.WARNING, "", 0, message, arguments, None)
    found: dict[str, object] = json.loads(JsonLines().format(record))
    return found


def test_facts_of_a_line_are_fields_too() -> None:
    found = line("ledger is whole; ledger_id=%d to=%s, and log=%s.", 7, "127.0.0.1:3181", "orders")

    assert found["message"] == "ledger is whole; ledger_id=7 to=127.0.0.1:3181, and log=orders."
    assert found["facts"] == {"ledger_id": "7", "to": "127.0.0.1:3181", "log": "orders"}
    assert (found["level"], found["logger"]) == ("warning", "a.b")


def test_a_line_without_facts_has_none() -> None:
    assert "facts" not in line("elected as auditor.")
    assert "facts" not in line("stream or request refused by %s", "somebody")


@pytest.mark.parametrize(
    "value",
    [
        "some words",
        ["a:1", "b:2"],
        ("a", "b"),
        {"a": 1, "b": [2, 3]},
        'it\'s "said"',
        "a=b; c=d, e",
        "first line\nsecond=line",
        "unclosed [ and ' and \"",
        "",
        " 100 % ",
        "ends here.",
    ],
    ids=repr,
)
def test_a_value_arrives_whole_whatever_it_holds(value: object) -> None:
    """Also between others, and none of what it holds becomes a fact of the line."""
    found = line("marked (%s). first=%d what=%s last=%.1f", "by hand", 1, value, 2.0)

    assert found["facts"] == {"first": "1", "what": str(value), "last": "2.0"}


def test_a_value_of_several_places_and_signs_is_one() -> None:
    found = line("disconnected (peer=%s:%d): full=%d%% hex=%#x", "127.0.0.1", 3181, 7, 255)

    assert found["facts"] == {"peer": "127.0.0.1:3181", "full": "7%", "hex": "0xff"}


@pytest.mark.parametrize("place", ["%s", "%r"])
def test_facts_of_an_error_arrive_whole_beside_those_of_its_line(place: str) -> None:
    error = MetadataConflictError("the log's head, behind x=1", "somebody else's write")

    found = line(f"not swept. what=%s detail={place}", "orders", error)
    behind = line(f"not swept. ledger_id=%d detail={place}", 7, error)

    detail = str(error) if place == "%s" else repr(error)
    assert found["facts"] == {"what": "orders", "detail": detail, "x": "1"}
    assert behind["facts"] == {
        "ledger_id": "7",
        "detail": detail,
        "what": "the log's head, behind x=1",
        "x": "1",
    }


def test_facts_within_a_text_are_found_up_to_their_end() -> None:
    """Some parts of a line are made elsewhere, and come as text."""
    whom = "bookie_id=b1 port=3181,8000 bookies=['a', 'b'] why='no \\'room\\' left', readonly=False"

    found = line("bookie ready. %s pid=%d", whom, 9)

    assert found["facts"] == {
        "bookie_id": "b1",
        "port": "3181,8000",
        "bookies": "['a', 'b']",
        "why": "'no \\'room\\' left'",
        "readonly": "False",
        "pid": "9",
    }


def test_facts_of_a_message_that_is_text_already_or_of_another_kind_are_found() -> None:
    assert line("left a=1,b=2; c=(3, 4)")["facts"] == {"a": "1", "b": "2", "c": "(3, 4)"}
    assert line("took a=%(a)s b=2", {"a": 1})["facts"] == {"a": "1", "b": "2"}
    assert line("took a=%*d b=%d", 1, 1, 2)["facts"] == {"a": "1", "b": "2"}


def test_an_error_gives_its_facts_as_its_message_does() -> None:
    assert MetadataUnavailableError("a:1,b:2", "no connection").facts() == {"service": "a:1,b:2"}


def test_nobody_waits_for_who_reads_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pipe that is full the event loop of a bookie stood still."""
    monkeypatch.setattr(logs, "_FLUSH_WITHIN_S", 0.1)
    read_end, write_end = os.pipe()
    logger = logging.Logger("a.b")
    with (
        open(read_end, encoding="utf-8") as reader,
        open(write_end, "w", encoding="utf-8") as stream,
    ):
        handler = QueuedLines(stream)
        logger.addHandler(handler)
        sent = 2 * SIZE_MAX // len(FILLER)
        for number in range(sent):
            logger.warning("%d %s", number, FILLER)
        handler.flush()  # nor for ever at the end of a process

        monkeypatch.setattr(logs, "_FLUSH_WITHIN_S", seconds(60))
        kept: list[str] = []
        reading = threading.Thread(
            target=lambda: kept.extend(takewhile(lambda each: each != "end\n", reader))
        )
        reading.start()
        handler.flush()
        logger.warning("end")
        reading.join()
        handler.flush()

    left_out = sum(int(each.rpartition("count=")[2]) for each in kept if "left out" in each)
    numbers = [int(each.split()[0]) for each in kept if FILLER in each]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + left_out == sent
    assert left_out
    assert len(numbers) >= SIZE_MAX // 2 // len(FILLER)


def test_what_was_left_out_is_told_at_the_end_though_nothing_more_is_logged() -> None:
    read_end, write_end = os.pipe()
    logger = logging.Logger("a.b")
    kept: list[str] = []
    with open(read_end, encoding="utf-8") as reader:
        with open(write_end, "w", encoding="utf-8") as stream:
            handler = QueuedLines(stream)
            logger.addHandler(handler)
            # More than the pipe takes, and alone more than may wait.
            logger.warning("y" * (SIZE_MAX + 1))
            for _ in range(3):
                logger.warning("one too many")
            reading = threading.Thread(target=lambda: kept.extend(reader))
            reading.start()
            handler.flush()
        reading.join()
    assert [each.rpartition(": ")[2] for each in kept[1:]] == ["nobody reads it. count=3\n"]


def test_a_reader_that_has_gone_keeps_nobody_from_logging() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with suppress(BrokenPipeError), open(write_end, "w", encoding="utf-8") as stream:
        handler = QueuedLines(stream)
        logger = logging.Logger("a.b")
        logger.addHandler(handler)
        logger.warning("a line")
        logger.warning("a line")
        handler.flush()
    assert not handler._waiting_size


def test_a_pipe_that_does_not_block_loses_nothing() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    text = "y" * 1_000_000
    with (
        open(read_end, encoding="utf-8") as reader,
        open(write_end, "w", encoding="utf-8") as stream,
    ):
        handler = QueuedLines(stream)
        logger = logging.Logger("a.b")
        logger.addHandler(handler)
        logger.warning(text)
        logger.warning("end")
        assert reader.readline() == text + "\n"
        assert reader.readline() == "end\n"
        handler.flush()


class Heard:
    """The lines that are let through."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._few = FewAlike(lambda: self.now_s)

    def lines(
        self, times: int, name: str = "bookie_server.serving.acceptor", level: int = logging.WARNING
    ) -> list[str]:
        records = [
            logging.LogRecord(name, level, "", 0, "refused. peer=%s", (each,), None)
            for each in range(times)
        ]
        return [record.getMessage() for record in records if self._few.filter(record)]


def test_of_warnings_about_strangers_few_are_written_and_the_others_counted() -> None:
    heard = Heard()
    lines = heard.lines(10 * ALIKE_MAX)
    assert len(lines) == ALIKE_MAX
    assert lines[0] == "refused. peer=0"
    assert lines[-1] == "refused. peer=99 (of these no more for up to a minute)"
    heard.now_s = 59.9
    assert heard.lines(1) == []
    heard.now_s = 60.0
    assert heard.lines(2) == ["refused. peer=0 alike_left_out=901", "refused. peer=1"]
    heard.now_s = 120.0
    assert heard.lines(1) == ["refused. peer=0"]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("bookie_server.serving.acceptor", logging.ERROR),
        ("bookie_server.serving.adds", logging.DEBUG),
        ("bookie_server.audit", logging.WARNING),
        ("spark_bookkeeper.replication.auditor", logging.WARNING),
    ],
)
def test_all_others_are_written(name: str, level: int) -> None:
    assert len(Heard().lines(3 * ALIKE_MAX, name, level)) == 3 * ALIKE_MAX
