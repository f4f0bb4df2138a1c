"""A writer at rest tells its bookies how far it is confirmed; a busy one has its entries for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from unittest.mock import create_autospec

import pytest

from bookie_server.client.interface import BookieClient
from bookie_server.wire.digest import Crc32cDigest, DummyDigest, HmacDigest, master_key
from bookie_server.wire.messages import Status
from bookie_server.wire.record import encode_lac_packet, is_possible_lac_packet, parse_lac_packet
from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.explicit_lac import ExplicitLac
from spark_bookkeeper.ledger.write_handle import WriteHandle
from spark_bookkeeper.settings import ClientSettings
from tests.doubles.bookies import Faults
from tests.doubles.cluster import InProcessCluster
from tests.doubles.virtual_time import on_virtual_time
from tests.doubles.waits import until
from tests.spark_bookkeeper.ledger import tails

pytestmark = pytest.mark.cluster(explicit_lac_interval_ms=1)

DIGEST = Crc32cDigest()
ENSEMBLE = ("b0:1", "b1:1", "b2:1")
REST_S = 0.05
"""Many times the interval of the tests."""


@pytest.fixture
async def explicit_lac(client: LedgerClient) -> AsyncIterator[ExplicitLac]:
    explicit_lac = ExplicitLac(client.cluster, 7, DIGEST, master_key(b""))
    yield explicit_lac
    explicit_lac.stop()


def packet(lac: int) -> bytes:
    return encode_lac_packet(DIGEST, 7, lac)


def told(faults: Faults) -> list[int | None]:
    return [parse_lac_packet(each, DIGEST, 7) for each in faults.lacs_seen]


def test_the_packet_is_apaches() -> None:
    golden = bytes.fromhex("00000000000000070000000000000009fda28f3c")

    assert packet(9) == golden
    assert parse_lac_packet(golden, DIGEST, 7) == 9


@pytest.mark.parametrize("digest", [DIGEST, HmacDigest(b"secret"), DummyDigest()], ids=repr)
def test_a_packet_that_is_cut_or_of_another_ledger_proves_nothing(digest: Crc32cDigest) -> None:
    whole = encode_lac_packet(digest, 7, 9)

    assert parse_lac_packet(whole, digest, 7) == 9
    assert parse_lac_packet(whole, digest, 8) is None
    assert all(parse_lac_packet(whole[:size], digest, 7) is None for size in range(len(whole)))
    assert parse_lac_packet(encode_lac_packet(digest, 7, -2), digest, 7) is None
    assert is_possible_lac_packet(whole, 7)
    assert not is_possible_lac_packet(whole[:15], 7)


async def test_a_resting_writer_tells_every_bookie_once(
    cluster: InProcessCluster, explicit_lac: ExplicitLac
) -> None:
    explicit_lac.on_acknowledged(3, ENSEMBLE, is_settled=True)
    explicit_lac.on_acknowledged(5, ENSEMBLE, is_settled=True)
    await until(lambda: all(each.lacs_seen for each in cluster.faults.values()))
    explicit_lac.on_acknowledged(5, ENSEMBLE, is_settled=True)
    await asyncio.sleep(REST_S)

    assert [told(each) for each in cluster.faults.values()] == [[5], [5], [5]]


OFF = pytest.param("off", marks=pytest.mark.cluster(explicit_lac_interval_ms=0))


@pytest.mark.parametrize("how", [OFF, "stopped", "carried by entry 4"])
async def test_what_nobody_has_to_be_told_is_not(
    cluster: InProcessCluster, explicit_lac: ExplicitLac, how: str
) -> None:
    explicit_lac.on_acknowledged(3, ENSEMBLE, is_settled=True)
    if how == "stopped":
        explicit_lac.stop()
        explicit_lac.on_acknowledged(4, ENSEMBLE, is_settled=True)
    elif how != "off":
        explicit_lac.on_carried(3)
    await asyncio.sleep(REST_S)

    assert all(each.lacs_seen == [] for each in cluster.faults.values())


async def test_a_bookie_that_hangs_holds_up_nobody_and_gets_the_newest_later(
    cluster: InProcessCluster, explicit_lac: ExplicitLac
) -> None:
    before = asyncio.all_tasks()
    hanging, *others = (cluster.faults[name] for name in ("b1:1", "b0:1", "b2:1"))
    hanging.hangs = True
    for lac in (1, 2, 3):
        explicit_lac.on_acknowledged(lac, ENSEMBLE, is_settled=True)
        # Answered, too: whoever is still being told the one before gets the newest only.
        await until(lambda lac=lac: all(told(each)[-1:] == [lac] for each in others))  # type: ignore[misc]
        await until(lambda: len(asyncio.all_tasks() - before) == 1)

    assert [told(each) for each in cluster.faults.values()] == [[1, 2, 3], [1], [1, 2, 3]]
    await until(lambda: len(asyncio.all_tasks() - before) == 1)
    explicit_lac.stop()
    await until(lambda: asyncio.all_tasks() == before)


class Heard:
    """When, in ms, the bookies were told which LAC."""

    def __init__(self, interval_ms: int) -> None:
        self.told: list[tuple[int, int | None]] = []
        settings = ClientSettings(explicit_lac_interval_ms=interval_ms)
        bookie = create_autospec(BookieClient, instance=True)
        bookie.write_lac.side_effect = self._write_lac
        cluster = LedgerContext(
            MemoryStore(),
            "/ledgers",
            settings=settings,
            random=Random(1),
            make_client=lambda *_: bookie,
        )
        self.explicit_lac = ExplicitLac(cluster, 7, DIGEST, master_key(b""))

    async def _write_lac(self, ledger_id: int, key: bytes, packet: bytes) -> Status:
        now_ms = round(asyncio.get_running_loop().time() * 1000)
        self.told.append((now_ms, parse_lac_packet(packet, DIGEST, ledger_id)))
        return Status.OK


@pytest.mark.parametrize(
    ("settled", "told"), [([False] * 4 + [True], (250, 4)), ([False], (100, 0))]
)
def test_a_writer_with_entries_in_flight_waits_for_them_but_only_for_ten_intervals(
    settled: list[bool], told: tuple[int, int]
) -> None:
    async def main() -> None:
        heard = Heard(interval_ms=10)

        for lac, is_settled in enumerate(settled):
            heard.explicit_lac.on_acknowledged(lac, ENSEMBLE[:1], is_settled=is_settled)
            await asyncio.sleep(0.06)
        await asyncio.sleep(1)

        assert heard.told == [told]

    on_virtual_time(main())


@pytest.mark.parametrize(
    ("pace_ms", "takes_ms", "told"),
    [
        # From the fourth on at once: three rests in a row have shown how it writes.
        (20, 0, [(10, 0), (30, 1), (50, 2), (60, 3), (80, 4), (100, 5), (120, 6)]),
        # Its next entry tells sooner.
        (5, 0, [(40, 6)]),
        # However long an entry is on its way: its writer does not rest meanwhile.
        (0, 20, [(150, 6)]),
    ],
)
def test_a_writer_that_rests_between_its_entries_tells_at_once(
    pace_ms: int, takes_ms: int, told: list[tuple[int, int]]
) -> None:
    async def main() -> None:
        heard = Heard(interval_ms=10)

        for lac in range(7):
            heard.explicit_lac.on_pushed()
            heard.explicit_lac.on_carried(lac - 1)
            await asyncio.sleep(takes_ms / 1000)
            heard.explicit_lac.on_acknowledged(lac, ENSEMBLE[:1], is_settled=True)
            await asyncio.sleep(pace_ms / 1000)
        await asyncio.sleep(1)

        assert heard.told == told

    on_virtual_time(main())


async def rest_between(heard: Heard, lacs: range) -> None:
    """Append entries one by one, with rests in between that are longer than the interval."""
    for lac in lacs:
        heard.explicit_lac.on_pushed()
        heard.explicit_lac.on_carried(lac - 1)
        heard.explicit_lac.on_acknowledged(lac, ENSEMBLE[:1], is_settled=True)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("what", ["switched off", "stopped", "in flight", "busy again"])
def test_what_is_told_at_once_keeps_to_what_is_told_later(what: str) -> None:
    async def main() -> None:
        heard = Heard(interval_ms=0 if what == "switched off" else 10)
        explicit_lac = heard.explicit_lac
        await rest_between(heard, range(6))
        before = len(heard.told)
        assert before == (0 if what == "switched off" else 6)

        if what == "stopped":
            explicit_lac.stop()
        for lac in range(6, 9):
            explicit_lac.on_pushed()
            explicit_lac.on_carried(lac - 1)
            explicit_lac.on_acknowledged(lac, ENSEMBLE[:1], is_settled=what != "in flight")
            await asyncio.sleep(0.001)
        # The first of them came behind a rest, and was told at once but where it could not be.
        assert len(heard.told) - before == (what == "busy again")
        explicit_lac.stop()

    on_virtual_time(main())


async def test_a_writer_and_a_reader_agree_on_the_last_entry_without_another(
    cluster: InProcessCluster, writer: WriteHandle
) -> None:
    await writer.append_many([b"x"] * 5)
    # Not that something was sent: a reader asks any two of the three, and each must have taken it.
    await tails.told(cluster, 4)

    reader = await cluster.client(2).open_ledger(writer.ledger_id)

    assert reader.last_add_confirmed == 4
    await writer.close()
