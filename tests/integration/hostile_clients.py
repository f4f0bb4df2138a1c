"""Clients that use up a bookie's memory: ``python -m tests.integration.hostile_clients CARRIER ADDRESS SECONDS KIND…``.

Each speaks the protocol of bookie.proto correctly, over gRPC or sockets, and takes no notice of what a bookie can bear;
``oversized`` does not even that. They go on until each kind has attacked in earnest, however slow the machine is, and say at
the end how often each did.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from bookie_server.wire import add_frames
from bookie_server.wire.digest import master_key
from bookie_server.wire.messages import LongPoll, ReadLacRequest, ReadRequest
from bookie_server.wire.record import HEADER_SIZE
from bookkeeper_metadata.endpoints import SOCKET
from bookkeeper_metadata.model import DigestType
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.ports import LOOPBACK
from tests.integration.hostile_lines import ENDED, LINES, Line
from tests.integration.processes import first_line, port_of
from tests.patience import Deadline

STREAMS = 60
LARGE = 4 * 1024 * 1024
"""Payload of a large entry; two of them make a frame as large as frames may be."""
DIGEST_SIZE = 20
KEY = master_key(b"")
READ_LEDGERS = range(2_000, 2_004)
STORED = 4
"""Large entries of each of these."""
_PAYLOAD = bytes(LARGE - 512)
_REFUSED = bytes(LARGE)
_RETRY_S = 0.05
_LOOK_S = 0.1
_GIVES_UP_S = 300.0
"""Attacks that cannot be made in so long, on two quiet cores, are no attacks, and the test that wants them fails."""
Acted = Callable[[], None]
"""Called whenever a client has done its worst once more."""
Opened = Callable[[str], AbstractAsyncContextManager[Line]]
"""Opens a line for the requests of this name in bookie.proto."""


def section(ledger_id: int, entry_ids: Sequence[int], payload: bytes) -> bytes:
    """An add under HMAC, which no bookie can check, so that nothing has to be computed."""
    parts: list[bytes] = []
    for entry_id in entry_ids:
        size = HEADER_SIZE + DIGEST_SIZE + len(payload)
        numbers = (ledger_id, entry_id, -1, 0)
        head = size.to_bytes(4) + b"".join(number.to_bytes(8, signed=True) for number in numbers)
        parts += [head, bytes(DIGEST_SIZE), payload]
    header = add_frames.encode_section_header(ledger_id, KEY, DigestType.HMAC)
    return add_frames.encode_section(header, parts)


async def store(opened: Opened) -> None:
    """Have stored what is read, before anybody attacks: beside the others readers never came to read."""
    async with opened("Write") as line:
        for ledger_id in READ_LEDGERS:
            for entry_id in range(STORED):
                await line.add(section(ledger_id, [entry_id], _PAYLOAD))
                await line.take()


async def send_large_frames(opened: Opened, number: int, acted: Acted) -> None:
    """Adds of new entries in frames as large as they may be, the next before any answer."""
    ledger_id, next_id = 1_000 + number, 0
    while True:
        with suppress(*ENDED):
            async with opened("Write") as line:
                while True:
                    # What was refused before is a gap; nobody reads these ledgers.
                    next_id += 2
                    await line.add(section(ledger_id, [next_id, next_id + 1], _PAYLOAD))
                    acted()
        await asyncio.sleep(_RETRY_S)


async def read_without_taking(opened: Opened, number: int, acted: Acted) -> None:
    """Reads without end whose replies are never taken."""
    ledger_id = READ_LEDGERS[number % len(READ_LEDGERS)]
    while True:
        with suppress(*ENDED):
            async with opened("Read") as line:
                for request_id in count():
                    entry_id = request_id % STORED
                    request = ReadRequest(
                        ledger_id=ledger_id, first_entry=entry_id, last_entry=entry_id
                    )
                    await line.read(request_id, request)
                    acted()
                    # The kernel takes a hundred thousand before it keeps anybody waiting: none of the others came to attack.
                    await asyncio.sleep(0)
        await asyncio.sleep(_RETRY_S)


async def poll_without_taking(opened: Opened, number: int, acted: Acted) -> None:
    """LAC reads and long polls, many at a time, whose replies are never taken."""
    ledger_id = READ_LEDGERS[number % len(READ_LEDGERS)]
    poll = LongPoll(previous_lac=-1, timeout_ms=100)
    requests = [ReadLacRequest(ledger_id), ReadLacRequest(ledger_id, long_poll=poll)] * 8
    while True:
        with suppress(*ENDED):
            async with opened("ReadLac") as line:
                while True:
                    await line.ask(requests)
                    for _ in requests:
                        acted()
                    await asyncio.sleep(3)
                    await line.give_up()
        await asyncio.sleep(_RETRY_S)


async def pin_large_frames(opened: Opened, number: int, acted: Acted) -> None:
    """Frames with one small entry that is taken beside a large section that is refused."""
    ledger_id, next_id = 4_000 + number, 0
    other = add_frames.encode_section_header(ledger_id, master_key(b"other"), DigestType.HMAC)
    refused = section(ledger_id, [1 << 40], _REFUSED)
    size = int.from_bytes(refused[:4])
    refused = add_frames.encode_section(other, [refused[8 + size :]])
    while True:
        with suppress(*ENDED):
            async with opened("Write") as line:
                while True:
                    next_id += 1
                    await line.add(section(ledger_id, [next_id], b"ten bytes.") + refused)
                    await line.take()
                    acted()
        await asyncio.sleep(_RETRY_S)


async def send_duplicates(opened: Opened, number: int, acted: Acted) -> None:
    """Adds of what is stored already, which the bookie has to compare."""
    ledger_id = 5_000 + number
    frame = section(ledger_id, [0, 1], _PAYLOAD)
    while True:
        with suppress(*ENDED):
            async with opened("Write") as line:
                while True:
                    await line.add(frame)
                    acted()
        await asyncio.sleep(_RETRY_S)


async def write_without_taking(opened: Opened, number: int, acted: Acted) -> None:
    """Small adds without end whose answers are never taken."""
    ledger_id = 6_000 + number
    # The same ones again and again: each is compared and answered.
    frame = b"".join(section(ledger_id, [entry_id], b"") for entry_id in range(500))
    while True:
        with suppress(*ENDED):
            async with opened("Write") as line:
                while True:
                    await line.add(frame)
                    acted()
        await asyncio.sleep(_RETRY_S)


async def announce_without_sending(opened: Opened, number: int, acted: Acted) -> None:
    """The first piece of a frame as large as it may be, and nothing behind it; sent again when cut off."""
    while True:
        with suppress(*ENDED):
            async with opened("Write") as line:
                await line.announce()
                acted()
                await line.take()
        await asyncio.sleep(_RETRY_S)


async def send_oversized_messages(opened: Opened, number: int, acted: Acted) -> None:
    """Frames larger than are taken; over gRPC as large as they may be, in one message, which it takes in whole and refuses then."""
    frame = section(7_000 + number, [0, 1], _PAYLOAD)
    while True:
        with suppress(*ENDED):
            async with opened("Write") as line:
                await line.add_too_large(frame)
                acted()
                await line.take()
        await asyncio.sleep(_RETRY_S)


class Kind(NamedTuple):
    """Clients of one kind."""

    act: Callable[[Opened, int, Acted], Coroutine[Any, Any, None]]
    clients: int
    least: int
    """Acts that make an attack: more than the memory promised, if a bookie kept what each wants of it."""


KINDS = {
    "large": Kind(send_large_frames, STREAMS, 80),
    "readers": Kind(read_without_taking, 20, 200),
    "polls": Kind(poll_without_taking, 10, 160),
    "pins": Kind(pin_large_frames, 4, 120),
    "duplicates": Kind(send_duplicates, 20, 80),
    "deaf": Kind(write_without_taking, 4, 50),
    "announcers": Kind(announce_without_sending, STREAMS, 80),
    "oversized": Kind(send_oversized_messages, 10, 80),
}


READERS = {"readers", "polls"}


def idle_kinds(acts: dict[str, list[int]]) -> dict[str, list[int]]:
    """Of the acts of each kind's clients, those of the kinds that have made no attack."""
    return {
        kind: counts
        for kind, counts in acts.items()
        # Beside others, who keep them waiting for minutes, it is enough that each kind got its turn.
        if not any(counts) or (len(acts) == 1 and sum(counts) < KINDS[kind].least)
    }


async def attack(carrier: str, address: str, seconds: float, kinds: Sequence[str]) -> None:
    """Do all of these at once for so long, and longer where some have hardly begun by then."""
    opened: Opened = partial(LINES[carrier].opened, address)
    if READERS & {*kinds}:
        await store(opened)
    counts = {kind: [0] * KINDS[kind].clients for kind in kinds}

    def note(kind: str, number: int) -> None:
        counts[kind][number] += 1

    acts = [
        asyncio.create_task(KINDS[kind].act(opened, number, partial(note, kind, number)))
        for kind in kinds
        for number in range(KINDS[kind].clients)
    ]
    sys.stdout.write("attacking\n")
    sys.stdout.flush()
    began_s, deadline = time.monotonic(), Deadline(_GIVES_UP_S)
    while not deadline.has_passed:
        if time.monotonic() - began_s >= seconds and not idle_kinds(counts):
            break
        done, _ = await asyncio.wait(acts, timeout=_LOOK_S, return_when=asyncio.FIRST_EXCEPTION)
        for act in done:
            act.result()
    sys.stdout.write(json.dumps(counts) + "\n")
    sys.stdout.flush()
    # Not one by one: that such clients end tidily is not to be hoped for.
    os._exit(0)


@contextmanager
def attacked(
    bookie: LocalBookie, seconds_long: float, *kinds: str, carrier: str = SOCKET
) -> Iterator[subprocess.Popen[str]]:
    """Hostile clients in a process of their own, until the block ends."""
    words = [carrier, f"{LOOPBACK}:{port_of(bookie, carrier)}", str(seconds_long), *kinds]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.integration.hostile_clients", *words],
        stdout=subprocess.PIPE,
        env=child_environment(),
        text=True,
    ) as process:
        try:
            assert first_line(process) == "attacking\n"
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    over, where, how_long, *which = sys.argv[1:]
    asyncio.run(attack(over, where, float(how_long), which or list(KINDS)))
