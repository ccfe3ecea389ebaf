"""Rendered lines into a file on this machine: by the executors if they share its disk, else through this process."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from singer_spark.spark.cluster import is_remote, shares_disk
from singer_spark.spark.connect_answer import answer
from tap_spark_jdbc.reading.jvm_pipe import pipe_texts
from tap_spark_jdbc.reading.text_buffer import joined_text

logger = logging.getLogger("tap-spark-jdbc")

LINE = "value"
# A slice too large for one answer comes in as many pieces as its size requires, up to this number.
PIECES = 1024
# Of a piece as executors keep it, compressed; its lines must fit into one answer.
PIECE_BYTES = "8MB"
_TOO_LARGE = re.compile(r"spark\.driver\.maxResultSize|ExecutorLostFailure")


def write_lines(rows: DataFrame, folder: Path) -> Path:
    """Write the lines of a slice, one column in one partition, to a file in a new folder; it may be empty."""
    if shares_disk(rows.sparkSession):
        rows.write.text(folder.as_uri())
        # Spark may write no file if there are no rows.
        found = next(folder.glob("part-*.txt"), folder / "empty.txt")
        found.touch()
        return found
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
    """Write lines, one column in one partition, to a named pipe on this machine, as fast as they are read there."""
    if shares_disk(rows.sparkSession):
        pipe_texts(rows, path)
    else:
        _write_in_pieces(_ended(rows), path)


def _ended(rows: DataFrame) -> DataFrame:
    return rows.select(F.concat(LINE, F.lit("\n")).alias(LINE))


def _write_at_once(lines: DataFrame, path: Path) -> None:
    """Write Arrow's buffer, in which the texts of the column follow each other, as the file."""
    table = answer(lines)[0] if is_remote(lines.sparkSession) else lines.toArrow()
    with path.open("wb") as file:
        for chunk in table.column(LINE).chunks:
            file.write(joined_text(chunk))


def _write_in_pieces(lines: DataFrame, path: Path) -> None:
    """Spread the lines over the executors' disks, then fetch one piece after the other."""
    lines.sparkSession.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", PIECE_BYTES)
    with path.open("wb") as file:
        for row in lines.hint("rebalance", PIECES).toLocalIterator():
            file.write(row[0].encode())
