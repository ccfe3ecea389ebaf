"""One table of types: a column's SQL type, its JSON Schema property and its lake column agree."""

from __future__ import annotations

import pytest

from singer_spark.core.schema_mapping import lake_type, stream_columns
from singer_spark.core.sql_type import SqlType, property_schema
from singer_spark.errors import SchemaError


@pytest.mark.parametrize(
    ("sql", "lake"),
    [
        ("BOOLEAN", "boolean"),
        ("SMALLINT", "smallint"),
        ("INTEGER", "int"),
        ("BIGINT", "bigint"),
        ("REAL", "float"),
        ("DOUBLE PRECISION", "double"),
        ("DECIMAL(12,2)", "decimal(12,2)"),
        ("DECIMAL(38,0)", "decimal(38,0)"),
        ("DECIMAL(65,30)", "string"),
        ("NUMERIC", "string"),
        ("VARCHAR(20)", "string"),
        ("DATE", "date"),
        ("TIME", "string"),
        ("TIMESTAMP", "timestamp_ntz"),
        ("TIMESTAMP WITH TIME ZONE", "timestamp"),
        ("VARBINARY", "binary"),
        ("UUID", "string"),
        ("JSON", "string"),
        ("INTERVAL", "string"),
        ("INTEGER ARRAY", "array<int>"),
        ("DECIMAL(5,1) ARRAY ARRAY", "array<array<decimal(5,1)>>"),
    ],
)
def test_sql_type_maps_to_exact_lake_type(sql: str, lake: str) -> None:
    for nullable in (True, False):
        schema = property_schema(SqlType.parse(sql), nullable=nullable)
        assert str(lake_type(schema, "s.c")) == lake
        assert SqlType.parse(schema["x-sql-datatype"]) == SqlType.parse(sql)


@pytest.mark.parametrize(
    ("schema", "lake"),
    [
        ({"type": ["null", "integer"]}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": ["null", "number"], "multipleOf": 0.01}, "decimal(38,2)"),
        ({"type": "number", "multipleOf": 1e-18}, "decimal(38,18)"),
        ({"type": "number", "multipleOf": 1e-38}, "string"),
        (
            {"type": "number", "multipleOf": 1e-38, "maximum": 10**62, "minimum": -(10**62)},
            "string",
        ),
        (
            {"type": "number", "multipleOf": 1e-20, "maximum": 1e15, "exclusiveMaximum": True},
            "decimal(38,20)",
        ),
        ({"type": "number", "multipleOf": 1e-20, "maximum": 1e15, "minimum": -1e19}, "string"),
        ({"type": "number", "multipleOf": 1e-20, "minimum": 0}, "string"),
        (
            {"type": ["null", "integer"], "minimum": 0, "maximum": 18446744073709551615},
            "decimal(20,0)",
        ),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, "bigint"),
        ({"type": "integer", "maximum": 1e30}, "decimal(38,0)"),
        ({"type": "integer", "minimum": 0, "maximum": 2**64, "x-sql-datatype": "BIGINT"}, "bigint"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, "date"),
        ({"type": ["string", "integer", "null"]}, "string"),
        ({"type": "object", "properties": {"zip": {"type": "integer"}}}, "struct<zip:bigint>"),
        ({"type": "object"}, "string"),
        ({"type": "array", "items": {"type": "boolean"}}, "array<boolean>"),
        ({"type": "array"}, "string"),
        ({}, "string"),
        ({"type": "string", "x-sql-datatype": "BIGINT"}, "string"),
        ({"type": "integer", "x-sql-datatype": "what ever(("}, "bigint"),
    ],
)
def test_json_types_of_any_tap_decide_first(schema: dict[str, object], lake: str) -> None:
    assert str(lake_type(schema, "s.c")) == lake


def test_columns_differing_in_case_are_refused() -> None:
    """The error names both columns."""
    with pytest.raises(SchemaError, match=r"RUN-061 .*Id.*ID"):
        stream_columns({"properties": {"Id": {"type": "integer"}, "ID": {"type": "integer"}}}, "s")


def test_schema_without_properties_is_refused() -> None:
    with pytest.raises(SchemaError, match="RUN-060"):
        stream_columns({"type": "object"}, "s")


def test_type_aliases_parse_to_ansi_name() -> None:
    assert str(SqlType.parse("timestamptz")) == "TIMESTAMP WITH TIME ZONE"
    assert str(SqlType.parse("timestamp(6) without time zone")) == "TIMESTAMP"
    assert str(SqlType.parse("numeric(12, 2)")) == "DECIMAL(12,2)"
    with pytest.raises(ValueError, match="not an SQL type"):
        SqlType.parse("1nonsense((")
