"""The rows of a stream as `verify` sees them: read as a run reads them, and converted to what is
compared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from singer_spark.core.scratch import scratch_folder
from tap_spark_jdbc.extract.fingerprints import Frame
from tap_spark_jdbc.extract.slice_size import SliceSize
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.send.stream_reading import StreamReading
from tap_spark_jdbc.supply.columnar_query import read, writing
from tap_spark_jdbc.verify.sent_rows import SentRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.supply.slice_prefetch import ReadContext

# What becomes of a batch of rows, given which of them are firm.
Made = Callable[[pa.RecordBatch, pa.Array], pa.RecordBatch]


class ComparedReading(StreamReading[Path]):
    """All rows of a stream, by slices of its primary key.

    What a function makes of a slice's rows is kept in a file until the slice's turn.
    """

    must_be_columnar = False
    _folder: Path
    _made_of: Made

    def __init__(
        self,
        context: ReadContext,
        state: RunState,
        settings: TapSettings,
        extraction: Extraction,
        slices: Sequence[Slice[Point]],
        sent: SentRows,
    ) -> None:
        """Nothing is read yet; the extraction is one of `sent_rows.ComparedSql`."""
        super().__init__(extraction.plan, context, state, settings)
        self._of_primary_key = slices
        self._sent = sent
        self._numbers = count()
        self._prepare(extraction, Frame(b"", b""))

    def batches(self, made: Made) -> Iterator[pa.RecordBatch]:
        """What a function makes of the rows, in the order of their slices."""
        self._made_of = made
        self._folder = Path(tempfile.mkdtemp(prefix="compared-", dir=scratch_folder()))
        try:
            for path in self._begun.results():
                if path.stat().st_size:
                    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                        yield from stream
                path.unlink()
        finally:
            self.cancel()
            shutil.rmtree(self._folder, ignore_errors=True)

    def sent_by_buckets(self) -> SentRows:
        """Which rows at the bookmark were sent, where only sums of them are known."""
        self.account.changed_buckets(*self._bucket_sums())
        look = self.account.look(Slice())
        return SentRows(None, look.changed or frozenset(), older=look.older)

    def _new_size(self) -> SliceSize:
        return SliceSize(*self._fixed_sizes, look=self._first_width)

    def _slices(self) -> Iterator[Slice[Point]]:
        yield from self._of_primary_key

    def _make(self, each: Slice[Point]) -> Path:
        path = self._folder / f"slice-{next(self._numbers):06d}.arrow"
        return self._fetching(lambda rows: self._written(each, path, rows))

    def _written(self, each: Slice[Point], path: Path, fetch_size: int) -> Path:
        columnar = self._columnar
        if columnar is not None and columnar.reads(each):
            with ComparedFile(path, self._sent, self._made_of) as file:
                outcome = read(columnar.query(each), file, self.context.database.columnar)
            if columnar.has_read(outcome, str(path)):
                return path
        with ComparedFile(path, self._sent, self._made_of) as file:
            outcome = self._reader.read(each, file, str(path), fetch_size)
        self.size.learn(outcome.read, outcome.size)
        return path


class ComparedFile:
    """What is made of a slice's rows, in a file that a further attempt overwrites."""

    def __init__(self, path: Path, sent: SentRows, made: Made) -> None:
        self._path = path
        self._sent = sent
        self._made = made
        self._stream: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(OSError):
            self._file.close()

    def add(self, rows: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        made = self._made(rows, self._sent.firm(rows, boundary))
        with writing():
            if self._stream is None:
                self._stream = pa.ipc.new_stream(self._file, made.schema)
            self._stream.write_batch(made)

    def close(self) -> int:
        """As `Sink.close`; without rows the file is empty."""
        with writing():
            if self._stream is not None:
                self._stream.close()
            self._file.close()
        return 0
