"""What a cluster agrees on: ledger metadata, who is alive, and the store that arbitrates.

Nothing here knows how a bookie stores entries or that Spark exists. Every change goes through
:class:`bookkeeper_metadata.store.interface.MetadataStore`, guarded by a version; the value formats and paths are Apache
BookKeeper's own, so its tools read what we write.
"""
