"""The session from which an archive of classes is made: `python -m singer_spark.spark.class_rehearsal FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from singer_spark.jvm.arrow_rows import Query, RowConversion
from singer_spark.jvm.spark_jvm import await_jvm
from singer_spark.spark.session import get_session
from singer_spark.spark.session_conf import SparkOptions, session_conf


def rehearse(folder: Path) -> None:
    """Do once what the programs do, from a JDBC table to Parquet, so that all their classes are loaded."""
    url, spark = f"jdbc:derby:memory:{folder.name};create=true", get_session(SparkOptions("class archive"))
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
    _convert(spark, url, table)
    spark.stop()
    # It writes the archive at its end, and what it says meanwhile must be read.
    await_jvm()


def _convert(spark: SparkSession, url: str, table: str) -> None:
    """Read the table as a run without a session does."""
    gateway, options = spark.sparkContext._gateway, SparkOptions("class archive")
    conf = {name: value for name, value in session_conf(options).items() if name.startswith("spark.sql.")}
    cast = "CASE WHEN A RLIKE '^[0-9]+$' AND try_cast(A AS INT) IS NOT NULL THEN CAST(A AS INT) END AS E"
    values = f"A, B, CAST(B AS STRING) AS F, C, D, {cast}"
    conversion = RowConversion(gateway, "A STRING, B STRING, C TIMESTAMP, D DECIMAL(9,2)", values, conf)
    assert gateway is not None
    connection = gateway.jvm.java.sql.DriverManager.getConnection(url)
    for most in (1, 0):
        conversion.send(Query(connection, url, f"SELECT * FROM {table}", 1, limit=most), lambda _: None)
    connection.close()


if __name__ == "__main__":
    rehearse(Path(sys.argv[1]))
