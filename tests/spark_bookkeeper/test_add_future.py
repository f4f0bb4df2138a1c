"""Callbacks of an asynchronous append: each is called once, and none disturbs another."""

from __future__ import annotations

import logging

import pytest

from spark_bookkeeper.blocking.add_future import AddFuture, Waiters


def test_a_callback_that_raises_is_logged_and_hinders_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ended the stream of adds that had brought the answer, and with it every writer there."""
    future, called = AddFuture[int](Waiters()), list[int]()

    def fail(_: AddFuture[int]) -> None:
        raise ZeroDivisionError

    future.add_done_callback(fail)
    future.add_done_callback(lambda done: called.append(done.result()))
    with caplog.at_level(logging.ERROR):
        future.complete(7, None)
        future.add_done_callback(fail)

    assert called == [7]
    assert [type(r.exc_info[1]) for r in caplog.records if r.exc_info] == [ZeroDivisionError] * 2
