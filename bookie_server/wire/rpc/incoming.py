"""What a client says on a connection, cut into sections of adds and other requests.

Adds come one entry a frame. Those of one ledger that follow each other become one section, whose records are
the entries with their lengths in front: one copy, and a bookie is asked once for all of them.

Source: Apache ``BookieProtoEncoding.RequestDecoder``; a connection may begin with version 3 and go on with 2, and
not the other way round.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bookie_server.wire import limits
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.messages import Section, SectionReply, Status
from bookie_server.wire.record import parse_run
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.frames import LENGTH_SIZE, frame_at, is_of_v2
from bookie_server.wire.rpc.limits import refusal_for
from bookie_server.wire.rpc.messages import AddEntry
from bookie_server.wire.rpc.quick import QuickAdd, add_at

FRAMES_AT_ONCE = 1_024
"""Most frames cut in one step of the event loop: about 10 ms."""
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class RpcSection(Section):
    """Adds that came one by one: their answers go out one by one, too."""

    numbers: tuple[int, ...] = ()
    """Of version 3, one for each entry; empty: it was version 2."""

    def reply(self, status: Status) -> RpcSectionReply:
        run = self.run
        ids = self.ledger_id, run.first_entry, run.last_entry, self.is_recovery, status
        return RpcSectionReply(*ids, run.entry_ids, self.numbers)

    def parts(self) -> list[RpcSection]:
        """Each entry as a section of its own."""
        return [self._part(index) for index in range(len(self.run))]

    def _part(self, index: int) -> RpcSection:
        run = self.run.slice(index, index + 1)
        head = self.ledger_id, self.master_key, self.is_recovery, self.digest_type
        return RpcSection(*head, run, self.defect, self.numbers[index : index + 1])


@dataclass(frozen=True, slots=True)
class RpcSectionReply(SectionReply):
    """One status for each of the entries."""

    entry_ids: Sequence[int] = ()
    numbers: tuple[int, ...] = ()

    @property
    def answer_count(self) -> int:
        return len(self.entry_ids)


Asked = v2.Asked | v3.Numbered
"""A request that is no add, or one that is refused."""


class Incoming:
    """Of one connection."""

    def __init__(self) -> None:
        self._is_v2 = False
        self._defect: MalformedFrameError | None = None

    def check(self) -> None:
        """Raises :class:`MalformedFrameError` where the client, behind what was cut, said something that nobody can answer."""
        if self._defect is not None:
            raise self._defect

    def cut(self, received: memoryview) -> tuple[list[RpcSection | Asked], int]:
        """What the whole frames at the beginning of ``received`` ask for, in order, and how many bytes they are.

        At most ``FRAMES_AT_ONCE``; all bytes are copied. What is behind something that nobody can answer is nothing; see :meth:`check`.
        """
        found: list[RpcSection | Asked] = []
        if self._defect is not None:
            return found, 0
        adds: _Adds | None = None
        at = 0
        for _ in range(FRAMES_AT_ONCE):
            asked: Asked | None = None
            add, source = add_at(received, at, is_v2=self._is_v2), received
            if add is not None:
                self._is_v2 = add.number is None
                at = add.end
            else:
                try:
                    frame = frame_at(received, at)
                    if frame is None:
                        break
                    asked = self._parse(frame)
                except MalformedFrameError as error:
                    self._defect = error
                    break
                at += LENGTH_SIZE + len(frame)
                if isinstance(asked.request, AddEntry) and asked.refusal is None:
                    add, source = _slow_add(asked), memoryview(asked.request.body)
                else:
                    asked = kept(asked)
            if add is not None and adds is not None and adds.take(add, source):
                continue
            if adds is not None:
                found.append(adds.section())
            adds = _Adds(add, source) if add is not None else None
            if add is None and asked is not None:
                found.append(asked)
        if adds is not None:
            found.append(adds.section())
        return found, at

    def _parse(self, frame: memoryview) -> Asked:
        if self._is_v2 or is_of_v2(frame):
            self._is_v2 = True
            asked: Asked = v2.parse_request(frame)
        else:
            asked = v3.parse_request(frame)
        is_add = isinstance(asked.request, AddEntry)
        if len(frame) > limits.HEADER_SIZE_MAX and not is_add:
            raise MalformedFrameError(f"a request of {len(frame)} bytes that is no add")
        if asked.request is None or asked.refusal is not None:
            return asked
        refusal = refusal_for(asked.request)
        return asked if refusal is None else replace(asked, refusal=refusal)


def kept(asked: Asked) -> Asked:
    """The same without memory of what was received, and without bytes that nobody looks at."""
    is_served = asked.refusal is None
    match asked.request:
        case AddEntry() as add:  # one that is refused: the others are sections
            request: messages.Request = replace(add, master_key=b"", body=b"")
        case messages.ReadEntry() | messages.BatchRead() as read:
            needs_key = is_served and read.is_fencing
            request = replace(read, master_key=bytes(read.master_key or b"") if needs_key else None)
        case messages.WriteLac() as write:
            key, body = (write.master_key, write.body) if is_served else (b"", b"")
            request = replace(write, master_key=bytes(key), body=bytes(body))
        case messages.Authenticate():
            request = messages.Authenticate(b"", b"")
        case _:
            return asked
    if isinstance(asked, v3.Numbered):
        return replace(asked, request=request)
    assert isinstance(request, v2.Request)
    return replace(asked, request=request)


def _slow_add(asked: Asked) -> QuickAdd:
    """An add that was parsed; its entry is all of its body."""
    add = asked.request
    assert isinstance(add, AddEntry)
    ids = add.ledger_id, add.entry_id
    number = asked.head.number if isinstance(asked, v3.Numbered) else None
    return QuickAdd(*ids, bytes(add.master_key), add.is_recovery, number, 0, len(add.body))


class _Adds:
    """Adds that become one section."""

    def __init__(self, first: QuickAdd, received: memoryview) -> None:
        self._first = first
        self._last_entry = first.entry_id
        self._parts: list[Buffer] = []
        self._numbers: list[int] = []
        self._append(first, received)

    def take(self, add: QuickAdd, received: memoryview) -> bool:
        """Take one that follows; false: it belongs to a section of its own."""
        first = self._first
        if (
            add.ledger_id != first.ledger_id
            or not self._last_entry < add.entry_id < first.entry_id + limits.ID_SPAN_MAX
            or add.master_key != first.master_key
            or add.is_recovery is not first.is_recovery
            or (add.number is None) is not (first.number is None)
        ):
            return False
        self._append(add, received)
        return True

    def section(self) -> RpcSection:
        """A bookie cannot know which digest the entries have."""
        first = self._first
        run = parse_run(b"".join(self._parts))
        head = first.ledger_id, first.master_key, first.is_recovery, None
        return RpcSection(*head, run, numbers=tuple(self._numbers))

    def _append(self, add: QuickAdd, received: memoryview) -> None:
        self._last_entry = add.entry_id
        self._parts += (_LENGTH.pack(add.end - add.begin), received[add.begin : add.end])
        if add.number is not None:
            self._numbers.append(add.number)
