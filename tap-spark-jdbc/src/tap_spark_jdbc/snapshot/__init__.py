"""Consistent reads: one snapshot for all connections, and rows that were committed late.

Only PostgreSQL supports all of this. It may import `extraction` and what lies below. Start with
`stream_snapshot`.
"""
