"""Who owns a table of the lake, and which columns it has: one small object beside the data.

`<bucket>/.dataspoc/tables/<table folder>.json` is claimed by create-if-absent, so two pipelines can't both own a
table; its columns change with the commit that changes the table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.run_log import LAKE_FOLDER, decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.storage import Storage
    from target_spark_lake.layout import Layout


@dataclass(frozen=True)
class TableRecord:
    """A table as the last committed run left it.

    Attributes:
        pipeline: The one pipeline that may write the table.
        stream: The stream that fills it.
        columns: Column name to Spark's own name of its type (`DataType.simpleString()`), in order.
        load_method: The method that wrote it last.
        claimed_by: Run that claimed the table; the claim falls with that run if it never committed.
    """

    pipeline: str
    stream: str
    columns: Mapping[str, str] = field(default_factory=dict)
    load_method: str | None = None
    claimed_by: str | None = None

    def to_body(self) -> dict[str, Any]:
        """The record as a JSON object; columns as pairs, for their order counts."""
        return {**asdict(self), "columns": [[name, kind] for name, kind in self.columns.items()]}

    @staticmethod
    def from_body(body: Mapping[str, Any], path: str) -> TableRecord:
        """Reads `to_body` back.

        Raises:
            StorageError: it is damaged.
        """
        try:
            return TableRecord(
                pipeline=body["pipeline"],
                stream=body["stream"],
                columns=dict(body["columns"]),
                load_method=body["load_method"],
                claimed_by=body["claimed_by"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path} is damaged ({error}); restore it from a backup") from error


def read_record(storage: Storage, path: str) -> TableRecord | None:
    """The record at a path (`Layout.table_record`), None for a table that no run has claimed."""
    data = storage.read(path)
    return None if data is None else TableRecord.from_body(decode(data, path), path)


def write_record(storage: Storage, path: str, record: TableRecord, seen: bytes | None) -> bool:
    """Replaces the record that was seen; False when someone else wrote meanwhile.

    Only the table's owner may, and only as part of a commit.
    """
    return storage.exchange(path, seen, encode(record.to_body()))


def check_owner(record: TableRecord, pipeline: str, stream: str, table: str) -> None:
    """Refuses a table of another pipeline or another stream.

    Raises:
        ConfigurationError: names the owner and the ways out.
    """
    if (record.pipeline, record.stream) == (pipeline, stream):
        return
    raise ConfigurationError(
        f"stream {stream}: table {table} belongs to pipeline {record.pipeline}, stream {record.stream}, not to "
        f"pipeline {pipeline}; give this stream another `path`, or run it under that pipeline"
    )


def claim(storage: Storage, layout: Layout, table: str, record: TableRecord, run_id: str) -> TableRecord:
    """Claims a table that nobody owns, or finds it owned by the same pipeline and stream.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        table: Folder of the table.
        record: What the run wants the record to say.
        run_id: The run that claims.

    Returns:
        The record to publish with the commit: it keeps the first claim's run.

    Raises:
        ConfigurationError: another pipeline or stream owns the table.
    """
    path = layout.table_record(table)
    standing = read_record(storage, path)
    if standing is None:
        claimed = TableRecord(record.pipeline, record.stream, claimed_by=run_id)
        if storage.create(path, encode(claimed.to_body())):
            return replace(record, claimed_by=run_id)
        standing = read_record(storage, path)
    if standing is None:
        raise StorageError(f"{path} was removed while this run claimed it; run again")
    check_owner(standing, record.pipeline, record.stream, table)
    return replace(record, claimed_by=standing.claimed_by)


def release_claims(storage: Storage, run_id: str) -> None:
    """Gives back the tables that a run claimed and never wrote; only once the run is decided as aborted."""
    for file in storage.list(f"{LAKE_FOLDER}/tables"):
        record = read_record(storage, file.path)
        if record is not None and record.claimed_by == run_id:
            storage.delete(file.path)
