"""Rows through a shell command of Spark's JVM, which DataFrames have no method for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

BUFFER_BYTES = 1 << 18


def pipe_texts(rows: DataFrame, path: Path) -> None:
    """Writes each text of one column, in one part, as a line to a named pipe, beside its task."""
    jvm: Any = rows.sparkSession.sparkContext._jvm
    texts = getattr(rows._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING()).toJavaRDD()
    command = jvm.java.util.ArrayList()
    for word in ("sh", "-c", 'exec cat > "$0"', str(path)):
        command.add(word)
    texts.pipe(command, jvm.java.util.HashMap(), False, BUFFER_BYTES, "UTF-8").count()
