"""The election of the one auditor: votes in a queue, the lowest number is elected.

Apache's votes, so that its auditors and ours stand for one office. A session has one vote; whoever loses
the session loses the office without noticing, so an auditor asks from time to time, and does nothing that
two could not do at once. Source: Apache ``ZkLedgerAuditorManager``.
"""

from __future__ import annotations

from contextlib import suppress

from google.protobuf import text_format

from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.proto.text import parse_text
from bookkeeper_metadata.proto.underreplication_pb2 import AuditorVoteFormat
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.lock import Waiter
from bookkeeper_metadata.store.operations import BadVersionError, NoNodeError

_PREFIX = "V_"


class AuditorElection(Waiter):
    """One candidate's vote."""

    def __init__(self, store: MetadataStore, root: str, candidate: str) -> None:
        """``candidate``: its id, for people and Apache's tools to read."""
        vote = text_format.MessageToString(AuditorVoteFormat(bookieId=candidate)).encode()
        super().__init__(store, Paths(root).auditor_election, _PREFIX, vote)

    async def win(self) -> None:
        """Return once elected; the name of the elected is written down.

        Raises:
            MetadataUnavailableError: the store does not answer.
        """
        await self.wait()
        node = await self._store.get(self._path)
        # For people alone: the queue says who is elected.
        with suppress(NoNodeError, BadVersionError):
            if node is not None:
                await self._store.put(self._path, self._value, node.version)

    async def _is_mine(self, name: str) -> bool:
        if not name.startswith(_PREFIX):
            return False
        node = await self._store.get(f"{self._path}/{name}")
        return node is not None and node.is_own


async def elected_auditor(store: MetadataStore, root: str) -> str | None:
    """Who was elected last; ``None`` if nobody was, or stands now."""
    path = Paths(root).auditor_election
    node = await store.get(path)
    if node is None or not node.value or not await store.children(path):
        return None
    try:
        vote = parse_text(node.value.decode(errors="replace"), AuditorVoteFormat())
    except ValueError:
        return None  # nobody reads it but people
    return vote.bookieId or None
