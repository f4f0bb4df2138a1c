"""What happens to a writer when somebody else takes its ledger over.

In an empty environment: pip install spark-bookkeeper, then python fence_and_recover.py

Prints:
    recovered and closed at entry 2
    the old writer is told: BK_FENCED: ledger fenced by a recovering client. ledger_id=0
"""

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import LedgerFencedError

with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
    writer = bk.create_ledger()
    writer.append_many([b"one", b"two", b"three"])

    reader = bk.open_ledger(writer.ledger_id, recovery=True)
    print(f"recovered and closed at entry {reader.last_add_confirmed}")

    try:
        writer.append(b"four")
    except LedgerFencedError as error:
        print(f"the old writer is told: {error.name}: {error}")
