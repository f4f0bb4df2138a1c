"""What a task may say, and whom it may fence, only after what: in every payload format."""

from __future__ import annotations

from typing import Any

import pytest

from spark_bookkeeper.ledger.errors import NotEnoughBookiesError
from tests.spark_bookkeeper.datasource.formats import EVERY_FORMAT
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, ids
from tests.spark_bookkeeper.datasource.world import FakeSpark

SMALL: dict[str, Any] = {"entrybytes": "2k", "compression": "none"}
"""Several entries of the rows below."""
ROWS = [batch(0, 300), batch(300, 300)]


def entries_of(world: FakeSpark) -> int:
    """How many entries such a task writes, the footer included."""
    world.attempt(world.plan(SCHEMA, **SMALL), 0, ROWS)
    (ledger,) = world.client.ledgers.values()
    return len(ledger.payloads)


def fails(*_: object) -> None:
    raise NotEnoughBookiesError(3, ())


@EVERY_FORMAT
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_task_reports_no_rows_of_which_one_entry_was_not_acknowledged(
    world: FakeSpark, place: str
) -> None:
    """The ledger would be closed before that entry, and the log would name rows that are nowhere."""
    count = entries_of(world)
    failing = {"first": 0, "middle": count // 2, "last": count - 1}[place]

    def refuse(ledger_id: int, entry_id: int) -> None:
        if (ledger_id, entry_id) == (1, failing):
            fails()

    world.client.before_acknowledge = refuse
    plan = world.plan(SCHEMA, **SMALL)
    with pytest.raises(NotEnoughBookiesError):
        world.attempt(plan, 0, ROWS)

    assert not world.client.ledgers[1].is_closed


@EVERY_FORMAT
def test_nothing_is_in_flight_when_the_ledger_is_closed_nor_open_when_it_is_named(
    world: FakeSpark,
) -> None:
    in_flight: list[int] = []
    world.client.before_close = lambda _: in_flight.append(world.client.in_flight_bytes)

    message = world.attempt(world.plan(SCHEMA, **SMALL), 0, ROWS)

    assert in_flight == [0]
    assert message.written is not None
    assert world.client.ledgers[message.written.ledger_id].is_closed
    assert message.written.rows == 600


@EVERY_FORMAT
@pytest.mark.parametrize("moment", ["first append", "append", "acknowledgement", "close"])
def test_an_attempt_that_may_still_fail_fences_no_earlier_one(
    world: FakeSpark, moment: str
) -> None:
    """Of two attempts at once the earlier may be the one that succeeds: it must find its ledger open."""
    plan = world.plan(SCHEMA, **SMALL)

    def hang_then_fail(ledger_id: int, entry_id: int) -> None:
        if (ledger_id, entry_id) == (0, 2):
            fails()

    world.client.before_append = hang_then_fail
    with pytest.raises(NotEnoughBookiesError):
        world.attempt(plan, 0, ROWS)
    seen: list[bool] = []

    def look(ledger_id: int, entry_id: int = 0) -> None:
        seen.append(world.client.ledgers[0].is_fenced)
        if moment != "first append" and entry_id == 0:
            return
        fails()

    def look_at_close(ledger_id: int) -> None:
        seen.append(world.client.ledgers[0].is_fenced)
        fails()

    world.client.before_append = look if "append" in moment else lambda *_: None
    world.client.before_acknowledge = look if moment == "acknowledgement" else lambda *_: None
    world.client.before_close = look_at_close
    with pytest.raises(NotEnoughBookiesError):
        world.attempt(plan, 0, ROWS)

    assert seen
    assert not any(seen)
    world.client.before_append = world.client.before_acknowledge = lambda *_: None
    world.client.before_close = lambda _: None
    done = world.attempt(plan, 0, ROWS)
    assert [ledger.is_fenced for ledger in world.client.ledgers.values()] == [True, True, False]
    world.commit(plan, [done])
    assert ids(world.read()) == list(range(600))
