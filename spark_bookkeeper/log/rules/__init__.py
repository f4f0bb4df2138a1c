"""The log's decisions, pure: which changes are legal, whether a commit may happen."""
