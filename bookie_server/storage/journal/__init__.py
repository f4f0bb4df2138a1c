"""The journal: where an add becomes durable, and how it is read back after a start."""
