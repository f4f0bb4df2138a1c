"""The index of a ledger directory: where entries lie, and what must outlive the journal."""
