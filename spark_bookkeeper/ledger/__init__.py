"""The quorum protocol: writing, reading, fencing and recovering one ledger over many bookies."""
