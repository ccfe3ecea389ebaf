"""Piping rows through a shell command by Spark's JVM; DataFrames have no method for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

BUFFER_BYTES = 1 << 18


def pipe_texts(rows: DataFrame, path: Path) -> None:
    """Write each text of a single column, in one partition, as a line to a named pipe on the task's machine."""
    jvm: Any = rows.sparkSession.sparkContext._jvm
    texts = getattr(rows._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING()).toJavaRDD()
    command = jvm.java.util.ArrayList()
    for word in ("sh", "-c", 'exec cat > "$0"', str(path)):
        command.add(word)
    texts.pipe(command, jvm.java.util.HashMap(), False, BUFFER_BYTES, "UTF-8").count()
