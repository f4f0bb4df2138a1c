"""``bookkeeper cluster``: the metadata a cluster stands on."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from spark_bookkeeper.cli.metadata import connect_to_metadata, run_on_metadata
from spark_bookkeeper.cli.options import cluster_options, debug_option, uri_option
from spark_bookkeeper.cli.output import print_fields, print_json, print_result


@click.group()
def cluster() -> None:
    """A cluster's metadata: format it, show it, go on from a restored copy."""


@cluster.command()
@uri_option
@debug_option
def init(uri: str) -> None:
    """Format the metadata of a new cluster; fails if there is one already."""
    instance_id = asyncio.run(_init(uri))
    click.echo(f"initialized {uri} as instance {instance_id}")


@cluster.command()
@cluster_options
def info(uri: str, as_json: bool) -> None:
    """Show layout, instance id and bookies."""
    document = asyncio.run(_info(uri))
    if as_json:
        print_json(document)
    else:
        print_fields({key.replace("_", " "): _text(value) for key, value in document.items()})


@cluster.command("skip-ids")
@click.option("--past", "ledger_id", type=int, required=True, help="The highest id that was used.")
@cluster_options
def skip_ids(ledger_id: int, uri: str, as_json: bool) -> None:
    """Give no new ledger an id up to a given one, which bookies may know from before.

    For metadata that were restored from a backup: the ids of ledgers created since would be given out
    again, and their bookies refuse the new entries. The highest id that a bookie knows is in its log
    (ledger_id_max), at each start.
    """
    from random import SystemRandom

    from bookkeeper_metadata.ledgers import LedgerStore

    skipped = run_on_metadata(
        uri,
        lambda store, root: LedgerStore(store, root, random=SystemRandom()).skip_ids(ledger_id),
    )
    document = {"past": ledger_id, "skipped": skipped}
    print_result(
        document, f"skipped {skipped:,} ids; new ones are above {ledger_id}", as_json=as_json
    )


async def _init(uri: str) -> str:
    from bookkeeper_metadata.cluster import initialize
    from bookkeeper_metadata.paths import LedgerLayout, parse_uri

    layout = parse_uri(uri).layout or LedgerLayout.HIERARCHICAL
    store, root = await connect_to_metadata(uri)
    async with store:
        return await initialize(store, root, layout=layout)


async def _info(uri: str) -> dict[str, Any]:
    from bookkeeper_metadata.bookies import BookieRegistry
    from bookkeeper_metadata.cluster import instance_id, read_layout

    store, root = await connect_to_metadata(uri)
    async with store:
        registry = BookieRegistry(store, root)
        return {
            "metadata_service": store.service,
            "ledgers_root": root,
            "layout": (await read_layout(store, root)).value,
            "instance_id": await instance_id(store, root),
            "bookies_writable": sorted(await registry.writable()),
            "bookies_readonly": sorted(await registry.readonly()),
        }


def _text(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)
