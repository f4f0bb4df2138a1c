"""The network between clients and bookies: it delays, loses, doubles, holds back and cuts off.

A call is answered to its client exactly once, by the first answer that gets through or by
UNREACHABLE; what was sent may have arrived all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bookie_server.wire.messages import Section, Status
from tests.simulation.rules.bookie import BookieTwin
from tests.simulation.rules.messages import Answer, Request, describe

if TYPE_CHECKING:
    from tests.simulation.rules.model import Model

_DELAYS = tuple(80 + 3 * n // 4 + (n * n) // 2_000 for n in range(1024))
"""Ascending microseconds: most messages are quick, a few take twice as long."""
_SLOW_FACTOR = 12
_REFUSED_US = 90
"""Until the client of a bookie that is down knows."""


@dataclass(slots=True, eq=False)
class Call:
    """One request and who waits for its answer."""

    client: str
    bookie_id: str
    request: Request
    on_answer: Callable[[Answer], None]
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """A client and a bookie do not hear each other for a while."""

    client: str
    bookie_id: str
    from_us: int
    until_us: int
    is_one_way: bool
    """Requests arrive, answers do not."""


class Network:
    """Every message of one schedule."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._heap = model.heap
        self._swarm = model.swarm
        self._held: list[Call] = []
        self.is_healed = False
        self._draws = {b: model.choices.stream(f"network {b}") for b in self._swarm.bookie_ids}
        self._partitions = self._draw_partitions()

    def call(
        self, client: str, bookie_id: str, request: Request, on_answer: Callable[[Answer], None]
    ) -> None:
        """Send; ``on_answer`` is called once."""
        call = Call(client, bookie_id, request, on_answer)
        if self.is_healed:
            self._heap.after(_DELAYS[0], self._arrive, call, False)
            return
        swarm = self._swarm
        drawn = self._draws[bookie_id].below(1 << 20)
        delay_us, fate = _DELAYS[drawn & 1023], drawn >> 10
        partition = self._partition(client, bookie_id)
        if partition is not None and not partition.is_one_way:
            self._model.marks["cut off"] += 1
            self._strange("lost", call, delay_us)
            return
        left = 1024
        for name, share in (
            ("lost", swarm.lost),
            ("answer lost", swarm.lost),
            ("doubled", swarm.doubled),
            ("held", swarm.held if isinstance(request, Section) and client == "writer" else 0),
            ("slow", swarm.slow),
        ):
            left -= share
            if fate >= left:
                self._strange(name, call, delay_us)
                return
        self._heap.after(delay_us, self._arrive, call, False)

    def release(self) -> None:
        """Let go of what was held back."""
        held, self._held = self._held, []
        for call in held:
            self._model.marks["held add let go"] += 1
            self._heap.after(_DELAYS[0], self._arrive, call, False)

    def heal(self) -> None:
        """From now on every message arrives, quickly."""
        self.is_healed = True
        self.release()

    def bookie_went_down(self, calls: list[Call]) -> None:
        """Break these calls' connections."""
        for call in calls:
            self._heap.after(_REFUSED_US, self._deliver, call, Status.UNREACHABLE)

    # -- inside -------------------------------------------------------------------------------

    def _strange(self, what: str, call: Call, delay_us: int) -> None:
        after = self._heap.after
        if what == "answer lost":
            after(delay_us, self._arrive, call, True)
        elif what == "doubled":
            after(delay_us, self._arrive, call, False)
            after(delay_us * 3, self._arrive, call, False)
        elif what == "held":
            self._held.append(call)
        elif what == "slow":
            after(delay_us * _SLOW_FACTOR, self._arrive, call, False)
        if what != "doubled":
            after(self._swarm.timeout_us, self._deliver, call, Status.UNREACHABLE)

    def _arrive(self, call: Call, is_answer_lost: bool) -> None:
        model = self._model
        bookie = model.bookies[call.bookie_id]
        if not bookie.is_up:
            self._heap.after(_REFUSED_US, self._deliver, call, Status.UNREACHABLE)
            return
        if model.trace is not None:
            model.note(f"{call.client} -> {call.bookie_id}: {describe(call.request)}")
        if is_answer_lost:
            bookie.handle(call.request, lambda _: None)
        else:
            bookie.calls.append(call)
            bookie.handle(call.request, partial(self._answer, bookie, call))

    def _answer(self, bookie: BookieTwin, call: Call, answer: Answer) -> None:
        if call in bookie.calls:
            bookie.calls.remove(call)
        if self.is_healed:
            self._heap.after(_DELAYS[0], self._deliver, call, answer)
            return
        drawn = self._draws[call.bookie_id].below(1 << 20)
        delay_us, fate = _DELAYS[drawn & 1023], drawn >> 10
        if self._partition(call.client, call.bookie_id) is not None:
            self._heap.after(self._swarm.timeout_us, self._deliver, call, Status.UNREACHABLE)
            return
        if fate >= 1024 - self._swarm.slow:
            delay_us *= _SLOW_FACTOR
        self._heap.after(delay_us, self._deliver, call, answer)

    def _deliver(self, call: Call, answer: Answer) -> None:
        if call.is_answered:
            return
        call.is_answered = True
        if self._model.trace is not None:
            self._model.note(
                f"{call.client} <- {call.bookie_id}: {describe(call.request)}: {answer}"
            )
        call.on_answer(answer)

    def _draw_partitions(self) -> list[Partition]:
        draw = self._model.choices.stream("partitions")
        clients = ("writer", "recoverer0", "recoverer1", "recoverer2")
        ids = self._swarm.bookie_ids
        found: list[Partition] = []
        for _ in range(self._swarm.partitions):
            from_us = draw.below(12_000)
            client, bookie_id = clients[draw.below(4)], ids[draw.below(len(ids))]
            until_us = from_us + draw.below(10_000)
            found.append(Partition(client, bookie_id, from_us, until_us, draw.one_in(2)))
        return found

    def _partition(self, client: str, bookie_id: str) -> Partition | None:
        now_us = self._heap.now_us
        for cut in self._partitions:
            is_between = (cut.client, cut.bookie_id) == (client, bookie_id)
            if is_between and cut.from_us <= now_us < cut.until_us:
                return cut
        return None
