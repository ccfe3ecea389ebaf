"""A slice's batch file, Parquet or JSON lines, which grows as rows come: in this process, or in a
Spark task.
"""

from __future__ import annotations

import gzip
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from singer_spark.core.arrow_schema import repeating
from singer_spark.store.storage import Storage
from tap_spark_jdbc.supply.boundary_rows import BoundaryRows
from tap_spark_jdbc.supply.columnar_query import writing
from tap_spark_jdbc.supply.record_lines import Unsent, joined_text, rendered

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.fingerprints import Look
    from tap_spark_jdbc.supply.columnar_query import Sink

# A row group is collected in memory as a whole.
GROUP_BYTES = 12 << 20
FileFound = tuple[str, list[bytes], list[bytes], tuple[list[int], list[int]], int]


@dataclass(frozen=True)
class FilePlan:
    """Everything needed to write the file of a slice.

    Attributes:
        columns: The columns that are read.
        constants: The file's columns after those that are read, with one value each for all rows.
        folder: URL of a folder that no other slice is written to.
        options: fsspec's options for that location.
        format: `parquet` or `jsonl`.
        long: Columns whose values are too long to be repeated in a dictionary or a footer.
    """

    columns: pa.Schema
    constants: Mapping[str, pa.Scalar]
    folder: str
    options: Mapping[str, Any] = field(repr=False)
    format: str
    codec: str
    long: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file."""
        fixed = (pa.field(name, each.type) for name, each in self.constants.items())
        return pa.schema([*self.columns, *fixed])


class ParquetFile:
    """A Parquet file that grows by row groups; it is created with its first row.

    Attributes:
        name: Its name in its folder; no other attempt to write the slice has it.
    """

    def __init__(self, plan: FilePlan, unsent: Unsent) -> None:
        """Nothing is written yet.

        `unsent` selects a batch's rows that belong in the file, as `BoundaryRows` does.
        """
        self._plan = plan
        self._schema = plan.schema
        self._unsent = unsent
        self.name = f"part-{uuid.uuid4().hex}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._stream: Any = None
        self._group: list[pa.RecordBatch] = []
        self._held = self._rows = 0

    def add(self, read: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, boundary)
        self._rows += rows.num_rows
        fixed = [pa.repeat(value, rows.num_rows) for value in self._plan.constants.values()]
        group = pa.RecordBatch.from_arrays([*rows.columns, *fixed], schema=self._schema)
        self._group.append(group)
        self._held += group.nbytes
        if self._held >= GROUP_BYTES:
            self._flush()

    def close(self) -> int:
        """As `Sink.close`."""
        self._flush()
        if self._writer is not None:
            with writing():
                self._writer.close()
                self._stream.close()
        return self._rows

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._group, self._schema)
        self._group, self._held = [], 0
        if rows.num_rows == 0:
            return
        with writing():
            if self._writer is None:
                self._stream = _opened(f"{self._plan.folder}/{self.name}", self._plan.options)
                self._writer = pq.ParquetWriter(
                    self._stream,
                    self._schema,
                    compression=self._plan.codec.upper(),
                    use_dictionary=[
                        name for name in repeating(rows) if name not in self._plan.long
                    ],
                    write_statistics=[
                        name for name in self._schema.names if name not in self._plan.long
                    ],
                    store_schema=False,
                )
            self._writer.write_table(rows, row_group_size=rows.num_rows)


class JsonFile:
    """A file of records, one a line; it is created with its first row.

    Attributes:
        name: As `ParquetFile`'s.
    """

    def __init__(self, plan: FilePlan, unsent: Unsent) -> None:
        """As `ParquetFile`."""
        self._plan = plan
        self._is_gzip = plan.codec == "gzip"
        self._unsent = unsent
        self._opened = ExitStack()
        self._file: Any = None
        self._rows = 0
        self.name = f"part-{uuid.uuid4().hex}.json{'.gz' * self._is_gzip}"

    def add(self, read: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, boundary)
        self._rows += rows.num_rows
        if not rows.num_rows:
            return
        with writing():
            if self._file is None:
                file = self._opened.enter_context(
                    _opened(f"{self._plan.folder}/{self.name}", self._plan.options)
                )
                self._file = (
                    self._opened.enter_context(gzip.open(file, "wb")) if self._is_gzip else file
                )
            self._file.write(joined_text(rendered(rows, "", "\n")))

    def close(self) -> int:
        """As `Sink.close`."""
        with writing():
            self._opened.close()
        return self._rows


@dataclass(frozen=True)
class FileWork:
    """Write the file of a slice, without the rows at the bookmark that were sent before.

    See `jdbc_rows.Work`.

    Attributes:
        sent: The rows that were sent at the bookmark, by their fingerprints in hexadecimal,
            counted.
    """

    plan: FilePlan
    look: Look
    sent: Counter[str]

    def begin(self) -> tuple[Sink, Callable[[], FileFound]]:
        """The file, and what it found: its name, the fingerprints of the rows at the bookmark and
        at the upper bound, and the rest.
        """
        boundary_rows = BoundaryRows(self.look, self.sent)
        kind = JsonFile if self.plan.format == "jsonl" else ParquetFile
        file = kind(self.plan, boundary_rows.unsent)
        return file, lambda: (
            file.name,
            boundary_rows.at_bookmark,
            boundary_rows.at_upper,
            boundary_rows.marks,
            boundary_rows.unread,
        )


def _opened(url: str, options: Mapping[str, Any]) -> IO[bytes]:
    folder, _, name = url.rpartition("/")
    return Storage(folder, options).open_writer(name)
