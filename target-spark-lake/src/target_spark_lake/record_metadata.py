"""The metadata columns of singer-sdk, with its meaning (record_metadata in its documentation)."""

from __future__ import annotations

DELETED_AT = "_sdc_deleted_at"
# Column name to Spark type, in the table's order; of these only DELETED_AT may come with a record.
METADATA_COLUMNS = {
    "_sdc_extracted_at": "timestamp",
    "_sdc_received_at": "timestamp",
    "_sdc_batched_at": "timestamp",
    DELETED_AT: "timestamp",
    "_sdc_sequence": "bigint",
    "_sdc_table_version": "bigint",
    "_sdc_sync_started_at": "bigint",
}
