"""Spark's face of the project: ``format("bookkeeper")``.

Translates between Spark's Python Data Source API and the log layer, and decides nothing about
durability: what becomes visible is decided by ``spark_bookkeeper.log``, what is stored by
``spark_bookkeeper.ledger``. Nothing here is imported before Spark asks for the format.
"""
