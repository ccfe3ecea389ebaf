"""Rendered lines into a file of this machine: by the executors where they share its disk, else through this process."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from singer_spark.spark.cluster import is_remote, shares_disk
from singer_spark.spark.connect_answer import answer
from tap_spark_jdbc.reading.jvm_pipe import pipe_texts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger("tap-spark-jdbc")

LINE = "value"
# What is too much for one answer comes in as many pieces as its size asks for, up to this number.
PIECES = 1024
# Of a piece as executors keep it, which is compressed; its lines must fit into one answer.
PIECE_BYTES = "8MB"
_TOO_LARGE = re.compile(r"spark\.driver\.maxResultSize|ExecutorLostFailure")


def write_lines(rows: DataFrame, folder: Path) -> Path:
    """Writes the lines of one slice.

    Args:
        rows: Their one column, `LINE`, in one part.
        folder: Where the file goes; it must not be there yet.

    Returns:
        The file; it may be empty.
    """
    if shares_disk(rows.sparkSession):
        rows.write.text(folder.as_uri())
        return _file_of(folder)
    folder.mkdir()
    path = folder / "lines.txt"
    ended = _ended(rows)
    try:
        _write_at_once(ended, path)
    except Exception as error:
        if not _TOO_LARGE.search(str(error)):
            raise
        logger.info(
            "a slice is too large to be fetched at once and comes in pieces; a lower slice_rows makes slices smaller"
        )
        _write_in_pieces(ended, path)
    return path


def pipe_lines(rows: DataFrame, path: Path) -> None:
    """Writes lines to a named pipe of this machine, as fast as they are read there.

    Args:
        rows: Their one column, `LINE`, in one part.
        path: The pipe; where nobody reads it any more, the job fails.
    """
    if shares_disk(rows.sparkSession):
        pipe_texts(rows, path)
    else:
        _write_in_pieces(_ended(rows), path)


def _ended(rows: DataFrame) -> DataFrame:
    return rows.select(F.concat(LINE, F.lit("\n")).alias(LINE))


def _file_of(folder: Path) -> Path:
    """The one file of a slice; Spark may write none where there are no rows."""
    found = next(folder.glob("part-*.txt"), folder / "empty.txt")
    found.touch()
    return found


def _write_at_once(lines: DataFrame, path: Path) -> None:
    """The texts of a column lie behind each other in Arrow's buffer, so that it is the file."""
    table = answer(lines)[0] if is_remote(lines.sparkSession) else lines.toArrow()
    with path.open("wb", buffering=0) as file:
        for chunk in table.column(LINE).chunks:
            text = _text_of(chunk)
            while text:
                text = text[file.write(text) :]


def _text_of(chunk: pa.Array) -> memoryview:
    if not len(chunk):
        return memoryview(b"")
    _, offsets, data = chunk.buffers()
    wide = str(chunk.type).startswith("large_")
    ends = memoryview(offsets).cast("q" if wide else "i")
    first, last = ends[chunk.offset], ends[chunk.offset + len(chunk)]
    return memoryview(data)[first:last] if last > first else memoryview(b"")


def _write_in_pieces(lines: DataFrame, path: Path) -> None:
    """Read and dealt out on the executors' disks, from which one piece after the other is brought."""
    lines.sparkSession.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", PIECE_BYTES)
    with path.open("wb") as file:
        for row in lines.hint("rebalance", PIECES).toLocalIterator():
            file.write(row[0].encode())
