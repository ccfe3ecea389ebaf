"""The tables that are read from the binary log, as the server's catalog describes them now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.binlog.position import LoggedColumn
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tap_spark_jdbc.binlog.binlog_server import BinlogServer
    from tap_spark_jdbc.plan.stream_plan import StreamPlan

_COLUMNS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COALESCE(CHARACTER_SET_NAME, ''), EXTRA
FROM information_schema.COLUMNS WHERE {tables} ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
"""
# A constraint has no names of its own for its rules, so they are spelled as in the catalog.
_CASCADES = """
SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, CONCAT('ON DELETE ', DELETE_RULE,
  ' ON UPDATE ', UPDATE_RULE)
FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE ({tables})
  AND (DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR UPDATE_RULE IN ('CASCADE',
    'SET NULL', 'SET DEFAULT'))
"""


@dataclass(frozen=True)
class LoggedTable:
    """A table whose rows are in the log.

    Attributes:
        columns: All its columns, in the order of its rows.
        computed: Names of columns that are computed when they are read, and may not be in the log.
    """

    schema: str
    name: str
    columns: tuple[LoggedColumn, ...]
    computed: frozenset[str]


def logged_tables(server: BinlogServer, plans: Sequence[StreamPlan]) -> dict[str, LoggedTable]:
    """The tables of streams, by stream.

    Raises:
        ConfigurationError: why a table can't be read from the log, and what to do.
    """
    dialect, rows = server.database.source.dialect, server.database.connection.rows
    if not plans:
        return {}

    def chosen(schema: str) -> str:
        pairs = (
            f"({schema} = {dialect.string(str(plan.table.schema))} AND TABLE_NAME = "
            f"{dialect.string(plan.table.name)})"
            for plan in plans
        )
        return " OR ".join(pairs)

    found: dict[tuple[str, str], list[tuple[LoggedColumn, str]]] = {}
    for schema, table, name, native, charset, extra in rows(
        _COLUMNS.replace("{tables}", chosen("TABLE_SCHEMA"))
    ):
        column = LoggedColumn(str(name), str(native), str(charset or ""))
        found.setdefault((str(schema), str(table)), []).append((column, str(extra or "").upper()))
    if not server.logs_cascades:
        _refuse_cascades(rows(_CASCADES.replace("{tables}", chosen("CONSTRAINT_SCHEMA"))), plans)
    tables = {}
    for plan in plans:
        columns = found.get((str(plan.table.schema), plan.table.name))
        if columns is None:
            raise ConfigurationError(
                TapCode.LOG_TABLE_CHANGED, f"stream {plan.stream}: its table is gone; run it again"
            )
        computed = frozenset(each.name for each, extra in columns if "VIRTUAL" in extra)
        tables[plan.stream] = LoggedTable(
            str(plan.table.schema), plan.table.name, tuple(each for each, _ in columns), computed
        )
    return tables


def _refuse_cascades(found: Sequence[tuple[str | None, ...]], plans: Sequence[StreamPlan]) -> None:
    by_table = {(plan.table.schema, plan.table.name): plan.stream for plan in plans}
    for schema, table, constraint, rules in found:
        stream = by_table.get((schema, str(table)))
        if stream is not None:
            raise ConfigurationError(
                TapCode.LOG_TABLE_UNSUITABLE,
                f"stream {stream}: its foreign key {constraint} ({rules}) changes rows without "
                "recording that in the log; set its replication_method to INCREMENTAL with "
                "detect_deletes, or to FULL_TABLE",
            )
