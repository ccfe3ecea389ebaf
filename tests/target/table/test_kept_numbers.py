"""Tables of an earlier version, whose columns of numbers have other types than they would get
today, continue.
"""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pytest

from target.loading import JSON, Lake, record, schema

UNBOUNDED: JSON = {
    "type": ["null", "number"],
    "multipleOf": 1e-38,
    "maximum": 10**62,
    "minimum": -(10**62),
}
UNSIGNED: JSON = {"type": ["null", "integer"], "minimum": 0, "maximum": 2**64 - 1}
WHOLE = {"x-replication-method": "FULL_TABLE", "x-extent": "full"}
pytestmark = pytest.mark.usefixtures("without_jvm")


def of_an_earlier_version(lake: Lake, **beside: object) -> None:
    """A table of which one column had a decimal without a digit before the point, and the other one
    a bigint.
    """
    old = {
        "n": {"type": ["null", "number"], "x-sql-datatype": "DECIMAL(38,38)"},
        "u": {"type": ["null", "integer"]},
    }
    lake.load(schema("s", old), record("s", n=0.25, u=1), **beside)


def test_new_table_gets_current_number_types(tmp_path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.load(schema("s", {"n": UNBOUNDED, "u": UNSIGNED}), record("s", n=12.5, u=2**64 - 1))
    assert lake.rows("s", "n, u") == [("12.5", Decimal(2**64 - 1))]


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_old_decimal_stays_and_bigint_widens(
    spark, tmp_path, monkeypatch, table_format: str
) -> None:
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    lake = Lake(tmp_path / "lake")
    of_an_earlier_version(lake, format=table_format)
    now = schema("s", {"n": UNBOUNDED, "u": UNSIGNED})
    lake.load(now, record("s", n=0.5, u=2**64 - 1), format=table_format)
    assert lake.types("s")["n"] == "DECIMAL(38,38)"
    assert lake.types("s")["u"] == "DECIMAL(20,0)"


@pytest.mark.parametrize(
    "settings", [{"schema_evolution": "freeze"}, {"stream_options": {"s": {"partition_by": ["u"]}}}]
)
def test_unchangeable_column_keeps_bigint(tmp_path, settings: JSON) -> None:
    """Neither a frozen schema nor a partition column is widened."""
    lake = Lake(tmp_path / "lake")
    of_an_earlier_version(lake, **settings)
    for _ in range(2):
        lake.load(schema("s", {"n": UNBOUNDED, "u": UNSIGNED}), record("s", n=0.5, u=2), **settings)
    read = f"read_parquet('{lake.folder}/raw/s/**/*.parquet', hive_partitioning = false)"
    assert duckdb.sql(f"SELECT count(*), any_value(typeof(n)) FROM {read}").fetchall() == [
        (3, "DECIMAL(38,38)")
    ]


def test_overwrite_gets_current_number_types(tmp_path) -> None:
    lake = Lake(tmp_path / "lake")
    of_an_earlier_version(lake, load_method="overwrite")
    lake.load(schema("s", {"n": UNBOUNDED, "u": UNSIGNED}, **WHOLE), record("s", n=7, u=2**63))
    assert lake.rows("s", "n, u") == [("7", Decimal(2**63))]
