"""Singer lines as bytes (specification 0.3, with the SDK's BATCH and ACTIVATE_VERSION).

The tap's lines always have the same framing, so that a reader can recognise a stream's RECORD lines
by their prefix. The metadata columns are those of singer-sdk, which either side may write
(record_metadata in its documentation).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from singer_spark.core.exact_json import to_json_bytes

JSON = dict[str, Any]

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

# A stream with this annotation holds only the keys that another stream's source has now.
KEYS_OF = "x-keys-of"
# Beside a STATE's value: the streams that failed in this run.
SKIPPED = "skipped"
# Beside the first STATE's value: the streams that no setting names, which may be left out if they
# never arrived. With `on_stream_error: skip`, it says that any stream may be left out.
STRANGERS = "strangers"
ON_STREAM_ERROR, SKIP = "on_stream_error", "skip"
# Beside a STATE's value: the streams that are sent from their start. What a dead run had sent of
# them is void.
RESTARTED = "restarted"
# Beside the first STATE's value: that the run sends only a part of the tap's streams, so that the
# bookmarks of all others stay. Also what becomes of append-only tables whose streams are sent whole
# this time, but are otherwise read by increments: `{"how": …, "streams": {name: annotations of its
# SCHEMA}}`.
PART = "part"
AGAIN, HOW, STREAMS = "again", "how", "streams"
# Whether the user wants them replaced, wants all rows appended again, still has to decide, or was
# not asked.
REPLACE, APPEND, ASK, UNASKED = "replace", "append", "ask", "unasked"
# Beside the first STATE's value: how many streams the run sends, for the progress shown to users.
STREAM_COUNT = "stream_count"
# The rows that follow were committed late: each is its key's newest, whatever its replication key.
LATE_ROWS = "x-late-rows"
# Rows with this replication key (a number or a text, as in a bookmark) or a greater one may have
# been sent before.
SENT_SINCE = "x-sent-since"
# `source`: only the database can order the bookmark property's values; the last one of a key's rows
# is the newest.
CURSOR_ORDER, SOURCE_ORDER = "x-cursor-order", "source"
# Beside a SCHEMA's JSON Schema: the approximate number of rows to come, for the percentage shown to
# users.
ROW_ESTIMATE = "row_estimate"
STREAM_ANNOTATIONS = (
    "x-replication-method",
    "x-extent",
    "x-load-method",
    KEYS_OF,
    LATE_ROWS,
    SENT_SINCE,
    CURSOR_ORDER,
)


def _line(message: JSON) -> bytes:
    return to_json_bytes(message) + b"\n"


def timestamp_text(moment: datetime) -> str:
    """An aware moment as `2026-11-21T04:00:00.000000Z`."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def keys_stream(stream: str) -> str:
    """Name of the stream that holds the keys of `stream`."""
    return f"{stream}__keys"


def record_prefix(stream: str) -> bytes:
    """The bytes of a RECORD line up to its record."""
    return b'{"type":"RECORD","stream":' + orjson.dumps(stream) + b',"record":'


def record_suffix(time_extracted: datetime) -> bytes:
    """The bytes of a RECORD line after its record, without the newline."""
    return b',"time_extracted":"' + timestamp_text(time_extracted).encode() + b'"}'


def schema_message(
    stream: str,
    schema: JSON,
    key_properties: list[str],
    bookmark_properties: list[str],
    *,
    replication_method: str,
    extent: str,
    load_method: str | None = None,
    keys_of: str | None = None,
    late_rows: bool = False,
    sent_since: int | str | None = None,
    source_order: bool = False,
    row_estimate: int | None = None,
) -> bytes:
    """A SCHEMA line.

    Whatever the Singer specification has no place for is an annotation in the JSON Schema.

    Args:
        stream: The stream's name.
        schema: JSON Schema of the record.
        key_properties: Names of the primary key's properties.
        bookmark_properties: The name of the replication key's property in a list, or an empty list.
        replication_method: `FULL_TABLE`, `INCREMENTAL` or `LOG_BASED`.
        extent: `full` or `delta`: what this run sends of the stream.
        load_method: The load method that the user wants, if any.
        keys_of: The stream whose present keys this one holds; None for a stream of records.
        late_rows: Whether the rows that follow were committed late.
        sent_since: The replication key from which rows may have been sent before; None: no row was.
        source_order: Whether only the database knows the order of the replication key's values.
        row_estimate: Approximate number of rows to come, if the database has an estimate.
    """
    annotations = {
        "x-replication-method": replication_method,
        "x-extent": extent,
        "x-load-method": load_method or None,
        KEYS_OF: keys_of or None,
        LATE_ROWS: late_rows or None,
        SENT_SINCE: sent_since,
        CURSOR_ORDER: SOURCE_ORDER if source_order else None,
    }
    message = {
        "type": "SCHEMA",
        "stream": stream,
        "schema": {**schema, **_given(annotations)},
        "key_properties": key_properties,
        "bookmark_properties": bookmark_properties,
    }
    # Beside the JSON Schema, not in it: a table's schema does not change because it has more rows.
    return _line(message if row_estimate is None else {**message, ROW_ESTIMATE: row_estimate})


def state_message(
    value: JSON,
    *,
    final: bool | None = None,
    start: str | None = None,
    resume: JSON | None = None,
    skipped: Sequence[str] = (),
    restarted: Sequence[str] = (),
    strangers: Sequence[str] = (),
    skips_all: bool = False,
    again: JSON | None = None,
    is_part: bool = False,
    stream_count: int | None = None,
) -> bytes:
    """A STATE line. Everything but the value is put beside it, where other targets do not look.

    Args:
        value: The Singer STATE value.
        final: False in a run's first message, true in its last.
        start: What the run starts from, in its first message.
        resume: What the tap needs beyond the value to continue from here; the target keeps it for
            the tap.
        skipped: Streams that failed: what the run sent of them is void.
        strangers: Streams that no setting names and that have no bookmark, in the first message.
        skips_all: Whether any stream that fails is left out, in the first message.
        again: What happens to append-only tables (`AGAIN`), in the first message.
        is_part: Whether only a part of the tap's streams is sent, in the first message.
        stream_count: How many streams are sent, in the first message.
        restarted: Streams whose rows all follow, although a dead run that is continued has sent
            some already.
    """
    beside: JSON = {
        "final": final,
        "start": start,
        "resume": resume,
        SKIPPED: list(skipped) or None,
        STRANGERS: list(strangers) or None,
        ON_STREAM_ERROR: SKIP if skips_all else None,
        AGAIN: again,
        PART: is_part or None,
        STREAM_COUNT: stream_count,
        RESTARTED: list(restarted) or None,
    }
    return _line({"type": "STATE", "value": value, **_given(beside)})


def _given(members: JSON) -> JSON:
    return {name: each for name, each in members.items() if each is not None}


def activate_version_message(stream: str, version: int) -> bytes:
    """An ACTIVATE_VERSION line: rows of lower versions, or of none, no longer exist."""
    return _line({"type": "ACTIVATE_VERSION", "stream": stream, "version": version})


def bare_state(value: JSON) -> bytes:
    """A state as a target prints it: only the value, in one line."""
    return _line(value)


def batch_message(
    stream: str,
    encoding: JSON,
    manifest: Sequence[str],
    *,
    files: Sequence[JSON],
    time_extracted: datetime,
    record_metadata: bool,
) -> bytes:
    """A BATCH line (singer-sdk, `docs/batch.md`), with details that save our target from looking
    into the files.

    `files` is the content of each, in the manifest's order: `{"rows": …, "bytes": …}`. With
    `record_metadata` they hold the metadata columns of `record_metadata`.
    """
    message: JSON = {
        "type": "BATCH",
        "stream": stream,
        "encoding": encoding,
        "manifest": list(manifest),
        "files": list(files),
        "time_extracted": timestamp_text(time_extracted),
    }
    return _line({**message, "record_metadata": True} if record_metadata else message)
