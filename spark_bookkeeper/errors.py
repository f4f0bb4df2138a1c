"""Every error a caller can meet; all of them are :class:`BookKeeperError`."""

from bookkeeper_metadata.errors import ClusterNotInitializedError as ClusterNotInitializedError
from bookkeeper_metadata.errors import LedgerExistsError as LedgerExistsError
from bookkeeper_metadata.errors import MetadataConflictError as MetadataConflictError
from bookkeeper_metadata.errors import MetadataCorruptError as MetadataCorruptError
from bookkeeper_metadata.errors import MetadataUnavailableError as MetadataUnavailableError
from bookkeeper_metadata.errors import NoSuchLedgerError as NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError as BookKeeperError
from bookkeeper_metadata.foundation.errors import ClientClosedError as ClientClosedError
from spark_bookkeeper.ledger.errors import AddQuorumTimeoutError as AddQuorumTimeoutError
from spark_bookkeeper.ledger.errors import DigestMismatchError as DigestMismatchError
from spark_bookkeeper.ledger.errors import EntryTooLargeError as EntryTooLargeError
from spark_bookkeeper.ledger.errors import EntryUnreadableError as EntryUnreadableError
from spark_bookkeeper.ledger.errors import LedgerClosedError as LedgerClosedError
from spark_bookkeeper.ledger.errors import LedgerFencedError as LedgerFencedError
from spark_bookkeeper.ledger.errors import LedgerInUseError as LedgerInUseError
from spark_bookkeeper.ledger.errors import LedgerRecoveryError as LedgerRecoveryError
from spark_bookkeeper.ledger.errors import NoSuchEntryError as NoSuchEntryError
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError as NotEnoughBookiesError
from spark_bookkeeper.ledger.errors import UnauthorizedError as UnauthorizedError
from spark_bookkeeper.log.errors import DataLossError as DataLossError
from spark_bookkeeper.log.errors import LogExistsError as LogExistsError
from spark_bookkeeper.log.errors import LogFencedError as LogFencedError
from spark_bookkeeper.log.errors import LogHasWriterError as LogHasWriterError
from spark_bookkeeper.log.errors import LogPayloadError as LogPayloadError
from spark_bookkeeper.log.errors import LogRecreatedError as LogRecreatedError
from spark_bookkeeper.log.errors import NoSuchLogError as NoSuchLogError
