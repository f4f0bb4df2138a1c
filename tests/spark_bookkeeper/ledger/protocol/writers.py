"""A writer's state machine and what its effects say, for the tests of it."""

from __future__ import annotations

from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.frame_limits import FrameLimits
from bookie_server.wire.messages import Status
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from spark_bookkeeper.ledger.protocol.events import Acknowledge, ChangeEnsemble, Effect, SendSection
from spark_bookkeeper.ledger.protocol.writer_state import WriterState


def writer(e: int = 3, w: int = 3, a: int = 2, **limits: int) -> WriterState:
    metadata = LedgerMetadata(
        ensemble_size=e,
        write_quorum=w,
        ack_quorum=a,
        fragments=(Fragment(0, tuple(f"b{i}" for i in range(e))),),
    )
    return WriterState(7, metadata, Crc32cDigest(), b"k" * 20, FrameLimits(**limits))


def writer_of(*payloads: bytes) -> WriterState:
    """One that has sent them in one run."""
    state = writer()
    state.append(list(payloads))
    return state


def sends(effects: list[Effect]) -> list[SendSection]:
    return [effect for effect in effects if isinstance(effect, SendSection)]


def answer(state: WriterState, position: int, first_entry: int, status: Status) -> list[Effect]:
    """What the bookie that stands there now answers."""
    number = state._members.number
    return state.on_section_answer(position, number, first_entry, status)


def store(state: WriterState, first_entry: int, *, on: tuple[int, ...]) -> None:
    """The bookies that stand there now answer that they have stored it."""
    for position in on:
        answer(state, position, first_entry, Status.OK)


def changes(effects: list[Effect]) -> list[ChangeEnsemble]:
    return [effect for effect in effects if isinstance(effect, ChangeEnsemble)]


def acked(effects: list[Effect]) -> list[int]:
    return [effect.last_entry for effect in effects if isinstance(effect, Acknowledge)]
