"""The moment at which streams are read: one snapshot for all connections, and rows that were committed late.

PostgreSQL alone can do all of this. It may import `extraction` and what lies below. Start with `stream_snapshot`.
"""
