"""Our client under the commands of a comparison: a line in, a line of JSON out.

It does what ``PeerClient.java`` does with Apache's client, through the public API only; whoever changes
what is measured in one changes it in the other. A process of its own, so that its CPU can be told from
the benchmark's and no other code's garbage is collected on its account.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import aclosing

from benchmarks.figures import percentile
from spark_bookkeeper import BookKeeper, WriteHandle, aio
from spark_bookkeeper.blocking.loop_thread import shared_loop_thread
from spark_bookkeeper.settings import ClientSettings

PACED_STEP = 10
"""Adds that are due at the same time: a sleep takes too long for one each."""
PREPARED_IN_FLIGHT_BYTES = 16 * 1024 * 1024
SMALL = 100
"""Bytes of the entries that are recovered."""

Answer = dict[str, float]


class Client:
    """Both faces of one client, and the ledgers it made since it was last told to forget them."""

    def __init__(self, blocking: BookKeeper, coroutines: aio.BookKeeper) -> None:
        self._blocking = blocking
        self._coroutines = coroutines
        self._ledgers: list[int] = []

    def answer(self, words: list[str]) -> Answer:
        """Carry out one command.

        Raises:
            ValueError: there is no such command.
        """
        run = shared_loop_thread().run
        match words:
            case ["add", "many", *numbers, seconds, _every]:
                size, window = map(int, numbers)
                return run(self._add_many(size, window, float(seconds)))
            case ["add", "async", size, window, seconds, every]:
                return self._add_async(int(size), int(window), float(seconds), int(every))
            case ["paced", size, per_s, seconds]:
                return self._paced(int(size), int(per_s), float(seconds))
            case ["prepare", size, count]:
                return run(self._prepare(int(size), int(count)))
            case ["read", how, size, ledger_id, seconds]:
                payload_bytes = int(size)
                return run(self._read(how, payload_bytes, int(ledger_id), float(seconds)))
            case ["recover", entries, window, seconds]:
                return run(self._recover(int(entries), int(window), float(seconds)))
            case ["life", seconds]:
                return run(self._life(float(seconds)))
            case ["forget"]:
                return run(self._forget())
            case _:
                raise ValueError(f"no such command: {' '.join(words)}")

    async def _add_many(self, size: int, window: int, seconds: float) -> Answer:
        """Batches of a tenth of the window; an add's latency is that of its batch."""
        writer = await self._create()
        payload, batch = os.urandom(size), max(1, window // 10)
        pending: deque[asyncio.Task[range]] = deque()
        latencies: list[float] = []
        began, count = time.perf_counter(), 0
        while (now := time.perf_counter()) - began < seconds:
            if len(pending) * batch >= window:
                await pending.popleft()
                now = time.perf_counter()
            task = asyncio.ensure_future(writer.append_many([payload] * batch))
            task.add_done_callback(_noting(latencies, now))
            pending.append(task)
            count += batch
        await asyncio.gather(*pending)
        taken = time.perf_counter() - began
        await writer.close()
        return _figures(count, size, taken, latencies)

    def _add_async(self, size: int, window: int, seconds: float, every: int) -> Answer:
        """One call an entry, from this thread; every so many of them their latency is noted."""
        writer = self._create_blocking()
        payload, slots = os.urandom(size), threading.Semaphore(window)
        latencies: list[float] = []
        began, count = time.perf_counter(), 0
        now = began
        while now - began < seconds:
            slots.acquire()
            is_sampled = count % every == 0
            if is_sampled:
                now = time.perf_counter()
            future = writer.append_async(payload)
            if is_sampled:
                future.add_done_callback(_noting(latencies, now))
            future.add_done_callback(lambda _: slots.release())
            count += 1
        writer.flush()
        taken = time.perf_counter() - began
        writer.close()
        return _figures(count, size, taken, latencies)

    def _paced(self, size: int, per_s: int, seconds: float) -> Answer:
        """Latencies count from when an add was due: a client that falls behind cannot hide it."""
        writer = self._create_blocking()
        payload, step_s = os.urandom(size), PACED_STEP / per_s
        latencies: list[float] = []
        steps = int(seconds / step_s)
        began = time.perf_counter()
        for step in range(1, steps + 1):
            due = began + step * step_s
            time.sleep(max(0.0, due - time.perf_counter()))
            for _ in range(PACED_STEP):
                writer.append_async(payload).add_done_callback(_noting(latencies, due))
        writer.flush()
        taken = time.perf_counter() - began
        writer.close()
        return _figures(steps * PACED_STEP, size, taken, latencies)

    async def _prepare(self, size: int, count: int) -> Answer:
        writer = await self._create()
        window = max(4, min(1_000, PREPARED_IN_FLIGHT_BYTES // size))
        await _append(writer, size, count, window)
        await writer.close()
        return {"ledger": writer.ledger_id}

    async def _read(self, how: str, size: int, ledger_id: int, seconds: float) -> Answer:
        """From the first entry to the last and over again, until the time is up."""
        reader = await self._coroutines.open_ledger(ledger_id)
        end = reader.last_add_confirmed
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            if how == "runs":
                async with aclosing(reader.read_runs(0, end)) as runs:
                    async for run in runs:
                        count += len(run)
                        if time.perf_counter() - began >= seconds:
                            break
            else:
                async with aclosing(reader.read(0, end)) as entries:
                    async for entry in entries:
                        count += 1
                        if entry.entry_id % 64 == 0 and time.perf_counter() - began >= seconds:
                            break
        return _figures(count, size, time.perf_counter() - began, [])

    async def _recover(self, entries: int, window: int, seconds: float) -> Answer:
        """The writer lives on, with a window of entries on their way: it learns that it was fenced."""
        latencies: list[float] = []
        began = time.perf_counter()
        while not latencies or time.perf_counter() - began < seconds:
            writer = await self._create()
            await _append(writer, SMALL, entries - window, window)
            pending = asyncio.ensure_future(writer.append_many([os.urandom(SMALL)] * window))
            await asyncio.sleep(0.002)
            start = time.perf_counter()
            await self._coroutines.open_ledger(writer.ledger_id, recovery=True)
            latencies.append(time.perf_counter() - start)
            await asyncio.gather(pending, return_exceptions=True)
        return _figures(len(latencies), 0, time.perf_counter() - began, latencies)

    async def _life(self, seconds: float) -> Answer:
        latencies: list[float] = []
        began = time.perf_counter()
        while not latencies or time.perf_counter() - began < seconds:
            start = time.perf_counter()
            writer = await self._create()
            await writer.append(b"x")
            await writer.close()
            latencies.append(time.perf_counter() - start)
        return _figures(len(latencies), 1, time.perf_counter() - began, latencies)

    async def _forget(self) -> Answer:
        for ledger_id in self._ledgers:
            await self._coroutines.delete_ledger(ledger_id, force=True)
        count = len(self._ledgers)
        self._ledgers.clear()
        return {"count": count}

    async def _create(self) -> aio.WriteHandle:
        writer = await self._coroutines.create_ledger(
            ensemble_size=3, write_quorum=3, ack_quorum=2, digest_type="CRC32C"
        )
        self._ledgers.append(writer.ledger_id)
        return writer

    def _create_blocking(self) -> WriteHandle:
        writer = self._blocking.create_ledger(
            ensemble_size=3, write_quorum=3, ack_quorum=2, digest_type="CRC32C"
        )
        self._ledgers.append(writer.ledger_id)
        return writer


async def _append(writer: aio.WriteHandle, size: int, count: int, window: int) -> None:
    payload, batch = os.urandom(size), max(1, window // 4)
    pending: deque[asyncio.Task[range]] = deque()
    for first in range(0, count, batch):
        if len(pending) == 4:
            await pending.popleft()
        payloads = [payload] * min(batch, count - first)
        pending.append(asyncio.ensure_future(writer.append_many(payloads)))
    await asyncio.gather(*pending)


def _noting(latencies: list[float], start: float) -> Callable[[object], None]:
    return lambda _: latencies.append(time.perf_counter() - start)


def _figures(count: int, size: int, taken: float, latencies: list[float]) -> Answer:
    answer = {"count": count, "bytes": count * size, "seconds": taken}
    if latencies:
        latencies.sort()
        answer["p50_ms"] = percentile(latencies, 0.5) * 1e3
        answer["p99_ms"] = percentile(latencies, 0.99) * 1e3
    return answer


def main(uri: str, protocol: str) -> None:
    """Answers until its input ends, an error as well as a figure."""
    run = shared_loop_thread().run
    settings = ClientSettings(bookie_protocol=protocol)
    coroutines = aio.BookKeeper(uri, settings=settings)
    with BookKeeper(uri, settings=settings) as blocking:
        client = Client(blocking, coroutines)
        for line in sys.stdin:
            answer: dict[str, float] | dict[str, str]
            try:
                answer = client.answer(line.split())
            except Exception as error:  # noqa: BLE001 - the benchmark that asked reports it
                traceback.print_exc()
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)
        run(coroutines.close())


if __name__ == "__main__":
    main(*sys.argv[1:])
