"""The log of an Iceberg table, which follows the journal: a snapshot is fixed in the plan and
looked up by its run.

It may import `table` and the layers below. Start with `iceberg_tables`, then `table_commit` and
`publishing`.
"""
