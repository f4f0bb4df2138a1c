"""A log with two writers, of which only one leads, and a follower that sees every value once.

In an empty environment: pip install spark-bookkeeper, then python log_take_over.py

Prints:
    row 2 is entry 0 of ledger 1
    the first writer is told: BK_FENCED
    0 10 EUR
    1 20 EUR
    2 30 EUR
"""

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import LogFencedError

with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
    log = bk.create_log("payments")
    first = log.writer()
    first.append_many([b"10 EUR", b"20 EUR"])

    second = log.writer()  # takes over: recovers the first one's ledger, then opens its own
    position = second.append(b"30 EUR")
    print(f"row {position.row} is entry {position.entry_id} of ledger {position.ledger_id}")
    try:
        first.append(b"lost")
    except LogFencedError as error:
        print(f"the first writer is told: {error.name}")
    second.close()

    for position, entry in log.reader("earliest"):
        print(position.row, bytes(entry.payload).decode())
