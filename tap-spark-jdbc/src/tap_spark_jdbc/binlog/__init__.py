"""Changes from the binlog of MySQL and MariaDB.

It may import `wal` and the layers below. Start with `binlog_run`.
"""
