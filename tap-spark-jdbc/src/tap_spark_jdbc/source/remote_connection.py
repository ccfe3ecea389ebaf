"""Queries to the database through the readers of a Spark Connect server, which gives access to no
connection.

Each query runs over a connection of its own: there are no transactions, and there is no access to
the driver.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from singer_spark.engine.spark_versions import answer
from singer_spark.errors import (
    ConfigurationError,
    SingerSparkError,
    SourceError,
)
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection import Connection, Row
from tap_spark_jdbc.source.connection_errors import (
    again,
    is_lost,
    job_reason,
    may_quote,
    refusal,
    shown,
    with_hint,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark_jdbc.source.jdbc_source import JdbcSource

FETCH_SIZE = "1000"
# Spark reads texts by `getString`, and so columns that are declared as text here. Our queries for a
# number name it `n`; a name that is not in the result is ignored.
NUMBER = "`n` STRING"
# A decimal's own precision and scale are in its Spark type.
_DECIMAL = "decimal("


class RemoteConnection(Connection):
    """A connection, as far as that is possible with queries."""

    holds = False

    def __init__(self, spark: SparkSession, source: JdbcSource) -> None:
        """Nothing is queried yet."""
        super().__init__()
        self._spark = spark
        self._source = source

    def execute(self, sql: str) -> None:
        """Run a query.

        Raises SourceError for any other statement, as there is no session to keep its effect.
        """
        if not sql.lstrip().upper().startswith("SELECT"):
            raise SourceError(TapCode.CONNECT_LIMIT, "Spark Connect gives no connection of its own")
        self.rows(sql)

    def rows(self, sql: str) -> list[Row]:
        """All rows of a small result, each value by `getString`; column names must be unique."""
        return again(partial(self._selected, sql))

    def describe(self, query: str) -> list[dict[str, str | None]]:
        """The columns of a query, which is not run."""
        return again(partial(self._described, query))

    def metadata(
        self, method: str, *arguments: str | bool | tuple[str, ...] | None
    ) -> list[dict[str, str | None]]:
        """A ConfigurationError: there is no driver to ask."""
        raise self._no_driver()

    def identifier_quote(self) -> str:
        """A ConfigurationError: there is no driver to ask."""
        raise self._no_driver()

    @property
    def server(self) -> str:
        """The kind of database; its version is not known."""
        return self._source.dialect.name

    def search_pattern(self, name: str) -> str:
        """The name, unchanged."""
        return name

    def close(self) -> None:
        """Do nothing: no connection is held."""

    def _no_driver(self) -> ConfigurationError:
        return ConfigurationError(
            TapCode.CONNECT_LIMIT,
            f"spark.remote: tables of {self._source.dialect.name} are found by asking its driver, "
            "which Spark Connect does not let a program do; use spark.master",
        )

    def _selected(self, sql: str) -> list[Row]:
        try:
            found = self._texts(sql)
            return self._as_texts(sql) if found is None else found
        except Exception as error:
            raise self._error(f"the database refused {shown(sql)}: ", error) from self._cause(error)

    def _texts(self, sql: str) -> list[Row] | None:
        """The result if it only has texts, and a number named `n`; otherwise None."""
        try:
            table, schema = answer(self._frame(sql, customSchema=NUMBER))
        except Exception as error:
            if is_lost(error):
                raise
            # Perhaps a value that Spark can't hold; if the database refused, it will refuse again.
            return None
        are_texts = all(each.dataType.typeName() == "string" for each in schema.fields)
        return _rows(table) if are_texts else None

    def _as_texts(self, sql: str) -> list[Row]:
        """The result whatever its types, by two queries."""
        names = self._frame(sql).columns
        texts = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in names)
        return _rows(answer(self._frame(sql, customSchema=texts))[0])

    def _described(self, query: str) -> list[dict[str, str | None]]:
        try:
            fields = self._frame(query).schema.fields
        except Exception as error:
            raise self._error("", error) from self._cause(error)
        return [_described(field) for field in fields]

    def _error(self, what: str, error: Exception) -> SingerSparkError:
        if isinstance(error, SingerSparkError):
            return error
        reason = with_hint(job_reason(str(error)), "", hides_values=self._cause(error) is None)
        kind, code = refusal("", reason, TapCode.STATEMENT_REFUSED, lost=is_lost(error))
        return kind(code, f"{what}{reason}")

    def _cause(self, error: Exception) -> Exception | None:
        """The cause to chain to an error; None if it may quote a masked value."""
        return None if self._source.hides_values and may_quote(error) else error

    def _frame(self, sql: str, **options: str) -> DataFrame:
        known = {**self._source.reader_options(), "fetchsize": FETCH_SIZE, **options}
        reader = self._spark.read.format("jdbc").options(**known)
        return reader.option("dbtable", f"(\n{sql}\n) asked").load()


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _described(field: Any) -> dict[str, str | None]:
    kind, metadata = field.dataType.simpleString(), field.metadata
    precision, scale = "0", str(metadata.get("scale", 0))
    if kind.startswith(_DECIMAL):
        precision, scale = kind.removeprefix(_DECIMAL).rstrip(")").split(",")
    return {
        "COLUMN_NAME": field.name,
        "TYPE_NAME": metadata.get("jdbcClientType") or kind,
        "COLUMN_SIZE": precision,
        "DECIMAL_DIGITS": scale,
    }
