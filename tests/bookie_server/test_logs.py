"""Log lines for machines."""

from __future__ import annotations

import json
import logging

from bookie_server.logs import JsonLines


def line(message: str, *arguments: object) -> dict[str, object]:
    record = logging.LogRecord("a.b", logging.WARNING, "", 0, message, arguments, None)
    found: dict[str, object] = json.loads(JsonLines().format(record))
    return found


def test_facts_of_a_line_are_fields_too() -> None:
    found = line("ledger is whole; ledger_id=%d to=%s, and log=orders.", 7, "127.0.0.1:3181")

    assert found["message"] == "ledger is whole; ledger_id=7 to=127.0.0.1:3181, and log=orders."
    assert found["facts"] == {"ledger_id": "7", "to": "127.0.0.1:3181", "log": "orders."}
    assert (found["level"], found["logger"]) == ("warning", "a.b")


def test_a_line_without_facts_has_none() -> None:
    assert "facts" not in line("elected as auditor.")
