"""Iceberg tables follow the journal: a run's snapshot of one is fixed before it is made, and looked up by the run's id.

It may import `tables` and what lies below. Start with `iceberg_tables`, then `table_commit` and `publishing`.
"""
