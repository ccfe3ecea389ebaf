"""Lines that come through this process, as on a cluster, are those that executors would have written."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tap_spark_jdbc.reading import rendered_lines

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_lines_come_whole_at_once_or_in_pieces(spark: SparkSession, tmp_path: Path) -> None:
    text = F.concat(
        F.lit('{"é":"\\\\"'), F.repeat(F.lit("x"), F.col("id").cast("int") % 50), F.col("id").cast("string")
    )
    rows = spark.range(0, 2500, 1, 1).select(text.alias(rendered_lines.LINE))
    written = rendered_lines.write_lines(rows, tmp_path / "slice").read_bytes()
    ended = rows.select(F.concat(rendered_lines.LINE, F.lit("\n")).alias(rendered_lines.LINE))
    at_once, in_pieces, nothing = (tmp_path / name for name in ("at_once", "in_pieces", "nothing"))
    with warnings.catch_warnings():
        # PySpark leaves the socket of what it brings to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        rendered_lines._write_at_once(ended, at_once)
        rendered_lines._write_at_once(ended.where("false"), nothing)
        rendered_lines._write_in_pieces(ended, in_pieces)
        gc.collect()
    assert written.count(b"\n") == 2500
    assert at_once.read_bytes() == written
    assert sorted(in_pieces.read_bytes().splitlines()) == sorted(written.splitlines())
    assert nothing.read_bytes() == b""
