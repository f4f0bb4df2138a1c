"""The public API without ``await``: a thin synchronous face of :mod:`spark_bookkeeper.aio`.

One daemon thread per client runs the event loop; every object is safe to share between threads.
"""
