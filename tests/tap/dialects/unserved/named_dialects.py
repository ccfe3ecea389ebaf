"""Databases of which the suite has no server: their URLs, dialects, and types as drivers describe
them.
"""

from __future__ import annotations

from typing import Any

from tap_spark_jdbc.dialects import Dialect, known_dialects
from tap_spark_jdbc.source.discovery import native_type

URLS = {
    "sqlserver": "jdbc:sqlserver://localhost:1433;databaseName=shop",
    "oracle": "jdbc:oracle:thin:@//localhost:1521/SHOP",
    "db2": "jdbc:db2://localhost:50000/shop",
    "snowflake": "jdbc:snowflake://account.snowflakecomputing.com/?db=SHOP",
}


def dialect_named(name: str) -> Dialect:
    return known_dialects()[name]


def described(type_name: str, size: int | None = None, digits: int | None = None) -> str:
    """A column's type as the driver's `getColumns` describes it."""
    row: dict[str, Any] = {"TYPE_NAME": type_name, "COLUMN_SIZE": size, "DECIMAL_DIGITS": digits}
    return native_type({name: None if value is None else str(value) for name, value in row.items()})
