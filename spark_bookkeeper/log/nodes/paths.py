"""Where a log's nodes are: a tree of its own beside Apache's, ``<ledgers root>-logs``.

Log ids stand in paths as plain decimal, the way they stand in stored offsets, so one search finds
both. Application ids and job ids come from users and are escaped, so that no id can name another
node; log names are checked instead, because people read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from spark_bookkeeper.log.format.epoch import Job, TokenChild, Txn

LOG_ID_MAX = 2**63 - 1
_LOG_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:=@ -]{0,253}[A-Za-z0-9_])?")
_NUMBER = re.compile("[0-9]{1,19}")
_SEQUENCE_DIGITS = 10


def check_log_name(name: str) -> str:
    """``name`` itself if it may name a log.

    Raises:
        ValueError: it may not; the message says what may.
    """
    if _LOG_NAME.fullmatch(name) is None:
        raise ValueError(
            "a log name has 1 to 255 letters, digits or _ . : = @ - and spaces, and begins and "
            f"ends with a letter, a digit or _; name={name!r}"
        )
    return name


def escape(text: str) -> str:
    """``text`` as one path component, different for different texts.

    Raises:
        ValueError: it is empty or no Unicode text.
    """
    if not text:
        raise ValueError("an id must not be empty")
    try:
        quoted = quote(text, safe=" ", errors="strict")
    except UnicodeEncodeError as cause:
        raise ValueError(f"an id must be Unicode text; id={text!r}") from cause
    # A leading dot is escaped too: "." and ".." are no names of nodes.
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def unescape(component: str) -> str:
    """The text of which :func:`escape` made ``component``."""
    return unquote(component, errors="strict")


def job_name(job: Job) -> str:
    """The node name of a job: ``<app id>@<version>`` with a transaction, else its own id."""
    if job.txn is None:
        return escape(job.job_id)
    return f"{escape(job.txn.app_id)}@{job.txn.version}"


def parse_job_name(name: str) -> Txn | None:
    """The transaction in a job's node name, if it has one (escaped ids have no ``@``)."""
    app, _, version = name.rpartition("@")
    if not app or _NUMBER.fullmatch(version) is None:
        return None
    try:
        return Txn(unescape(app), int(version))
    except ValueError:
        # No job of ours is called so: it is no text, too long, or the number no version.
        return None


def parse_child_name(name: str) -> TokenChild:
    """The ledger a token's child stands for.

    Raises:
        ValueError: it stands for none: somebody else made it.
    """
    # None of the three is ever negative, so a dash only separates.
    partition, task_attempt_id, ledger_id = (_number(part) for part in name.split("-"))
    return TokenChild(partition, task_attempt_id, ledger_id)


def numbers_of(names: Iterable[str]) -> list[int]:
    """The numbers that nodes are called by, ascending; what is called otherwise is somebody else's."""
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def parse_chunk_epoch(name: str) -> int:
    """The epoch that wrote the chunk of this name.

    Raises:
        ValueError: it is no chunk's.
    """
    return _number(name.partition("-")[0])


def _number(digits: str) -> int:
    if _NUMBER.fullmatch(digits) is None:
        raise ValueError(f"no number: {digits[:40]!r}")
    return int(digits)


class LogPaths:
    """The paths of all logs of one cluster."""

    def __init__(self, ledgers_root: str) -> None:
        self.root = f"{ledgers_root}-logs"
        self.names = f"{self.root}/names"

    def name(self, name: str) -> str:
        """The node that maps a name to a log id; ``ValueError`` if no log may have that name."""
        return f"{self.names}/{check_log_name(name)}"

    def log(self, log_id: int) -> LogTree:
        """The paths below one log."""
        return LogTree(f"{self.root}/{log_id}")


class LogTree:
    """The paths of one log."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.head = f"{root}/head"
        self.chunks = f"{root}/chunks"
        self.schemas = f"{root}/schemas"
        self.txns = f"{root}/txn"
        self.tokens = f"{root}/tokens"
        self.jobs = f"{root}/jobs"
        self.garbage = f"{root}/garbage"
        self.consumers = f"{root}/consumers"
        self.folders = (
            self.chunks,
            self.schemas,
            self.txns,
            self.tokens,
            self.jobs,
            self.garbage,
            self.consumers,
        )
        """Every node a log has from its creation on, but for its root, head and first schema."""

    def chunk(self, name: str) -> str:
        """An immutable piece of the list of ranges."""
        return f"{self.chunks}/{name}"

    def schema(self, schema_id: int) -> str:
        """A schema by number, from 0."""
        return f"{self.schemas}/{schema_id}"

    def txn(self, app_id: str) -> str:
        """What the application committed last; its id is escaped."""
        return f"{self.txns}/{escape(app_id)}"

    def token(self, epoch: int) -> str:
        """The token of an epoch: whether the ledgers it creates may still become visible."""
        return f"{self.tokens}/{sequence_name(epoch)}"

    def token_child(self, epoch: int, child: TokenChild) -> str:
        """One ledger created under an epoch."""
        return f"{self.token(epoch)}/{child.name}"

    def job(self, job: str) -> str:
        """The index of one job's epochs; ``job`` is a node name of :func:`job_name`."""
        return f"{self.jobs}/{job}"

    def job_epoch(self, job: str, epoch: int) -> str:
        """There if tasks of ``epoch`` claimed under ``job``."""
        return f"{self.job(job)}/{sequence_name(epoch)}"

    def consumer(self, consumer: str) -> str:
        """How far a consumer has read; its name is escaped."""
        return f"{self.consumers}/{escape(consumer)}"

    def garbage_entry(self, epoch: int) -> str:
        """What the commit of ``epoch`` dropped."""
        return f"{self.garbage}/{sequence_name(epoch)}"


def sequence_name(epoch: int) -> str:
    """An epoch as the store numbers sequential nodes: ten digits."""
    return f"{epoch:0{_SEQUENCE_DIGITS}d}"
