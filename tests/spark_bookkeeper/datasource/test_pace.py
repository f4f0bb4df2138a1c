"""An optimize copies no faster than it is told to, whatever it copies and whoever of its threads does."""

from __future__ import annotations

import threading

import pytest

from spark_bookkeeper.datasource.optimize.pace import Pace, StoppedError
from tests.patience import seconds


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def read(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize("sizes", [[1_000] * 10, [1, 9_998, 1], [10_000, 0]], ids=str)
def test_bytes_have_their_time_before_the_next_ones_begin(sizes: list[int]) -> None:
    clock = Clock()
    pace = Pace(1_000, clock_s=clock.read, wait_s=clock.wait)

    for size_bytes in sizes:
        pace.take(size_bytes)

    assert clock.now_s == pytest.approx(100 + sum(sizes[:-1]) / 1_000)


def test_a_pause_gives_no_credit() -> None:
    clock = Clock()
    pace = Pace(1_000, clock_s=clock.read, wait_s=clock.wait)
    clock.now_s += 60

    pace.take(5_000)
    pace.take(1)

    assert clock.now_s == pytest.approx(165)


def test_no_pace_waits_for_nothing() -> None:
    clock = Clock()
    pace = Pace(clock_s=clock.read, wait_s=clock.wait)

    pace.take(1 << 40)
    pace.take(1 << 40)

    assert clock.now_s == 100


def test_who_is_stopped_waits_no_longer_and_begins_nothing_more() -> None:
    pace = Pace(1)
    pace.take(3_600)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            pace.take(1)
        except StoppedError as stopped:
            ended.append(stopped)

    waiter = threading.Thread(target=wait)
    waiter.start()
    pace.stop()
    waiter.join(seconds(10))

    assert len(ended) == 1
    with pytest.raises(StoppedError):
        pace.take(0)
