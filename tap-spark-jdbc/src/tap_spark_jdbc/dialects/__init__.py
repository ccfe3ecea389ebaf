"""The known databases; to add one, add an entry here and a file of data beside it."""

from __future__ import annotations

from collections.abc import Mapping

from tap_spark_jdbc.dialects.db2 import DB2
from tap_spark_jdbc.dialects.derby import DERBY
from tap_spark_jdbc.dialects.dialect import Dialect, text_form
from tap_spark_jdbc.dialects.duckdb import DUCKDB
from tap_spark_jdbc.dialects.h2 import H2
from tap_spark_jdbc.dialects.mariadb import MARIADB
from tap_spark_jdbc.dialects.oracle import ORACLE
from tap_spark_jdbc.dialects.postgresql import POSTGRESQL
from tap_spark_jdbc.dialects.snowflake import SNOWFLAKE
from tap_spark_jdbc.dialects.sqlite import SQLITE
from tap_spark_jdbc.dialects.sqlserver import SQLSERVER
from tap_spark_jdbc.dialects.standard import STANDARD, STANDARD_WITH_LIMIT
from tap_spark_jdbc.dialects.type_rules import TypeRule, overridden

_KNOWN = (POSTGRESQL, MARIADB, SQLITE, DUCKDB, H2, DERBY, SQLSERVER, ORACLE, DB2, SNOWFLAKE)

__all__ = [
    "Dialect",
    "TypeRule",
    "dialect_of",
    "known_dialects",
    "overridden",
    "text_form",
]


def known_dialects() -> Mapping[str, Dialect]:
    """Dialects of the known databases, by name."""
    return {dialect.name: dialect for dialect in _KNOWN}


def dialect_of(jdbc_url: str) -> Dialect:
    """The dialect for a JDBC URL; standard SQL for an unknown database."""
    for dialect in (*_KNOWN, STANDARD_WITH_LIMIT):
        if jdbc_url.startswith(dialect.url_prefixes):
            return dialect
    return STANDARD
