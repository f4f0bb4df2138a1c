"""What travels and what is stored: one record format everywhere (docs/architecture.md)."""
