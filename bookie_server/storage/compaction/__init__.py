"""Compaction: what lives of sparse or many small entry logs is copied into one, and they are deleted."""
