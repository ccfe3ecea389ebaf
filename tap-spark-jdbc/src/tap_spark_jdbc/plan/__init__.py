"""The plan of each stream, from catalog, settings and tables, down to its SQL.

No rows are read here. It may import `source` and what is below it. Start with `stream_plan`, then
`stream_sql`.
"""
