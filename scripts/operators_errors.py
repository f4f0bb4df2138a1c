"""What the errors of bookies, of local clusters and of commands mean: Spark never shows them.

The rest of the errors is in :mod:`spark_bookkeeper.datasource.explanations`; the document has both.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_bookkeeper.datasource.explanations import Explanation

_NOT_STARTED = "Nothing was changed, and the bookie answers nobody."

OPERATORS: Mapping[str, Explanation] = {
    "BK_STORAGE_REFUSED": Explanation(
        "A bookie does not start: its directories are not its own, not all there, an old copy or of a "
        "newer version, or another process runs under its id. A running bookie ends with it when another "
        "one starts under its id.",
        _NOT_STARTED,
        "Do what the message says of the directory it names; `bookkeeper bookie --check` judges "
        "directories while no bookie runs on them, `bookkeeper cookies show` says what the cluster knows.",
    ),
    "BK_STORAGE_FAILED": Explanation(
        "A write or a sync of a bookie's disk failed, so the bookie ended.",
        "What it acknowledged is on its disks; what was not acknowledged may be lost, and its writers go "
        "on with other bookies.",
        "See to the disk and start the bookie again; it replays what is really there.",
    ),
    "BK_STORAGE_DAMAGED": Explanation(
        "A file that a bookie stored does not pass its checksums.",
        "What it held is unknown at this bookie and not denied; other copies answer.",
        "Look at the disk; `bookkeeper ledgers verify --all` names the entries that lack a copy.",
    ),
    "BK_DISK_FULL": Explanation(
        "A bookie's disk has no room for what it has to write.",
        "What it acknowledged is in its journal; reads go on, and its writers go on with other bookies.",
        "Make room, or add a disk: it goes on by itself. `bookkeeper bookies list` shows it as read-only "
        "until then.",
    ),
    "BK_BOOKIE_FAILED": Explanation(
        "The operating system refused a bookie something: a directory, a file.",
        _NOT_STARTED,
        "Change what the message names: permissions, a full disk.",
    ),
    "BK_PORT_UNAVAILABLE": Explanation(
        "A bookie, auto-recovery or the admin page cannot listen at its address: another process has the port, or this "
        "machine does not have the address or keeps the port for the system.",
        "Nothing was changed, and the process has ended.",
        "End what has the port - often the same process, started twice; `ss -ltnp` names it - or choose another with the "
        "setting that the message names, as a flag, in the settings file or the environment. A bookie without a "
        "`bookie_id` is its address: give it the old one as `bookie_id` when it moves to another port.",
    ),
    "BK_RPC_PORT_NEEDED": Explanation(
        "A bookie has `rpc_port = 0`, so only clients of ours reach it, and bookies of Apache's are registered in its cluster. Java clients "
        "choose every bookie that is registered: they would choose this one, too, and find out by an add that they cannot reach it.",
        "Nothing was changed, and the process has ended.",
        "Give it an `rpc_port`; clients of ours go on to use its other ports.",
    ),
    "BK_INSECURE": Explanation(
        "A process is to listen beyond loopback, where its settings neither encrypt nor ask clients who they are.",
        _NOT_STARTED,
        "Give it TLS with certificates of clients (docs/tls.md), keep it on loopback, or accept with --insecure that anybody who "
        "reaches the port can read and write.",
    ),
    "BK_USAGE": Explanation(
        "A command was given options, arguments or settings that make no sense.",
        "Nothing was done.",
        "Correct what the message names; `--help` shows what there is.",
    ),
    "BK_LOCAL_START": Explanation(
        "A process of a local cluster did not come up; its log's last lines follow.",
        "Everything that was started with it is stopped again; kept data is untouched.",
        "Read the last lines of the log; often a port is taken, or directories are not this bookie's.",
    ),
    "BK_LOCAL_DIRECTORY_IN_USE": Explanation(
        "Another local cluster runs in this directory.",
        "Nothing was changed there.",
        "Use that one, stop it, or choose another directory.",
    ),
    "BK_LOCAL_DIRECTORY": Explanation(
        "A directory cannot be made or written to.",
        "Nothing was started.",
        "Choose another directory, or change what is in the way.",
    ),
    "BK_NO_JAVA": Explanation(
        "A local cluster needs Java for its ZooKeeper, and there is none that is new enough.",
        "Nothing was started.",
        "Install Java 17 or newer, or name it in JAVA_HOME.",
    ),
}
"""By name, as ``EXPLANATIONS``."""
