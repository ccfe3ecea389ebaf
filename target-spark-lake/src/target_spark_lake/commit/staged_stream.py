"""The staged files of a stream, as stored in a checkpoint for a later run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import columns_from_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import DamagedError
from target_spark_lake.columns.text_columns import NO_TEXTS, TextColumns
from target_spark_lake.table.changes import StagedFile

if TYPE_CHECKING:
    from singer_spark.state.store import Checkpoint


@dataclass(frozen=True)
class StagedStream:
    """The staged part of one stream.

    Attributes:
        files: Its files, in the order of the records.
        columns: All columns of the table with these files, in order: name to Spark's name of its
            type.
        size: Size of the records in the input, in bytes.
        rejected: Files of its quarantined records, in order.
        texts: How its columns of text hold values.
    """

    files: tuple[StagedFile, ...]
    columns: Mapping[str, str]
    size: int
    rejected: tuple[StagedFile, ...] = ()
    texts: TextColumns = NO_TEXTS

    @property
    def rows(self) -> int:
        """Rows in all files, without the rejected records."""
        return sum(file.rows for file in self.files)

    def to_body(self) -> dict[str, Any]:
        """The stream as a JSON object; columns are pairs, since their order counts."""
        return {
            "files": [asdict(file) for file in self.files],
            "columns": [[name, kind] for name, kind in self.columns.items()],
            "size": self.size,
            "rejected": [asdict(file) for file in self.rejected],
            "json_texts": sorted(self.texts.json),
            "mixed_texts": sorted(self.texts.mixed),
        }

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> StagedStream:
        """Read `to_body` back; raises KeyError, TypeError or ValueError for anything else."""
        files = tuple(StagedFile(**file) for file in body["files"])
        rejected = tuple(StagedFile(**file) for file in body["rejected"])
        columns = dict(body["columns"])
        # Version 0.1.0 did not record how its texts are kept.
        texts = TextColumns.stored(
            columns_from_text(columns), body.get("json_texts"), body.get("mixed_texts", ())
        )
        return StagedStream(files, columns, int(body["size"]), rejected, texts)


def staged_streams(checkpoint: Checkpoint) -> dict[str, StagedStream]:
    """The streams of a checkpoint that have staged files."""
    try:
        return {
            name: StagedStream.from_body(body)
            for name, body in checkpoint.target["streams"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(
            RunCode.LAKE_FILE_DAMAGED,
            f"the checkpoint of run {checkpoint.run_id} is damaged ({error})",
        ) from error


def staged_files(checkpoint: Checkpoint) -> dict[str, int]:
    """Path of each file that a checkpoint names, with its size."""
    streams = staged_streams(checkpoint).values()
    return {
        file.path: file.bytes for stream in streams for file in (*stream.files, *stream.rejected)
    }
