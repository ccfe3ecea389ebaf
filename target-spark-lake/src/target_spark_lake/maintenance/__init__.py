"""Improves files and tables without changing their rows: compaction, vacuum, and conversion to
Delta or Iceberg.

It may import `staging` and the rooms below. Start with `compaction`.
"""
