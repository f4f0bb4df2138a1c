"""Where a log's nodes lie, and typed reads of them."""
