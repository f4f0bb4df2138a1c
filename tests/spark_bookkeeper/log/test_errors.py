"""Errors of logs cross process borders and tell their reader what to do."""

from __future__ import annotations

import pickle

from bookkeeper_metadata.errors import BookKeeperError
from spark_bookkeeper.log.errors import (
    CommitRefusedError,
    CommitUnknownError,
    DataLossError,
    EpochFencedError,
    LogConflictError,
    LogExistsError,
    LogHasWriterError,
    LogOverwrittenError,
    LogRecreatedError,
    NoConsumerError,
    NoMatchingTimestampError,
    NoSuchLogError,
    SchemaConflictError,
    TxnAppReusedError,
    TxnRegressedError,
)
from spark_bookkeeper.log.format.epoch import Epoch


def test_errors_pickle_and_say_what_to_do() -> None:
    errors: list[BookKeeperError] = [
        LogConflictError("orders", 3, 4),
        TxnRegressedError("orders", "q", 1, 2),
        TxnAppReusedError("orders", "etl", 1, (2, "q")),
        CommitUnknownError("orders", 1, "its token is gone"),
        CommitRefusedError("orders", None, "no messages"),
        LogHasWriterError("orders", 7),
        SchemaConflictError("orders", 0, 3),
        NoSuchLogError("orders"),
        LogExistsError("orders"),
        LogRecreatedError("orders", 1, 2),
        EpochFencedError("orders", 3, "its token is DEAD"),
        DataLossError("orders", 5, (10, 20), "they were trimmed"),
        LogOverwrittenError("orders", 5, 10),
        NoConsumerError("orders", ("report",)),
        NoMatchingTimestampError("orders", 1_700_000_000_000, 0),
    ]

    copies = [pickle.loads(pickle.dumps(error)) for error in errors]

    assert [str(copy) for copy in copies] == [str(error) for error in errors]
    assert all("log=orders" in str(error) for error in errors)


def test_epochs_pickle_to_tasks() -> None:
    epoch = Epoch(1, "orders", 2, 3, 4)

    assert pickle.loads(pickle.dumps(epoch)) == epoch
