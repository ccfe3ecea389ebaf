"""What the run does with each stream: catalog, settings and tables laid over each other, down to its SQL.

No row is read here. It may import `source` and what lies below. Start with `stream_plan`, then `stream_sql`.
"""
