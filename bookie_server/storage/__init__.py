"""A bookie's disk: journal, write cache, sorted entry logs and their index (docs/architecture.md).

It makes durable what the admission core decided and finds it again. It never decides whether an add
is allowed, and it never says "absent" about bytes it could not read.
"""
