"""Checkers of garbage collection: only what the metadata has forgotten is deleted, and that for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bookie_server.wire.messages import Status
from tests.simulation.world import collection_history as c
from tests.simulation.world import history as h
from tests.simulation.world.story import Story


def i23_collection_is_safe(story: Story) -> Iterator[str]:
    """A bookie deletes no ledger that is in the metadata, and none that ever comes there again."""
    for event in story.history.of(c.Deleting):
        for ledger, versions in story.versions.items():
            if not event.first <= ledger <= event.last:
                continue
            if versions[0].index > event.index:
                yield f"{event}, and {versions[0]} comes later"
            elif story.metadata(ledger, event.index) is not None:
                yield f"{event}, and ledger {ledger} is in the metadata"


def i27_deleted_for_good(story: Story) -> Iterator[str]:
    """Behind a durable tombstone nothing of the ledger is taken; damage may lose the tombstone."""
    buried: dict[str, list[c.Buried]] = {}
    for event in story.history.events:
        match event:
            case c.Buried():
                buried.setdefault(event.bookie, []).append(event)
            case h.AddReplied(status=Status.OK):
                is_damaged = story.damaged.get(event.bookie, event.index) < event.index
                for grave in () if is_damaged else buried.get(event.bookie, ()):
                    if grave.first <= event.ledger <= grave.last:
                        yield f"{event} behind {grave}"
            case _:
                pass


def i28_only_surplus_is_dropped(story: Story) -> Iterator[str]:
    """A bookie drops only what it is promised to hold by no metadata of a closed ledger."""
    for event in story.history.of(c.Dropping):
        metadata = story.metadata(event.ledger, event.index)
        if metadata is None:
            continue  # deleted at this very moment
        named = {bookie for fragment in metadata.fragments for bookie in fragment.ensemble}
        if not metadata.is_closed or event.bookie in named:
            yield f"{event}, and its metadata is {metadata}"


COLLECTION_CHECKERS: tuple[Callable[[Story], Iterator[str]], ...] = (
    i23_collection_is_safe,
    i27_deleted_for_good,
    i28_only_surplus_is_dropped,
)
