"""An archive of the classes that Spark loads at each start, so that the JVM maps them instead of reading them anew.

Class-data sharing of the JDK (JEP 350): built once by `python -m singer_spark.class_archive`, which `make setup` calls;
another Java or another PySpark has another archive. A start without one is slower and otherwise the same.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from singer_spark.errors import ConfigurationError
from singer_spark.java import cache_folder, find_java_home

BUILDING = "SPARK_LAKE_CLASS_ARCHIVE"
BUILD_SECONDS = 300
FORMAT = "1"


def java_options(java_home: Path) -> list[str]:
    """The JVM's options for this Java: use the archive that is there, or write the one that is being built."""
    building = os.environ.get(BUILDING)
    if building:
        return [f"-XX:ArchiveClassesAtExit={building}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    archive = archive_path(java_home)
    if not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def archive_path(java_home: Path) -> Path:
    """Where the archive of this Java and this PySpark is kept, whether it is there or not."""
    java = (java_home / "bin" / "java").resolve()
    facts = [FORMAT, str(java), str(java.stat().st_mtime_ns), version("pyspark"), str(Path(sys.prefix).resolve())]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return cache_folder() / "classes" / f"{digest}.jsa"


def build() -> Path:
    """Builds the archive from a session that does what the programs do; keeps the one that is there.

    Raises:
        ConfigurationError: the session failed, or this Java wrote no archive.
    """
    archive = archive_path(find_java_home())
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".draft-") as draft:
        written = Path(draft) / archive.name
        done = subprocess.run(
            [sys.executable, "-m", "singer_spark.class_archive", "rehearse", draft],
            env={**os.environ, BUILDING: str(written)},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if done.returncode or not written.exists():
            raise ConfigurationError(f"the class archive was not written: {done.stderr.strip()[-500:]}")
        written.replace(archive)
    return archive


def rehearse(folder: Path) -> None:
    """Does once what the programs do, from a JDBC table to Parquet, so that the classes of all that are loaded."""
    from pyspark.sql import functions as F

    from singer_spark.spark_session import SparkOptions, get_session

    spark = get_session(SparkOptions("class archive"))
    url = f"jdbc:derby:memory:{folder.name};create=true"
    columns = "TABLEID AS A, TABLENAME AS B, CURRENT_TIMESTAMP AS C, CAST(1.5 AS DECIMAL(9,2)) AS D"
    table = f"(SELECT {columns} FROM SYS.SYSTABLES) s"
    rows = spark.read.jdbc(url, table, predicates=["1=1", "1=0"])
    rendered = rows.select(F.concat(F.lit('{"record":'), F.to_json(F.struct("*")), F.lit("}")).alias("value"))
    rendered.write.mode("overwrite").text(str(folder / "text"))
    lines = spark.read.text(str(folder / "text"))
    schema = "record struct<A: string, B: string, C: timestamp, D: decimal(9,2)>, corrupt string"
    parsed = lines.withColumn("m", F.from_json("value", schema, {"columnNameOfCorruptRecord": "corrupt"}))
    kept = parsed.where(F.col("m.corrupt").isNull() & ~F.col("value").rlike("^x")).select("m.record.*")
    kept.select("*", F.current_timestamp().alias("at"), F.sha2("A", 256)).write.parquet(str(folder / "parquet"))
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["rehearse"]:
        rehearse(Path(sys.argv[2]))
    else:
        sys.stderr.write(f"class archive: {build()}\n")
