"""Changes from the binlog of MySQL and MariaDB.

It may import `log` and all below it. Start with `binlog_run`.
"""
