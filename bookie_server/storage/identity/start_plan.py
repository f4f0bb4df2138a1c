"""Start plan: may a bookie start on the directories that were found, and what their cookies then say.

Values in, values out. What is compared: the cookie files of the directories with each other and with
the settings, and the start counters of the disks with the metadata's. The rule behind all of it: what
a bookie once acknowledged is in a *complete* set of its *newest* disks. So a set with a directory
missing, foreign, swapped or older than the others is refused, unless an operator said that it is
lost; a bookie whose records are lost then denies nothing (see ``bookie_server.integrity.limbo``). Where only the
cookie or the start counter is lost, the same word keeps the records, in doubt.

A set is complete once the metadata knows it, or any directory has a start counter: those are written
behind the last cookie file. Before, a missing cookie file is a first start that a crash cut short.

Every start counts, on all disks first and then in the metadata, under an id of its own. So at rest the
disks have the metadata's latest start, or one that follows it. Disks behind are old, disks with another
start of that number belong to another process; disks further ahead mean that the metadata is old. So do
the collections of garbage between two starts, which are counted in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bookie_server.settings import REPLACE_FLAG
from bookie_server.storage.disk.errors import StorageRefusedError
from bookie_server.storage.identity.cookie_file import (
    DirectoryCookie,
    DirectorySet,
    Member,
    Start,
)
from bookie_server.storage.identity.inspection import JOURNAL, LEDGER, FoundDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """Who wants to start, and what is known of it."""

    bookie_id: str
    cluster_id: str
    has_cookie: bool
    """The metadata has a cookie of this id."""
    starts: int
    """The metadata's start counter; 0 if it has none."""
    start_id: str
    """Of the latest start in the metadata; empty if it has none."""
    collections: int = 0
    """Collections of garbage that the metadata has counted."""
    instance_id: bytes = b""
    """What all its records carry (``instance_id_of``); empty where any will do."""
    journals: tuple[str, ...] = ()
    ledgers: tuple[str, ...] = ()
    """Paths of its directories, as the metadata's cookie has them; empty if there is none."""
    is_forgotten: bool = False
    """An operator has said that the bookie of this id is gone for good: empty directories are new."""
    may_replace: bool = False
    """The operator has said that what is missing is lost."""
    may_expand: bool = False
    """Directories may be added behind the known ones."""


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What to write before anything else happens in the directories."""

    cookies: tuple[tuple[str, DirectoryCookie], ...]
    """By path, in the order of writing: new directories go first, so that the newest revision found
    is one whose new members have their cookies."""
    start: Start
    """The start counter of every directory from now on."""
    is_metadata_older: bool
    """The disks have counted further than the metadata: it is a restored copy."""
    notes: tuple[str, ...]
    """What is out of the ordinary, for the bookie's log."""
    doubtful: tuple[str, ...] = ()
    """Paths of directories whose records are kept, though some may be missing; see ``doubt``."""


def plan_start(
    found: Sequence[FoundDirectory], applicant: Applicant, new_id: Callable[[], str]
) -> StartPlan:
    """Decide whether ``applicant`` may start on the directories; ``new_id`` draws a random name.

    Raises:
        StorageRefusedError: it may not; the message names the directory and the way out.
    """
    return _Planner(found, applicant, new_id).plan()


_WAY_TO_KEEP = (
    "bring the right disk back if this is another or an old one, or start once with "
    f"{REPLACE_FLAG}: its records are kept, and what is not among them is not denied"
)
_WAY_FROM_OLD = f"bring the newest one back, or empty it and start once with {REPLACE_FLAG}"
_WAY_FROM_FORGOTTEN = (
    "this bookie was forgotten (`bookkeeper cookies delete`), after which its disks are never used "
    "again; empty all of its directories to start as a new bookie"
)


class _Planner:
    """The steps of one decision, and what they pass on to each other."""

    def __init__(
        self, found: Sequence[FoundDirectory], applicant: Applicant, new_id: Callable[[], str]
    ) -> None:
        self._found = found
        self._applicant = applicant
        self._new_id = new_id
        self._newest = max(
            (each.cookie.directories for each in found if each.cookie is not None),
            key=lambda directories: directories.revision,
            default=DirectorySet(0, (), ()),
        )
        has_own = any(each.cookie is not None for each in found)
        is_counted = (applicant.starts > 0 and not applicant.is_forgotten) or any(
            each.start is not None for each in found
        )
        # A cookie that nobody counted a start for is an Apache bookie's of the same id: of our own
        # version 0.1 there may be records all the same.
        is_apache = not has_own and not is_counted and all(each.has_records for each in found)
        self._was_complete = is_counted or (applicant.has_cookie and not is_apache)
        self._members: dict[str, Member] = {}
        """What each directory is from now on, by path."""
        self._fresh: set[str] = set()
        """Paths of the directories that get their first cookie, or a new one."""
        self._doubtful: list[str] = []
        """Paths of the directories whose records are kept without a cookie or a start counter."""
        self._notes: list[str] = []

    def plan(self) -> StartPlan:
        for each in self._found:
            self._refuse_foreign(each)
        for kind in (JOURNAL, LEDGER):
            self._refuse_left_out(kind)
        for each in self._found:
            self._place(each)
        start, is_metadata_older = self._count()
        directories = DirectorySet(
            self._newest.revision,
            tuple(self._members[each.path] for each in self._found if each.kind == JOURNAL),
            tuple(self._members[each.path] for each in self._found if each.kind == LEDGER),
        )
        if directories != self._newest:
            directories = replace(directories, revision=self._newest.revision + 1)
        cookies = [
            (each.path, self._cookie(each, directories))
            for each in sorted(self._found, key=lambda each: each.path not in self._fresh)
            if each.path in self._fresh
            or (each.cookie is not None and each.cookie.directories != directories)
        ]
        return StartPlan(
            tuple(cookies), start, is_metadata_older, tuple(self._notes), tuple(self._doubtful)
        )

    def _cookie(self, found: FoundDirectory, directories: DirectorySet) -> DirectoryCookie:
        return DirectoryCookie(
            self._applicant.bookie_id,
            self._applicant.cluster_id,
            self._members[found.path].directory_id,
            directories,
        )

    def _known(self, kind: str) -> tuple[Member, ...]:
        return self._newest.journals if kind == JOURNAL else self._newest.ledgers

    def _refuse_foreign(self, found: FoundDirectory) -> None:
        cookie = found.cookie
        if cookie is None:
            return
        if cookie.cluster_id != self._applicant.cluster_id:
            raise StorageRefusedError(
                found.path,
                f"the directory belongs to another cluster: bookie {cookie.bookie_id} of instance "
                f"{cookie.cluster_id} made it, and this is instance {self._applicant.cluster_id}; "
                "check the metadata service URI, or restore ZooKeeper's data if it was lost",
            )
        if cookie.bookie_id != self._applicant.bookie_id:
            raise StorageRefusedError(
                found.path,
                f"the directory belongs to another bookie: {cookie.bookie_id} made it, and this is "
                f"{self._applicant.bookie_id}; give it back, or take the id it was made for",
            )

    def _refuse_left_out(self, kind: str) -> None:
        known = self._known(kind)
        paths = [each.path for each in known]
        if self._was_complete and not known:
            # Every cookie is lost, but for the metadata's. What is left out now would be refused
            # later, for a directory that is added must be empty.
            applicant = self._applicant
            paths = list(applicant.journals if kind == JOURNAL else applicant.ledgers)
        if len([each for each in self._found if each.kind == kind]) >= len(paths):
            return
        named = {each.cookie.directory_id for each in self._found if each.cookie is not None}
        missing = [each.path for each in known if each.directory_id not in named]
        raise StorageRefusedError(
            ", ".join(missing) or paths[-1],
            f"{kind} directories of this bookie are missing in the settings; it has {len(paths)}: "
            f"{', '.join(paths)}",
        )

    def _place(self, found: FoundDirectory) -> None:
        """Say which member of the set a directory is."""
        known = self._known(found.kind)
        expected = known[found.index] if found.index < len(known) else None
        if found.cookie is not None:
            expected = self._refuse_misplaced(found, found.cookie.directory_id, expected)
            self._members[found.path] = Member(expected.directory_id, found.path)
            if found.path != expected.path:
                self._notes.append(
                    f"{found.kind} directory has moved. from={expected.path} to={found.path}"
                )
            return
        self._refuse_records_of_others(found)
        self._fresh.add(found.path)
        if self._was_complete:
            self._refuse_missing(found, expected)
            if self._is_added(expected):
                self._notes.append(f"{found.kind} directory is added. path={found.path}")
            elif found.has_records:
                self._keep(found)
            else:
                self._notes.append(
                    f"{found.kind} directory is replaced, its records are lost. path={found.path}"
                )
            # By a new name: the disk that had the old one must not come back beside it.
            expected = None
        # Else the first start of this bookie, or of one that had no cookies yet; a crash may have
        # cut an earlier one short behind some of them.
        own = expected.directory_id if expected is not None else self._new_id()
        self._members[found.path] = Member(own, found.path)

    def _is_added(self, expected: Member | None) -> bool:
        """Whether a directory stands behind those of a known set."""
        return expected is None and self._newest.revision > 0

    def _refuse_misplaced(self, found: FoundDirectory, own: str, expected: Member | None) -> Member:
        if expected is not None and own == expected.directory_id:
            return expected
        for kind in (JOURNAL, LEDGER):
            for index, member in enumerate(self._known(kind)):
                if member.directory_id == own:
                    raise StorageRefusedError(
                        found.path,
                        f"directories were swapped: this is number {index} of the {kind} "
                        f"directories, and stands in the settings as number {found.index} of the "
                        f"{found.kind} directories; list them in the order they had",
                    )
        raise StorageRefusedError(
            found.path,
            "the directory was replaced by another one earlier and is no part of this bookie any "
            "more; take it out of the settings",
        )

    def _refuse_missing(self, found: FoundDirectory, expected: Member | None) -> None:
        """Refuse a directory without a usable cookie, in a set that was complete once."""
        if self._is_added(expected):
            if found.has_records:
                detail = "a directory to be added has records already; give an empty one"
            elif not self._applicant.may_expand:
                detail = (
                    f"the {found.kind} directory is none of this bookie's; set "
                    "allow_storage_expansion to add it"
                )
            else:
                return
            raise StorageRefusedError(found.path, detail)
        if self._applicant.may_replace:
            return
        if found.has_records:
            detail = f"{found.damage or 'it has records, but no cookie'}; {_WAY_TO_KEEP}"
        else:
            detail = (
                f"the {found.kind} directory was lost or emptied: {found.damage or 'it is empty'}; "
                f"bring the disk back, or start once with {REPLACE_FLAG} if it is lost"
            )
        raise StorageRefusedError(found.path, detail)

    def _refuse_records_of_others(self, found: FoundDirectory) -> None:
        """Nothing but the records says whose a directory without a cookie is, and which of a set.

        The storage would refuse them too, but only when a new cookie has given them to this place.
        """
        origin = found.origin
        if origin is None:
            return
        if self._applicant.instance_id not in (b"", origin.instance_id):
            raise StorageRefusedError(
                found.path, "it has no cookie, and its records belong to another bookie"
            )
        if (origin.kind, origin.index) != (found.kind, found.index):
            raise StorageRefusedError(
                found.path,
                f"it has no cookie, and its records are those of number {origin.index} of the "
                f"{origin.kind} directories; it stands in the settings as number {found.index} of "
                f"the {found.kind} directories",
            )

    def _keep(self, found: FoundDirectory) -> None:
        """Keep the records of a directory that may be an old copy."""
        self._doubtful.append(found.path)
        self._notes.append(
            f"{found.kind} directory has lost its cookie or start counter: its records are kept, and "
            f"what is not among them is not denied. path={found.path}"
        )

    def _place_uncounted(self) -> None:
        """Refuse directories that have lost their start counter, or keep what they hold in doubt."""
        highest = max(
            (each.start.number for each in self._found if each.start is not None), default=0
        )
        # The first start of a bookie with records, of version 0.1, may have been cut short.
        if max(self._applicant.starts, highest - 1) == 0:
            return
        for each in self._found:
            # With neither counter nor records it is new: a crash came in between.
            is_new = not each.has_records and not each.damage
            if each.start is not None or is_new or each.path in self._fresh:
                continue
            if not self._applicant.may_replace:
                detail = each.damage or "its start counter is lost"
                raise StorageRefusedError(each.path, f"{detail}; {_WAY_TO_KEEP}")
            self._fresh.add(each.path)
            self._members[each.path] = Member(self._new_id(), each.path)
            self._keep(each)

    def _count(self) -> tuple[Start, bool]:
        """This start, and whether the metadata is older than the disks."""
        applicant = self._applicant
        self._place_uncounted()
        counted = {
            each.path: each.start or Start(0, "", "")
            for each in self._found
            if each.path not in self._fresh
            # See above; what a cookie of 0.1 left without a counter is adopted.
            and (each.start is not None or each.has_records)
        }
        numbers = {start.number for start in counted.values()}
        highest = max(numbers, default=applicant.starts)
        for path, start in counted.items():
            if start.number < max(applicant.starts, highest - 1):
                way_out = _WAY_FROM_FORGOTTEN if applicant.is_forgotten else _WAY_FROM_OLD
                raise StorageRefusedError(
                    path,
                    f"the directory is an old copy: it has seen {start.number} starts of this "
                    f"bookie, of {max(applicant.starts, highest)}; {way_out}",
                )
            expected = {
                applicant.starts: start.start_id,
                applicant.starts + 1: start.previous_id,
            }.get(start.number, applicant.start_id)
            if expected != applicant.start_id:
                raise StorageRefusedError(
                    path,
                    f"start {start.number} of this bookie was on other directories: this is a copy "
                    "of them, or belongs to another process under the same id; bring the right one "
                    f"back, or empty it and start once with {REPLACE_FLAG}",
                )
        collections = self._collections(counted)
        is_older = highest > applicant.starts + 1 or collections > applicant.collections + 1
        number = applicant.starts + 1
        if is_older:
            self._notes.append(
                "the metadata is older than the disks. "
                f"starts={applicant.starts} starts_on_disk={highest} "
                f"collections={applicant.collections} collections_on_disk={collections}"
            )
        if highest > applicant.starts + 1:
            # One that was cut short is finished: else each try would leave a disk further behind.
            number = highest + 1 if len(numbers) == 1 else highest
        return Start(number, self._new_id(), applicant.start_id, collections), is_older

    def _collections(self, counted: Mapping[str, Start]) -> int:
        """The collections that the disks have counted; an old copy has missed one of them."""
        known = self._applicant.collections
        highest = max((start.collections for start in counted.values()), default=0)
        for path, start in counted.items():
            # A crash may have come between two disks, and none before the metadata counts.
            if start.collections < max(known, highest - 1):
                raise StorageRefusedError(
                    path,
                    f"the directory is an old copy: it has seen {start.collections} collections of "
                    f"garbage of this bookie, of {max(known, highest)}; {_WAY_FROM_OLD}",
                )
        return max(known, highest)
