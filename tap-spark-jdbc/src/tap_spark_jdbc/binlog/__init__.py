"""Changes from the binlog of MySQL and MariaDB.

It may import `columnar`. Start with `binlog_run`.
"""
