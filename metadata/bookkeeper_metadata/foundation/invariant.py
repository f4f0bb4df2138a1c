"""Stops the program when the program itself is wrong.

``invariant`` is for claims that only a defect of ours can break. Whatever a peer, a disk or a user
can cause is checked explicitly and raised as an error of :mod:`bookkeeper_metadata.foundation.errors`.
"""


class InvariantViolation(Exception):
    """A claim the code relies on is false; nothing computed after it can be trusted."""


def invariant(claim: bool, why: str) -> None:
    """Raise unless ``claim`` holds; unlike ``assert`` it survives ``python -O``.

    Raises:
        InvariantViolation: ``claim`` is false. ``why`` says why it had to be true.
    """
    if not claim:
        raise InvariantViolation(why)
