"""A checkpoint's plan is one instant, whatever happens before its thread comes to writing it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from bookie_server.core.effects import Persist
from bookie_server.core.records import Add, ExplicitLac, Fence, MasterKey
from bookie_server.journal_thread import GROUP_PERSISTS_MAX, take_group
from bookie_server.storage.index.handle_state import decode_handle_state
from bookie_server.wire.record import encode_lac_packet
from tests.doubles.records import CRC32C, KEY, section
from tests.simulation.kit.storage_model import Model, run_of, started

PACKET = encode_lac_packet(CRC32C, 1, 3)
CHANGES: dict[str, Callable[[Model], None]] = {
    "fence": lambda model: model.write([Fence(1)]),
    "add": lambda model: model.write([Add(section([b"x"], 5, ledger_id=1, lac=4).run)]),
    "packet": lambda model: model.write([ExplicitLac(1, PACKET)]),
    "hint": lambda model: model.storage.contents.remember_lac(1, PACKET),
    "key": lambda model: model.write([MasterKey(1, KEY)]),
    "limbo": lambda model: model.storage.contents.set_limbo([1]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_after_a_checkpoint_began_is_the_next_ones(
    change: Callable[[Model], None],
) -> None:
    """A plan has the handle states themselves; a mark and the state beside it belong together."""
    model = started()
    model.write([Add(run_of(1, range(5)))])
    contents = model.storage.contents
    plan = contents.begin_checkpoint()
    assert plan is not None
    as_begun = repr(contents.ledgers[1])

    change(model)
    changed = repr(contents.ledgers[1])
    contents.finish_checkpoint(model.storage.checkpoints.write(plan))

    index = model.storage.checkpoints._indexes[0]
    assert changed != as_begun
    assert repr(decode_handle_state(index.handles[1])) == as_begun
    following = contents.begin_checkpoint()
    assert following is not None
    contents.finish_checkpoint(model.storage.checkpoints.write(following))
    assert repr(decode_handle_state(index.handles[1])) == changed


def test_a_group_of_the_smallest_adds_is_bounded_by_their_number() -> None:
    """The loop applies a group in one step, and 40,000 adds of 100 bytes fit into one."""
    added = Add(section([b""]).run)
    waiting = deque(Persist(ticket, 7, (added,), ()) for ticket in range(GROUP_PERSISTS_MAX + 1))

    group = take_group(waiting, 4 * 1024 * 1024)

    assert (len(group), len(waiting)) == (GROUP_PERSISTS_MAX, 1)
