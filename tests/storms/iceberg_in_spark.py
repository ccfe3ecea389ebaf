"""Iceberg tables of real runs, read and written by Spark 4.1 with Iceberg's own runtime.

    python tests/storms/iceberg_in_spark.py FOLDER

It needs a network the first time, for the jars. Each run's snapshot must hold what PyIceberg finds there, Spark's own
INSERT and rewrite_data_files come in between, and an upsert continues from there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.sql import SparkSession

from singer_spark.spark.packages import JarCache
from target.iceberg_lake import IcebergLake
from target.loading import record, schema

PACKAGES = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0", "org.xerial:sqlite-jdbc:3.50.3.0")
TEXT = {"type": ["string", "null"]}
FIRST = {
    "id": {"type": ["integer", "null"], "x-sql-datatype": "SMALLINT"},
    "country": TEXT,
    "at": {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"},
    "amount": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(12,2)"},
    "tags": {"type": ["array", "null"], "items": TEXT},
    "more": {"type": ["object", "null"], "properties": {"a b": {"type": "integer"}}},
}
WIDER = {**FIRST, "amount": {**FIRST["amount"], "x-sql-datatype": "DECIMAL(20,2)"}, "new": {"type": "integer"}}
OPTIONS = {"s": {"partition_by": ["country", "day(at)", "bucket(id, 4)"]}}


def message(properties: dict[str, Any], method: str = "append-only") -> dict[str, Any]:
    extent = "full" if method == "overwrite" else "delta"
    return schema("s", properties, ("id",), **{"x-load-method": method, "x-extent": extent})


def session(lake: IcebergLake) -> SparkSession:
    jars = JarCache("iceberg", "Iceberg's runtime", "fetch it where there is a network").jars(PACKAGES)
    catalog = "spark.sql.catalog.lake"
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "jdbc")
        .config(f"{catalog}.uri", f"jdbc:sqlite:{lake.folder}/.dataspoc/catalog.db")
        .config(f"{catalog}.warehouse", f"file://{lake.folder}")
        .config(f"{catalog}.jdbc.schema-version", "V1")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .getOrCreate()
    )


def main() -> None:
    lake = IcebergLake(Path(sys.argv[1]).absolute() / "lake")
    first = record(
        "s", id=1, country="DE/ü%", at="2026-01-31T23:59:59.999999", amount=1.25, tags=["x"], more={"a b": 5}
    )
    lake.load(message(FIRST), first, record("s", id=2), stream_options=OPTIONS)
    lake.load(message(WIDER), record("s", id=3, country="FR", amount=10**15, new=7), stream_options=OPTIONS)
    lake.load(message(WIDER, "overwrite"), record("s", id=9, country="IT", new=1), stream_options=OPTIONS)
    spark = session(lake)
    for each in lake.table("s").metadata.snapshots:
        wanted = lake.table("s").scan(snapshot_id=each.snapshot_id).to_arrow().sort_by("id").to_pylist()
        rows = spark.sql(f"SELECT * FROM lake.raw.s VERSION AS OF {each.snapshot_id} ORDER BY id").collect()
        found = [{name: row.asDict(recursive=True)[name] for name in FIRST} for row in rows]
        assert found == [{name: row[name] for name in FIRST} for row in wanted], each.snapshot_id
    runs = spark.sql("SELECT summary['dataspoc.run-id'] FROM lake.raw.s.snapshots ORDER BY committed_at").collect()
    assert [row[0] for row in runs] == lake.runs("s")
    spark.sql("INSERT INTO lake.raw.s (id, country) VALUES (50, 'ES')")
    spark.sql("CALL lake.system.rewrite_data_files(table => 'raw.s', options => map('rewrite-all', 'true'))")
    lake.load(message(WIDER, "upsert"), record("s", id=50, country="PT", new=2), stream_options=OPTIONS)
    assert lake.rows("s", "id, country, new") == [(9, "IT", 1), (50, "PT", 2)]
    print("Spark finds in each of the snapshots what PyIceberg finds.")


if __name__ == "__main__":
    main()
