"""A ledger from first append to last read, on a cluster of its own.

In an empty environment: pip install spark-bookkeeper, then python append_and_read.py

Prints:
    ledger 0: entry 0, entries 1 to 4
    0 returns when two bookies have it on disk
    1 many
    2 in
    3 one
    4 go
"""

from spark_bookkeeper import BookKeeper, LocalCluster

with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_service_uri) as bk:
    with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
        first = writer.append(b"returns when two bookies have it on disk")
        rest = writer.append_many([b"many", b"in", b"one", b"go"])
        print(f"ledger {writer.ledger_id}: entry {first}, entries {rest.start} to {rest.stop - 1}")
    with bk.open_ledger(writer.ledger_id) as reader:
        for entry in reader.read(0, reader.last_add_confirmed):
            print(entry.entry_id, bytes(entry.payload).decode())
