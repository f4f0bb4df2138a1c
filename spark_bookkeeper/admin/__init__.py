"""The cluster and its logs as documents with stable keys, for commands and machines."""
