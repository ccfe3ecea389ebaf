"""Each type of the lake is one row of a table: whatever reads that row has the same type."""

from __future__ import annotations

import pytest

from singer_spark.core.arrow_schema import arrow_schema, columns_of_arrow
from singer_spark.core.lake_type import INTEGERS, SCALARS, Scalar, Struct, parse_type
from singer_spark.core.schema_mapping import lake_type
from singer_spark.core.sql_type import SqlType, property_schema
from singer_spark.engine.python_tasks import columns_of_spark, spark_columns
from target_spark_lake.delta_log import schema as delta
from target_spark_lake.iceberg_log import schema as iceberg
from target_spark_lake.table.declared_columns import declared_types


@pytest.mark.parametrize("name", SCALARS)
def test_type_is_identical_in_all_formats(name: str) -> None:
    columns = Struct.of({"c": Scalar(name)})
    assert columns_of_arrow(arrow_schema(columns)) == columns
    assert columns_of_spark(spark_columns(columns)) == columns
    assert spark_columns(columns)["c"].dataType.simpleString() == name
    assert delta.columns_of_log(delta.schema_after(None, columns) or "") == columns
    assert iceberg.lake_columns(iceberg.new_schema(columns)) == iceberg.as_iceberg(columns)
    assert {parse_type(each) for each in SCALARS[name].names.split()} == {Scalar(name)}


@pytest.mark.parametrize("name", SCALARS)
def test_type_has_its_declared_sql_name(name: str) -> None:
    sql = SCALARS[name].sql
    assert declared_types({"c": sql}) == {"c": Scalar(name)}
    assert lake_type(property_schema(SqlType.parse(sql), nullable=True), "s.c") == Scalar(name)


def test_integers_are_from_narrow_to_wide() -> None:
    assert INTEGERS == {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
    assert list(INTEGERS.values()) == sorted(INTEGERS.values())
