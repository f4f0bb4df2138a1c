"""The writer's state machine under whatever order of appends, answers and changes comes."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bookie_server.wire.add_frames import parse_frame
from bookie_server.wire.messages import Status
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    ChangeEnsemble,
    Effect,
    FailPending,
    Release,
    SendSection,
)
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from tests.spark_bookkeeper.ledger.protocol.writers import writer


class WriterWorld:
    """Bookies that store or fail, metadata that replaces them, and what must hold throughout."""

    def __init__(self, state: WriterState, random: Random) -> None:
        self.state = state
        self.random = random
        self.out: list[SendSection] = []
        self.change: ChangeEnsemble | None = None
        self.stored: dict[str, set[int]] = {}
        self.fragments = [(0, state.ensemble)]
        self.spares = [f"s{i}" for i in range(6)]
        self.on_released = 0
        self.confirmed = -1

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendSection():
                    self.out.append(effect)
                case ChangeEnsemble():
                    assert self.change is None
                    assert effect.first_entry == self.confirmed + 1
                    self.change = effect
                case Acknowledge(last_entry):
                    assert self.change is None, "I17"
                    assert last_entry > self.confirmed
                    for entry_id in range(self.confirmed + 1, last_entry + 1):
                        self.check_quorum(entry_id)
                    self.confirmed = last_entry
                case Release(size_bytes):
                    self.on_released += size_bytes
                case FailPending():
                    assert self.state.error is effect.error

    def check_quorum(self, entry_id: int) -> None:
        """I3 over the fragments as committed."""
        ensemble = next(e for first, e in reversed(self.fragments) if first <= entry_id)
        quorum = self.state.quorum
        holders = [p for p in quorum.write_set(entry_id) if entry_id in self.held(ensemble[p])]
        assert len(holders) >= quorum.ack_quorum

    def held(self, bookie_id: str) -> set[int]:
        return self.stored.setdefault(bookie_id, set())

    def answer(self) -> None:
        send = self.out.pop(self.random.randrange(len(self.out)))
        status = self.random.choice(ANSWERS)
        (section,) = parse_frame(send.section.data)
        if status is Status.OK:
            self.held(send.bookie_id).update(section.run.entry_ids)
        self.run(
            self.state.on_section_answer(
                send.position, send.ensemble_number, send.run_first_entry, status
            )
        )

    def decide(self) -> None:
        change, self.change = self.change, None
        assert change is not None
        members, replaced = list(change.ensemble), []
        for position in change.failed:
            if self.spares:
                # A bookie that failed elsewhere may come back: its late answers must not count.
                self.spares.append(members[position])
                members[position] = self.spares.pop(0)
                replaced.append(position)
        if replaced:
            if self.fragments[-1][0] == change.first_entry:
                self.fragments.pop()
            self.fragments.append((change.first_entry, tuple(members)))
        self.run(self.state.on_ensemble_changed(tuple(members), replaced))


ANSWERS = [Status.OK] * 24 + [Status.UNREACHABLE, Status.UNKNOWN] * 3 + [Status.FENCED]


@given(
    st.sampled_from([(1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 2, 1)]),
    st.lists(st.binary(min_size=0, max_size=6), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_whatever_happens_order_quorum_and_accounting_hold(quorum, payloads, random) -> None:  # type: ignore[no-untyped-def]
    """I6, I3 and I17, and every byte is released exactly once."""
    state = writer(*quorum, size_bytes_target=3, size_bytes_max=8)
    world = WriterWorld(state, random)
    todo = list(payloads)
    appended = 0
    while state.error is None and (todo or world.out or world.change):
        options = ["append"] * bool(todo) + ["answer"] * bool(world.out)
        choice = random.choice(options + ["decide"] * bool(world.change))
        if choice == "append":
            count = random.randint(1, 3)
            batch, todo = todo[:count], todo[count:]
            appended += sum(map(len, batch))
            world.run(state.append(batch))
        elif choice == "answer":
            world.answer()
        else:
            world.decide()
    assert world.confirmed == state.last_add_confirmed
    assert world.on_released == appended
    if state.error is None:
        assert world.confirmed == len(payloads) - 1
