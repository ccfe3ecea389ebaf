"""The codes of the tap's own errors."""

from __future__ import annotations

from singer_spark.error_codes import ErrorCode


class TapCode(ErrorCode):
    """Errors of the tap."""

    CONNECTION_FAILED = (
        "TAP-001",
        "The database can't be reached, or refuses the login.",
        "Check `jdbc_url`, `user`, `password`, and that the server accepts connections from here.",
    )
    CONNECTION_LOST = (
        "TAP-002",
        "The connection to the database broke, and repeated attempts failed.",
        "[Connections that break](#connections-that-break).",
    )
    STATEMENT_REFUSED = (
        "TAP-003",
        "The database refused a statement.",
        "The message is the database's, with a hint where one is known.",
    )
    READING_FAILED = (
        "TAP-004",
        "The rows of a stream could not be read.",
        "The message is the database's, with a hint where one is known.",
    )
    DRIVER_UNKNOWN = (
        "TAP-005",
        "The database of `jdbc_url` is unknown, or its driver can't be loaded.",
        "Check `jdbc_url`, `driver`, `driver_package` and `driver_jars`.",
    )
    GRANT_MISSING = (
        "TAP-008",
        "The database's user lacks a grant.",
        "Run `GRANT SELECT`, or the grant that the message names; or deselect the stream.",
    )
    TIMED_OUT = (
        "TAP-009",
        "The server ended a statement that took too long.",
        "Allow more time (PostgreSQL: `?options=-c%20statement_timeout=0` in `jdbc_url`), or set "
        "smaller slices by `slice_rows`.",
    )
    URL_WITHOUT_SERVER = (
        "TAP-006",
        "`jdbc_url` does not name its server in a form that the tap can read.",
        "Write the server as `//host:port`, once for each server.",
    )
    IAM_TOKEN = (
        "TAP-007",
        "No login token for the database could be made by `auth: aws-iam`.",
        "Check the AWS credentials and the region of this machine.",
    )
    SSH_SETTING = (
        "TAP-010",
        "A key or host key of `ssh_tunnel` can't be read, or no local port can be opened.",
        "Correct the setting that the message names.",
    )
    SSH_HOST_KEY = (
        "TAP-011",
        "The SSH server's host key differs from the known one.",
        "Find out why. If the new key is genuine, set it in `ssh_tunnel.host_key`.",
    )
    SSH_REFUSED = (
        "TAP-012",
        "The SSH server refused the login.",
        "Check `ssh_tunnel.username` and its key or password.",
    )
    SSH_UNREACHABLE = (
        "TAP-013",
        "The SSH server can't be reached.",
        "Check `ssh_tunnel.host` and `port`, and the network.",
    )
    STREAM_UNREADABLE = (
        "TAP-020",
        "A stream can't be read as config and catalog say: a table, column or grant is missing, "
        "or its key does not fit.",
        "Correct the name or the key, grant `SELECT`, or run discovery again.",
    )
    NOTHING_SELECTED = (
        "TAP-021",
        "No stream is selected.",
        "Check `schemas` and `tables`, the catalog's selection, and the user's grants.",
    )
    BAD_QUERY = (
        "TAP-022",
        "A query of `queries` is refused, or its name or columns are ambiguous.",
        "Correct the query, or give it another name.",
    )
    BAD_KEY_EXPRESSION = (
        "TAP-024",
        "An expression as `replication_key` is refused, or has the name of a column.",
        "Correct the expression, or make a stream of it by `queries`.",
    )
    NULL_KEY = (
        "TAP-025",
        "Rows have no value in the replication key, and `null_replication_key` is `error`.",
        "Give them a value, or set `null_replication_key` to `include` or `exclude`.",
    )
    KEY_VALUE_UNUSABLE = (
        "TAP-026",
        "The replication key holds a value that no bookmark can hold.",
        "Leave such rows out by `where` in `stream_options`.",
    )
    SETTLE_UNSUPPORTED = (
        "TAP-027",
        "`settle_seconds` can't be computed on this database.",
        "Leave young rows out by `where` in `stream_options`.",
    )
    CHANGED_WHILE_READ = (
        "TAP-028",
        "Another session changed or locked a table, or the snapshot was lost, while rows were "
        "read.",
        "Run again: the next run continues where this one stopped.",
    )
    READER_UNSUITABLE = (
        "TAP-029",
        "`reader: arrow` can't read this database or stream.",
        "Set `reader` to `jdbc`.",
    )
    NAME_UNUSABLE = (
        "TAP-030",
        "A name or value can't be written in this database's SQL.",
        "Correct the setting that has it.",
    )
    MAPPED_IN_PYTHON = (
        "TAP-031",
        "`stream_maps` or flattening is set where records do not pass through Python.",
        "Put it into the target's config, or use `rename`, `exclude_columns` or `mask`.",
    )
    BATCH_LOCATION = (
        "TAP-032",
        "There is no folder for batch files, or they can't be written there.",
        "Check `batch_config.storage` and `storage_options`, or start with `--state-from`.",
    )
    SLICES_REPEAT = (
        "TAP-033",
        "The database sorts the replication key in another order than it compares it.",
        "Report it, with the key's type and collation.",
    )
    NO_STREAM_ARRIVED = (
        "TAP-040",
        "No stream could be read.",
        "Each stream's own code is in the message.",
    )
    STREAMS_SKIPPED = (
        "TAP-041",
        "Some streams did not arrive; the others did.",
        "Each stream's own code is in the message: [One bad table among many]"
        "(#one-bad-table-among-many).",
    )
    CONNECT_LIMIT = (
        "TAP-042",
        "Spark Connect does not allow what this database or setting needs.",
        "Use `spark.master` in place of `spark.remote`.",
    )
    LOG_UNSUPPORTED = (
        "TAP-050",
        "This server's log can't be read, because of the server's kind, version or settings, or "
        "because it is a standby.",
        "Set up the server as the message says: [Log-based](log-based.md).",
    )
    LOG_TABLE_UNSUITABLE = (
        "TAP-051",
        "The changes of a table are not in the log, or not all of them.",
        "Set another `replication_method` for the stream, or change the table as the message says.",
    )
    LOG_KEY_UNSUITABLE = (
        "TAP-052",
        "The log does not say which row was changed: the table has no key, or not this one.",
        "Set `REPLICA IDENTITY` or `key_properties` as the message says.",
    )
    LOG_POSITION_LOST = (
        "TAP-053",
        "The log no longer reaches back to a stream's bookmark: changes are gone.",
        "Run the stream with `--full`.",
    )
    LOG_SLOT_LOST = (
        "TAP-054",
        "The server has dropped log that the slot needs.",
        "Run `spark-lake log drop`, then the tap with `--full`; raise `max_slot_wal_keep_size`.",
    )
    LOG_SLOT_BUSY = (
        "TAP-055",
        "The slot is in use, or another process is still creating it.",
        "Wait for that process, end open transactions, or set another `log_slot`.",
    )
    LOG_SLOT_FOREIGN = (
        "TAP-056",
        "The slot belongs to another plug-in or database.",
        "Name another `log_slot`.",
    )
    LOG_SLOT_REFUSED = (
        "TAP-057",
        "The server refused to create, read or drop the slot.",
        "The message is the server's: [Log-based](log-based.md) has the grants.",
    )
    LOG_PUBLICATION = (
        "TAP-058",
        "The publication is missing, can't be changed, or does not publish what is needed.",
        "Run the statement that the message shows.",
    )
    LOG_WAITS = (
        "TAP-059",
        "Transactions have been open for too long for the first reading to begin.",
        "End them, or run again later.",
    )
    LOG_GRANT_MISSING = (
        "TAP-060",
        "The user may not read the log, or lacks `LOCK TABLES` for the first reading.",
        "Run the `GRANT` that the message shows.",
    )
    LOG_BROKEN = (
        "TAP-061",
        "The connection to the log broke, or the server ended it.",
        "Run again. The message is the server's.",
    )
    LOG_VALUE = (
        "TAP-062",
        "The log holds a value that does not fit its column, or more than 2 GB in one batch.",
        "Set the column's `type_overrides`, or leave the column out.",
    )
    LOG_ROWS_MALFORMED = (
        "TAP-063",
        "Rows in the log don't match the log's own description of their table.",
        "Run again. If the error persists, run the stream with `--full` and report it.",
    )
    LOG_TABLE_CHANGED = (
        "TAP-064",
        "A table gained columns, or was dropped, while the run was starting.",
        "Run again.",
    )
    EXECUTORS_UNSUITABLE = (
        "TAP-065",
        "The executors lack Python in the tap's version, or a package that it needs there.",
        "Install it there and name it in `spark.pyspark.python`, or name no cluster in `spark`.",
    )
