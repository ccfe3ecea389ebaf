"""Changes from PostgreSQL's write-ahead log."""
