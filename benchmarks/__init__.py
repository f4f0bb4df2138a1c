"""Workloads P1, P2, P4, P5 and P6 of docs/performance.md, each beside its baseline of the same run.

Absolute figures drift from machine to machine and from hour to hour; only the ratios count.
"""
