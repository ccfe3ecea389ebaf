"""Changes from the binlog of MySQL and MariaDB.

It may import `wal` and the rooms below. Start with `binlog_run`.
"""
