"""The metadata columns of singer-sdk, which either side may write (record_metadata in its
documentation).
"""

DELETED_AT = "_sdc_deleted_at"
TABLE_VERSION = "_sdc_table_version"
# For a row from a database's log: the position of its commit.
LSN = "_sdc_lsn"
LOG_POSITION = "_sdc_log_position"
# The columns of such a row (a JSON array of names) whose unchanged values are not in the log.
UNCHANGED = "_sdc_unchanged"
# Column name to Spark type, in the table's order; only DELETED_AT may come with a record.
METADATA_COLUMNS = {
    "_sdc_extracted_at": "timestamp",
    "_sdc_received_at": "timestamp",
    "_sdc_batched_at": "timestamp",
    DELETED_AT: "timestamp",
    "_sdc_sequence": "bigint",
    TABLE_VERSION: "bigint",
    "_sdc_sync_started_at": "bigint",
}
