"""What Apache's bookies answer, in the numbers of versions 2 and 3, and what of it ours can mean.

Source: Apache ``BookkeeperProtocol.proto`` (``StatusCode``) and ``BookieProtocol``.
"""

from __future__ import annotations

from enum import Enum, unique

from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.messages import Status


@unique
class RpcStatus(Enum):
    """Apache's answers by their names there; the numbers are version 3's."""

    EOK = 0
    ENOLEDGER = 402
    ENOENTRY = 403
    EBADREQ = 404
    EIO = 501
    EUA = 502
    EBADVERSION = 503
    EFENCED = 504
    EREADONLY = 505
    ETOOMANYREQUESTS = 506
    EUNKNOWNLEDGERSTATE = 507

    @property
    def number_in_v2(self) -> int:
        """Version 2's number."""
        return _NUMBERS_IN_V2[self]


_NUMBERS_IN_V2 = {
    RpcStatus.EOK: 0,
    RpcStatus.ENOLEDGER: 1,
    RpcStatus.ENOENTRY: 2,
    RpcStatus.EBADREQ: 100,
    RpcStatus.EIO: 101,
    RpcStatus.EUA: 102,
    RpcStatus.EBADVERSION: 103,
    RpcStatus.EFENCED: 104,
    RpcStatus.EREADONLY: 105,
    RpcStatus.ETOOMANYREQUESTS: 106,
    # Apache's client of version 2 has no case for it, and would wait for ever.
    RpcStatus.EUNKNOWNLEDGERSTATE: 101,
}
BY_NUMBER = {status.value: status for status in RpcStatus}
BY_NUMBER_IN_V2 = {
    **{number: status for status, number in _NUMBERS_IN_V2.items()},
    101: RpcStatus.EIO,
    107: RpcStatus.EUNKNOWNLEDGERSTATE,
}

_MEANINGS = {
    RpcStatus.EOK: Status.OK,
    RpcStatus.ENOLEDGER: Status.NO_LEDGER,
    RpcStatus.ENOENTRY: Status.NO_ENTRY,
    RpcStatus.EBADREQ: Status.BAD_REQUEST,
    RpcStatus.EIO: Status.UNKNOWN,
    RpcStatus.EUA: Status.UNAUTHORIZED,
    RpcStatus.EBADVERSION: Status.BAD_REQUEST,
    RpcStatus.EFENCED: Status.FENCED,
    RpcStatus.EREADONLY: Status.READ_ONLY,
    RpcStatus.ETOOMANYREQUESTS: Status.BUSY,
    RpcStatus.EUNKNOWNLEDGERSTATE: Status.LIMBO,
}
_ANSWERS = {
    Status.OK: RpcStatus.EOK,
    Status.NO_LEDGER: RpcStatus.ENOLEDGER,
    Status.NO_ENTRY: RpcStatus.ENOENTRY,
    Status.BAD_REQUEST: RpcStatus.EBADREQ,
    Status.UNAUTHORIZED: RpcStatus.EUA,
    Status.FENCED: RpcStatus.EFENCED,
    Status.READ_ONLY: RpcStatus.EREADONLY,
    Status.BUSY: RpcStatus.ETOOMANYREQUESTS,
    Status.LIMBO: RpcStatus.EUNKNOWNLEDGERSTATE,
}


def meaning_of(status: RpcStatus) -> Status:
    """What a client is to make of it."""
    return _MEANINGS[status]


def answer_of(status: Status) -> RpcStatus:
    """How a bookie says it: EIO where Apache has no word for it, which never is evidence of absence."""
    return _ANSWERS.get(status, RpcStatus.EIO)


def parse_status(number: int) -> RpcStatus:
    """Version 3's.

    Raises:
        MalformedFrameError: there is none of this number.
    """
    return _known(BY_NUMBER, number)


def parse_status_of_v2(number: int) -> RpcStatus:
    """Version 2's; raises as :func:`parse_status` does."""
    return _known(BY_NUMBER_IN_V2, number)


def _known(statuses: dict[int, RpcStatus], number: int) -> RpcStatus:
    if number not in statuses:
        raise MalformedFrameError(f"a status of {number}")
    return statuses[number]
