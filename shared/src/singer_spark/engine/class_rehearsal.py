"""The JVM that archives classes: `python -m singer_spark.engine.class_rehearsal KIND FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from singer_spark.engine.arrow_rows import Query, RowConversion
from singer_spark.engine.class_archive import SESSION
from singer_spark.engine.session import get_gateway, get_session
from singer_spark.engine.spark_jvm import await_jvm
from singer_spark.engine.spark_settings import SparkOptions, session_conf

OPTIONS = SparkOptions("class archive")
COLUMNS = "TABLEID AS A, TABLENAME AS B, CURRENT_TIMESTAMP AS C, CAST(1.5 AS DECIMAL(9,2)) AS D"


def rehearse(does: str, folder: Path) -> None:
    """Do everything that the programs do once, so that all their classes are loaded."""
    url = f"jdbc:derby:memory:{folder.name};create=true"
    if does == SESSION:
        _in_session(url, folder)
    _convert(url)
    # It writes the archive at its end, and what it says meanwhile must be read.
    await_jvm()


def _in_session(url: str, folder: Path) -> None:
    """From a JDBC table to Parquet."""
    spark = get_session(OPTIONS)
    from pyspark.sql import functions as F

    rows = spark.read.jdbc(
        url, f"(SELECT {COLUMNS} FROM SYS.SYSTABLES) s", predicates=["1=1", "1=0"]
    )
    rendered = rows.select(
        F.concat(F.lit('{"record":'), F.to_json(F.struct("*")), F.lit("}")).alias("value")
    )
    rendered.write.mode("overwrite").text(str(folder / "text"))
    lines = spark.read.text(str(folder / "text"))
    schema = "record struct<A: string, B: string, C: timestamp, D: decimal(9,2)>, corrupt string"
    parsed = lines.withColumn(
        "m", F.from_json("value", schema, {"columnNameOfCorruptRecord": "corrupt"})
    )
    kept = parsed.where(F.col("m.corrupt").isNull() & ~F.col("value").rlike("^x")).select(
        "m.record.*"
    )
    kept.select("*", F.current_timestamp().alias("at"), F.sha2("A", 256)).write.parquet(
        str(folder / "parquet")
    )
    spark.stop()


def _convert(url: str) -> None:
    """Read one row, then enough rows that expressions are compiled, as a run without a session
    does.
    """
    gateway = get_gateway(OPTIONS)
    conf = {
        name: value
        for name, value in session_conf(OPTIONS).items()
        if name.startswith("spark.sql.")
    }
    cast = (
        "CASE WHEN A RLIKE '^[0-9]+$' AND try_cast(A AS INT) IS NOT NULL THEN CAST(A AS INT) "
        "END AS E"
    )
    values = f"A, B, CAST(B AS STRING) AS F, C, D, {cast}"
    conversion = RowConversion(
        gateway, "A STRING, B STRING, C TIMESTAMP, D DECIMAL(9,2)", values, conf
    )
    drivers = gateway.jvm.java.sql.DriverManager
    connection, driver = drivers.getConnection(url), drivers.getDriver(url).getClass().getName()
    many = f"SELECT {COLUMNS} FROM SYS.SYSTABLES, SYS.SYSCOLUMNS"
    for most in (1, 0):
        conversion.send(Query(connection, url, driver, many, 1, limit=most), lambda _: None)
    connection.close()


if __name__ == "__main__":
    rehearse(sys.argv[1], Path(sys.argv[2]))
