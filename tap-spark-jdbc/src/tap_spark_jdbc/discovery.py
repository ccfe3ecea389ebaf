"""Which tables a database has, asked in a handful of queries whatever their number."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects.dialect import Dialect
    from tap_spark_jdbc.jdbc_connection import JdbcConnection
    from tap_spark_jdbc.tables import Table


@dataclass(frozen=True)
class Bounds:
    """What discovery is limited to.

    Attributes:
        schemas: Glob patterns; empty: all but the system's.
        tables: Glob patterns `schema.table` or `table`; empty: all.
        only: Exact (schema, table) pairs, of a catalog's selected streams; None: no such limit.
    """

    schemas: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    only: Collection[tuple[str | None, str]] | None = None


def discover_tables(connection: JdbcConnection, dialect: Dialect, bounds: Bounds) -> list[Table]:
    """The tables and views within bounds, by schema and name.

    Raises:
        SourceError: the database refused.
    """
    raise NotImplementedError
