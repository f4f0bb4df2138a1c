"""Appends on their way from a caller's thread to the event loop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from linecache import getline
from types import FrameType
from typing import Any, cast

from bookkeeper_metadata.foundation.errors import ClientClosedError
from spark_bookkeeper.blocking.add_future import AddFuture
from spark_bookkeeper.blocking.append_queue import AppendQueue
from spark_bookkeeper.blocking.loop_thread import LoopThread


class IdleLoop:
    """Is woken, and does nothing."""

    is_foreign = False

    @property
    def loop(self) -> IdleLoop:
        return self

    def call_soon_threadsafe(self, *_: object) -> None:
        pass


def queue_of(push: Callable[[list[bytes], list[AddFuture[int]]], None]) -> AppendQueue[int]:
    return AppendQueue[int](
        cast(LoopThread, IdleLoop()),
        "writer",
        bytes_max=1_000,
        push=push,
        closed_error=lambda: ClientClosedError("writer"),
    )


def interrupted_at(line: int) -> list[tuple[bytes, AddFuture[int]]]:
    """What is pushed of three appends of which a signal ends the second before this line of it runs; nothing: it has fewer."""
    pushed = list[tuple[bytes, AddFuture[int]]]()

    def push(payloads: list[bytes], futures: list[AddFuture[int]]) -> None:
        pushed.extend(zip(payloads, futures, strict=True))

    queue = queue_of(push)
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code is not AppendQueue.append.__code__:
            return None
        code, number = frame.f_code, frame.f_lineno
        # Not as a lock is taken or given back: there the interpreter looks for no signals.
        if event == "line" and not getline(code.co_filename, number).lstrip().startswith("with "):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    futures = {b"first": queue.append(b"first", 10)}
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        queue.append(b"second", 10)
    except KeyboardInterrupt:
        pass
    else:
        return []
    finally:
        sys.settrace(before)
    futures[b"third"] = queue.append(b"third", 10)
    queue.drain()
    for payload, future in pushed:
        assert futures.setdefault(payload, future) is future
    return pushed


def test_a_signal_within_an_append_leaves_every_future_with_its_payload() -> None:
    """One that came between two lists had the next append acknowledged by the number of the one before."""
    pushed = list[bytes]()
    for line in range(1, 100):
        found = interrupted_at(line)
        if not found:
            break
        assert [payload for payload, _ in found] in (
            [b"first", b"third"],
            [b"first", b"second", b"third"],
        )
        pushed += [payload for payload, _ in found]

    assert line > 8
    assert b"second" in pushed


def test_the_futures_of_appends_come_in_their_order() -> None:
    pushed = list[tuple[list[bytes], list[AddFuture[int]]]]()
    queue = queue_of(lambda *what: pushed.append(what))
    futures = [queue.append(bytes([number]), 1) for number in range(3)]
    queue.drain()
    queue.drain()

    assert pushed == [([b"\0", b"\1", b"\2"], futures)]
