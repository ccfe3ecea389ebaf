"""Rows that are brought together by their groups: in files on this machine, a few groups in memory
at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from typing import Self

# The number of first digits of a group's slice, by which files are divided; this many files are
# open at a time.
FILES = 64
# Fewer rows are kept in memory.
IN_MEMORY_BYTES = 64 << 20


class GroupedRows:
    """Tables of rows with a column `slice`: rows of the same group are in the same one.

    Closed at the end of a `with`.

    Functions transform each table, one after the other. Without a first function, rows are not
    brought together.
    """

    def __init__(
        self,
        rows: Iterator[pa.RecordBatch],
        scratch: Path,
        grouped: Callable[[pa.Table], pa.Table] | None,
        then: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    ) -> None:
        """Nothing is read yet."""
        self._rows = rows
        self._folder = scratch / f"groups-{uuid.uuid4().hex}"
        self._grouped = grouped
        self._then = then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        rmtree(self._folder, ignore_errors=True)

    def __iter__(self) -> Iterator[pa.Table]:
        if self._grouped is None:
            for batch in self._rows:
                yield self._then(pa.Table.from_batches([batch]))
            return
        for table in self._together():
            yield self._then(self._grouped(table))

    def _together(self) -> Iterator[pa.Table]:
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in self._rows:
            held.append(batch)
            size += batch.nbytes
            if size > IN_MEMORY_BYTES:
                yield from self._by_files(held)
                return
        if held:
            yield pa.Table.from_batches(held)

    def _by_files(self, first: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        self._folder.mkdir(parents=True)
        paths = [self._folder / f"{number:02d}.arrow" for number in range(FILES)]
        with ExitStack() as opened:
            files = [opened.enter_context(pa.OSFile(str(path), "wb")) for path in paths]
            writers = [
                opened.enter_context(pa.ipc.new_stream(file, first[0].schema)) for file in files
            ]
            while first:
                _write(first.pop(), writers)
            for batch in self._rows:
                _write(batch, writers)
        for path in paths:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                yield stream.read_all()
            path.unlink()


def _write(batch: pa.RecordBatch, writers: list[pa.RecordBatchStreamWriter]) -> None:
    slots = pc.bit_wise_and(batch.column("slice"), pa.scalar(FILES - 1, pa.int16()))
    for number in slots.unique().to_pylist():
        writers[number].write_batch(batch.filter(pc.equal(slots, number)))
