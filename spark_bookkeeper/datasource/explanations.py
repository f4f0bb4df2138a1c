"""What every ``BK_…`` name means to its reader: why it happens, whether data is safe, what to do.

The one place for both the errors Spark shows and ``docs/errors.md``. A name stands for one meaning
for ever: scripts and alerts look for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """One name's paragraph."""

    cause: str
    safety: str
    action: str
    is_in_message: bool = False
    """The error's own message says safety and action, with its facts; nothing is added to it."""


def _in_message(cause: str, safety: str, action: str) -> Explanation:
    return Explanation(cause, safety, action, is_in_message=True)


_NOTHING_DONE = "Nothing was read or written."
_NOT_VISIBLE = "Committed data is safe and no row of this write is visible."
_REFUSED = "What cannot be trusted was refused, not returned; other rows are not affected."

EXPLANATIONS: Mapping[str, Explanation] = {
    # What was asked for.
    "BK_OPTION_INVALID": Explanation(
        "An option has a value that cannot be used, or options contradict each other.",
        _NOTHING_DONE,
        "Correct what the message lists; it names every defect at once.",
    ),
    "BK_OPTION_UNKNOWN": Explanation(
        "At least one option is none of ours.",
        _NOTHING_DONE,
        "Use the name the message suggests; it lists all where none is near.",
    ),
    "BK_NOT_SUPPORTED_YET": Explanation(
        "This version does not have this part of the interface.",
        _NOTHING_DONE,
        "Use what the message names instead.",
    ),
    "BK_TLS_FILES": Explanation(
        "A file that TLS needs is not where the settings say, cannot be read by this process, or is not what it should be.",
        _NOTHING_DONE,
        "Put the file there, on the driver and on every executor, or correct the path; the key must not be encrypted.",
    ),
    "BK_TLS_NEEDED": _in_message(
        "A bookie is registered as one that takes TLS only, and the client's settings name no files for it.",
        _NOTHING_DONE,
        "Set `bookkeeper.client.tlsTrustPath`, and `tlsCertificatePath` with `tlsKeyPath` if the bookie asks for a certificate; for a "
        "command `BOOKKEEPER_TLS_TRUST_PATH`, and the two others.",
    ),
    "BK_TLS_NOT_OFFERED": _in_message(
        "The client's settings ask for TLS, and a bookie is registered as one that has none.",
        _NOTHING_DONE,
        "Give the bookie a certificate; while a cluster is changed over, set `tls_only` to false.",
    ),
    "BK_PACKAGE_MISSING": _in_message(
        "The Python of Spark's workers lacks a package.",
        _NOTHING_DONE,
        "Set PYSPARK_PYTHON to the interpreter that has spark-bookkeeper installed.",
    ),
    "BK_CONTINUOUS_UNSUPPORTED": _in_message(
        "A query with Spark's continuous trigger, which drops the rows of every Python sink.",
        "What was committed before is safe; nothing of this batch was written.",
        "Use trigger(processingTime=...) or trigger(availableNow=True).",
    ),
    "BK_STREAM_IDENTITY": _in_message(
        "Spark did not tell a task its streaming query and micro-batch.",
        "Nothing was written, because a replay could not be recognised.",
        "Use a version of Spark that this connector supports.",
    ),
    "BK_UNAUTHORIZED": Explanation(
        "The password does not open the ledgers, or an append brings another than the log's rows have.",
        "Nothing was read or changed.",
        "Pass the password the data was written with, by the option password or passwordFile; an "
        "overwrite may bring another.",
    ),
    # What is stored: columns and payloads.
    "BK_SCHEMA_MISMATCH": Explanation(
        "Columns do not fit those of the log, or a read's own schema names what the log lacks.",
        "Nothing was read or written.",
        "Select and cast the columns as the message says; a write adds columns with "
        "mergeSchema=true, or goes to another log.",
    ),
    "BK_SCHEMA_CONFLICT": _in_message(
        "Another commit gave the log columns after a write that adds some was planned.",
        "The log is as the other commit left it and nothing of this write is visible.",
        "Run it again; a streaming query plans anew when it is started again.",
    ),
    "BK_TYPE_UNSUPPORTED": Explanation(
        "A column is of a type that cannot be stored.",
        "Nothing was written.",
        "Cast the column, or leave it out.",
    ),
    "BK_ROW_TOO_LARGE": Explanation(
        "One row alone is larger than an entry may be.",
        _NOT_VISIBLE,
        "Split its large columns over rows.",
    ),
    "BK_RAW_NULL": Explanation(
        "A value for a raw log is null, which an entry cannot say.",
        _NOT_VISIBLE,
        "Filter null values out, or replace them.",
    ),
    "BK_VALUE_INVALID": Explanation(
        "A value to be written is none that readers take: a text of bytes that are no UTF-8, which "
        "Spark lets be.",
        _NOT_VISIBLE,
        "Write such a column as binary, or through Spark's `make_valid_utf8`.",
    ),
    "BK_ENTRY_TOO_LARGE": Explanation(
        "A payload exceeds what an entry may hold.",
        _NOT_VISIBLE,
        "Split the value, or lower entryBytes.",
    ),
    "BK_PAYLOAD_CORRUPT": Explanation(
        "An entry does not hold what the log's format says: something else wrote to the ledger, or "
        "it was damaged before its checksum was made.",
        _REFUSED,
        "Read other rows with startingOffsets and endingOffsets, and see what wrote the ledger.",
    ),
    "BK_SNAPSHOT_EXPIRED": Explanation(
        "An optimize moved rows to other ledgers while a read that was planned before was running, and "
        "the old ledgers are deleted by now. Reads find moved rows by their numbers, but not where a "
        "task reads some of a range's entries, or where `_ledger` and `_entry` are wanted.",
        "No row is lost; the read was stopped instead of giving other rows.",
        "Read again. Keep deletedLedgerRetention of the optimize above the time your longest read takes.",
    ),
    "BK_ROWS_MISSING": Explanation(
        "A ledger holds other rows than its log, or its footer, says.",
        "The read was stopped instead of giving fewer rows.",
        "Run `bookkeeper ledgers verify` on the ledger, and see what wrote or restored it.",
    ),
    "BK_LOG_PAYLOAD_FORMAT": _in_message(
        "A log of rows was opened entry by entry, outside Spark.",
        _NOTHING_DONE,
        "Read and write it by Spark; only logs of payloadFormat raw are lists of entries.",
    ),
    # Which log, and where in it.
    "BK_NO_SUCH_LOG": Explanation(
        "No log of this name exists, or it is being deleted.",
        _NOTHING_DONE,
        "Check the name and metadataServiceUri; the first append creates a log.",
    ),
    "BK_LOG_EXISTS": _in_message(
        "A log of this name exists already.",
        "It was not touched.",
        "Open it instead, or choose another name.",
    ),
    "BK_LOG_RECREATED": _in_message(
        "A position or checkpoint belongs to another log: one of this name that was deleted since, "
        "or one of another name.",
        _NOTHING_DONE,
        "Start the query with a new checkpoint, or the read without offsets of the other log; where it "
        "begins in this log, its options say.",
    ),
    "BK_OFFSET_INVALID": _in_message(
        "A checkpoint holds a position that is none of this source.",
        "Nothing was read.",
        "Start with a new checkpoint.",
    ),
    "BK_DATA_LOSS": _in_message(
        "Rows that were asked for were trimmed or overwritten, or lie beyond the log's end.",
        "Rows outside the gap are safe.",
        "Start from a later row, or set failOnDataLoss=false to go on after the gap; behind the end "
        "nothing is skipped: ask for rows up to next_row.",
    ),
    "BK_LOG_OVERWRITTEN": _in_message(
        "An overwrite replaced rows that a stream had not read yet.",
        "What replaced them is safe.",
        "Set ignoreOverwrites=true to go on with it, or start with a new checkpoint.",
    ),
    "BK_NO_MATCHING_TIMESTAMP": _in_message(
        "Nothing was committed at startingTimestamp or later.",
        "No data is missing.",
        "Begin earlier, or at the log's end with startingTimestampStrategy=latest.",
    ),
    "BK_NO_CONSUMER": _in_message(
        "A log is to be trimmed to what its consumers have read, and there is no live one.",
        "Nothing was dropped.",
        "Start the queries that name a consumer, or trim by row number.",
    ),
    # Writers that meet.
    "BK_FENCED": Explanation(
        "Another attempt, run or writer took over from this one.",
        "No row of this attempt becomes visible by it; what was acknowledged to a writer outside "
        "Spark is in its log.",
        "Nothing, if a newer attempt goes on; else run the write again.",
    ),
    "BK_LOG_CONFLICT": _in_message(
        "Another commit came between planning and committing an overwrite.",
        "The log is as the other writer left it and no row of this write is visible.",
        "Run it again.",
    ),
    "BK_LOG_HAS_WRITER": _in_message(
        "A writer outside Spark holds the log's last ledger open.",
        "Nothing was written.",
        "Close that writer, or take the log from it with takeOver=true or `bookkeeper logs recover`.",
    ),
    "BK_TXN_REGRESSED": _in_message(
        "A batch older than the last committed one: a checkpoint was restored, or two drivers run.",
        "Committed data is safe and nothing was written.",
        "Stop the other driver, or start with a new checkpoint. Never restore checkpoints.",
    ),
    "BK_TXN_APP_REUSED": _in_message(
        "A txnAppId came again from another query, whose rows would have been skipped.",
        "Nothing was written and nothing was skipped.",
        "Choose another txnAppId, or forget the stored one with `bookkeeper logs txns forget`.",
    ),
    "BK_COMMIT_UNKNOWN": _in_message(
        "The answer to a commit was lost and cannot be found out any more.",
        "Either all of its rows are visible, or none.",
        "Count them before writing again; txnAppId and txnVersion make a repeat safe.",
    ),
    "BK_COMMIT_REFUSED": _in_message(
        "A commit may not go ahead: it was swept, or its messages do not belong together.",
        "Nothing of it is or becomes visible.",
        "Run the write again.",
    ),
    # The cluster.
    "BK_NOT_ENOUGH_BOOKIES": Explanation(
        "Fewer bookies are writable than entries need to be acknowledged, or the cluster never had as "
        "many as writeQuorum says.",
        _NOT_VISIBLE,
        "Start bookies, or write to a log of a smaller ensembleSize and writeQuorum, and run it again.",
    ),
    "BK_ADD_QUORUM_TIMEOUT": Explanation(
        "Entries did not reach their ack quorum in time.",
        _NOT_VISIBLE,
        "Look at the bookies, or raise bookkeeper.client.addQuorumTimeoutMs, and run it again.",
    ),
    "BK_ENTRY_UNREADABLE": Explanation(
        "No replica returned an entry that should exist.",
        "Nothing is known to be lost.",
        "Bring the ledger's bookies back, and read again.",
    ),
    "BK_DIGEST_MISMATCH": Explanation(
        "Every replica that answered returned bytes that do not match their checksum.",
        _REFUSED,
        "Read again when other replicas are up; `bookkeeper ledgers verify` compares them.",
    ),
    "BK_NO_SUCH_ENTRY": Explanation(
        "An entry lies outside what the ledger holds.",
        "Other entries are not affected.",
        "Check the ledger's last entry with `bookkeeper ledgers show`.",
    ),
    "BK_NO_SUCH_LEDGER": Explanation(
        "A ledger does not exist: it was deleted, by retention after an overwrite or by hand.",
        "What the log names now is safe.",
        "Read the log again, or check the ids of the option ledger; a long read needs a "
        "deletedLedgerRetention that is longer still.",
    ),
    "BK_LEDGER_DELETED": Explanation(
        "Somebody deleted the ledger that a writer is adding to, or a new one was to have the id of one "
        "that was deleted.",
        "What the ledger held is gone; entries of this writer that are not acknowledged were not written.",
        "Write to a new ledger, without an id of your own choice. If nobody should have deleted it, see "
        "who did.",
    ),
    "BK_LEDGER_CLOSED": Explanation(
        "A writer's ledger was closed under it.",
        "Entries acknowledged before are safe; this one was not written.",
        "Run the write again.",
    ),
    "BK_LEDGER_EXISTS": Explanation(
        "A ledger of the wanted id exists already.",
        "It was not touched.",
        "Choose another id, or none to have one allocated.",
    ),
    "BK_LEDGER_IN_USE": Explanation(
        "The ledger belongs to a log, which alone may delete it.",
        "Nothing was deleted.",
        "Truncate or delete the log instead.",
    ),
    "BK_LEDGER_RECOVERY": Explanation(
        "A ledger could not be recovered, because answers that decide it are missing.",
        "Nothing is lost: the ledger stays in recovery until they are there.",
        "Bring its bookies back, and run it again.",
    ),
    "BK_METADATA_UNAVAILABLE": Explanation(
        "ZooKeeper did not answer.",
        "Committed data is safe; a commit under way either happened as a whole or not at all.",
        "Check metadataServiceUri and that ZooKeeper runs, then run it again. If the message says that its data are older than "
        "what this process has seen, somebody restored it from a backup, or it runs on an old copy: where that was meant, start "
        "the process (Spark's driver) again, else give ZooKeeper its data.",
    ),
    "BK_METADATA_ACCESS": Explanation(
        "ZooKeeper answers, but refuses this user: the ACL of a node does not let it do this, its password is not the one that "
        "the nodes were made with, or ZooKeeper authenticates nobody so.",
        "The request was not carried out. Of one that was sent before, and whose answer was lost, nothing is known.",
        "See that every process has the right file in zookeeper_auth_path (Spark: bookkeeper.client.zookeeperAuthPath, or "
        "BOOKKEEPER_ZOOKEEPER_AUTH_PATH on the driver), and that zookeeper_acl of those who make nodes names this user; "
        "`bookkeeper metadata acl check` names nodes that have another ACL.",
    ),
    "BK_CREDENTIALS_FILE": Explanation(
        "A file that says as whom this process authenticates is missing here, cannot be read, or holds no user:password.",
        "Nothing was connected, claimed or written.",
        "Give this machine the file that the message names; its first line is user:password. Every executor needs it at the same path.",
    ),
    "BK_METADATA_CONFLICT": Explanation(
        "Somebody else changed the metadata first.",
        "Nothing was changed by this attempt.",
        "Run it again.",
    ),
    "BK_METADATA_CORRUPT": Explanation(
        "A value in ZooKeeper cannot be understood: it is damaged, or of a later version.",
        "It was left as it is.",
        "See what wrote it, at the path the message names; restore it, or upgrade.",
    ),
    "BK_NOT_INITIALIZED": _in_message(
        "There is no BookKeeper cluster at this path of ZooKeeper.",
        _NOTHING_DONE,
        "Check the path in metadataServiceUri, or run `bookkeeper cluster init`.",
    ),
    "BK_CLUSTER_EXISTS": Explanation(
        "There is a cluster at this path of ZooKeeper already.",
        "Nothing was changed.",
        "Use it, or choose another path.",
    ),
    "BK_NO_SUCH_COOKIE": Explanation(
        "No bookie of this id ever started in this cluster.",
        "Nothing was changed.",
        "Look for the id in `bookkeeper cookies list`.",
    ),
    "BK_BOOKIE_IN_USE": _in_message(
        "Ledgers name a bookie that is to be forgotten.",
        "Nothing was changed.",
        "Start it again with its disks; if they are lost for good, use --force.",
    ),
    "BK_BOOKIE_RUNNING": Explanation(
        "A bookie that is to be forgotten is still registered.",
        "Nothing was changed.",
        "Stop it, wait until its session has expired, and try again.",
    ),
    "BK_CLIENT_CLOSED": Explanation(
        "A client or handle was used after its owner closed it.",
        "Nothing was done by this call.",
        "Open a new one.",
    ),
    "BK_UNEXPECTED": Explanation(
        "Something that has no name of its own.",
        "No row of a write becomes visible unless its commit succeeded.",
        "Look at the cause below the message.",
    ),
}

SPARKS_OWN: Mapping[str, Explanation] = {
    "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: bookkeeper": Explanation(
        "The Python that Spark starts is not the one with spark-bookkeeper: Spark takes PYSPARK_PYTHON, "
        "else the `python3` of the PATH. A job that is run as `/path/venv/bin/python job.py` without "
        "activating the environment, by cron or an IDE, gets the system's.",
        _NOTHING_DONE,
        'Activate the environment, or set `os.environ["PYSPARK_PYTHON"] = sys.executable` before the '
        "session is made; on a cluster, set PYSPARK_PYTHON to an interpreter that every host has.",
    ),
    "Python worker failed to connect back": Explanation(
        "Spark started a Python worker and did not hear from it in time: its Python cannot import "
        "pyspark or pyarrow, or the machine is too slow or too busy to start it.",
        "No row of a write becomes visible unless its commit succeeded.",
        "Set PYSPARK_PYTHON to the interpreter that has spark-bookkeeper installed; when it is that "
        "already, run it again with less load, or fewer cores in `local[n]`.",
    ),
    '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] ... "ErrorIfExists"': Explanation(
        "Spark's default save mode, which a Python source cannot serve.",
        _NOTHING_DONE,
        'Write `.mode("append")` or `.mode("overwrite")`.',
    ),
}
"""Messages that are Spark's and not ours, by the words to look for: for the document alone."""


def advice(name: str) -> str:
    """What to add to an error's message for its reader; empty where the message says it itself."""
    found = EXPLANATIONS.get(name)
    return "" if found is None or found.is_in_message else f"{found.safety} {found.action}"
