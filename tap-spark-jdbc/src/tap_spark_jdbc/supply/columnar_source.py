"""Reading one stream by the database's columnar driver: the queries of its slices, and how failures
are handled.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from singer_spark.core.arrow_schema import arrow_schema
from singer_spark.core.key_value import KeyType
from singer_spark.core.schema_mapping import stream_columns
from singer_spark.errors import ConfigurationError, SingerSparkError, shortage
from tap_spark_jdbc.dialects.dialect import CONNECTORX
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.slice_bounds import long_columns
from tap_spark_jdbc.source.connection_errors import is_lost_state
from tap_spark_jdbc.source.libpq import conninfo
from tap_spark_jdbc.source.mariadb_login import login_of
from tap_spark_jdbc.supply.columnar_query import (
    LEFT,
    LOST,
    UNREACHABLE,
    UNWRITABLE,
    ColumnarQuery,
    Outcome,
)
from tap_spark_jdbc.supply.stream_errors import refused, unwritable

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.slice_bounds import SliceSize
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point, StreamSql
    from tap_spark_jdbc.source.jdbc_source import JdbcSource
    from tap_spark_jdbc.source.mariadb_login import MariaDbLogin
    from tap_spark_jdbc.supply.slice_prefetch import ReadContext

logger = logging.getLogger("tap-spark-jdbc")

# JDBC reads fewer rows in the time that ConnectorX's process takes to start.
FEW_ROWS = 50_000
# A JVM takes as long to start as so many of those processes.
PROCESSES_FOR_A_JVM = 5


class ColumnarSource:
    """One stream in one run.

    Attributes:
        only: The user wants no other reader, even if this one can't reach the database.
        worked: Where it has connected once: in tasks (True), in this process (False). A later
            failure to connect there is a lost connection.
    """

    def __init__(
        self, sql: StreamSql, context: ReadContext, size: SliceSize, *, only: bool, as_json: bool
    ) -> None:
        """Nothing is queried yet.

        `as_json`: bytes are read in their JSON form, if the database can give that.
        """
        self.sql = sql
        self._size = size
        self._as_json = as_json
        self.only = only
        self.worked: set[bool] = set()
        self._said: set[str] = set()
        self._source = context.snapshots.source
        self._has_jvm = context.database.has_jvm
        self._database = context.database.columnar

    def reads(self, each: Slice[Point]) -> bool:
        """Whether to try this slice."""
        if self._database.is_out_of_reach:
            return False
        if not self.is_apart:
            return True
        if self._is_small(each) and not self.only and not self._saves_jvm():
            self._say(
                f"read over JDBC: fewer than {FEW_ROWS:,} rows, which {CONNECTORX} reads no faster"
            )
            return False
        self._say(f"read by {CONNECTORX}")
        return True

    def _saves_jvm(self) -> bool:
        """Whether one more process costs less than the JVM that would have to start."""
        if self._has_jvm() or self._database.processes >= PROCESSES_FOR_A_JVM:
            return False
        self._database.processes += 1
        return True

    def _say(self, how: str) -> None:
        """Log it once."""
        if how not in self._said:
            self._said.add(how)
            logger.info("stream %s: %s", self.sql.plan.stream, how)

    def streams(self) -> bool:
        """Whether rows may be sent while a slice is read; a batch of long ones may be abandoned."""
        if self.is_apart and (long := long_columns(self.sql.plan)):
            self._say(
                f"read over JDBC: column {long[0].name} may hold long values, and no key cuts the "
                "table"
            )
            return False
        return True

    @property
    def is_apart(self) -> bool:
        """Whether each slice has a process of its own, which takes 0.25 s to start."""
        return self.sql.dialect.columnar_driver == CONNECTORX

    def _is_small(self, each: Slice[Point]) -> bool:
        estimate = self.sql.plan.table.row_estimate if self.sql.bookmark is None else None
        rows = estimate if estimate is not None else each.most
        is_odd = each.late or (each.nulls and each.key is None)
        return is_odd or (rows is not None and rows < FEW_ROWS)

    def query(self, each: Slice[Point], limit: int | None = None) -> ColumnarQuery:
        """The query for a slice, or for `limit` of its rows."""
        first = "" if limit is None else f" LIMIT {limit}"
        rows = self._size.batch_rows(may_be_long=bool(long_columns(self.sql.plan)))
        columns = "*"
        if not self._has_boundaries(each):
            columns = ", ".join(name for name, _ in self._columnar.aliased)
        sql = f"SELECT {columns} FROM {self._columnar.relation(each)}{first}"
        # The last slice's token may have expired.
        connection = _connection(self._source)
        return replace(self._query, sql=sql, connection=connection, batch_rows=rows)

    def has_read(self, outcome: Outcome, location: str, *, in_task: bool = False) -> bool:
        """Whether the slice was read; False: it must be read over JDBC.

        Other failures are raised.
        """
        if outcome.state != UNREACHABLE:
            self.worked.add(in_task)
        elif in_task not in self.worked:
            self._fall_back(outcome.refused)
            return False
        if outcome.state not in (None, LEFT):
            raise self._error(outcome, location)
        if outcome.state == LEFT and self.is_apart:
            self._say(f"rows are read over JDBC, not by {CONNECTORX}: {self.reason(outcome)}")
        return outcome.state is None

    def reason(self, outcome: Outcome) -> str:
        """Why a slice was not read, without the driver's words if these may quote a masked
        value.
        """
        if self._source.hides_values:
            return "it could not read all of them; set reader to jdbc"
        return outcome.refused

    def _may_hold_sent_rows(self, each: Slice[Point]) -> bool:
        """Whether a slice may have rows in the bookmark's window."""
        bookmark, key = self.sql.bookmark, each.key
        if bookmark is None:
            return False
        # The database's order of texts may differ from ours.
        if key is None or key.lower is None or key.lower.value.key_type is KeyType.STRING:
            return True
        return not (key.lower.value > bookmark.value or (key.after and key.lower == bookmark))

    def _has_boundaries(self, each: Slice[Point]) -> bool:
        """Whether rows of a slice may lie at a boundary; fetching one more column takes a fifteenth
        of the time.
        """
        if self.sql.plan.replication_key is None:
            return False
        at_end = each.key is None or each.key.closed or self.sql.upper_since is not None
        return each.late or each.nulls or at_end or self._may_hold_sent_rows(each)

    @cached_property
    def _columnar(self) -> StreamSql:
        """The stream's SQL, with each column as selected for the columnar driver."""
        columns = []
        for each, field in zip(self.sql.plan.columns, self._schema, strict=True):
            select = each.reading.columnar_select or "{c}"
            if self._is_base64(field):
                select = self.sql.dialect.base64.replace("{c}", select)
            columns.append(replace(each, reading=replace(each.reading, select=select)))
        return replace(self.sql, plan=replace(self.sql.plan, columns=tuple(columns)))

    @cached_property
    def _schema(self) -> pa.Schema:
        """The columns with the types of the lake."""
        return lake_schema(self.sql.plan)

    def _is_base64(self, field: pa.Field) -> bool:
        return self._as_json and pa.types.is_binary(field.type) and self.sql.dialect.base64 != "{c}"

    @cached_property
    def _query(self) -> ColumnarQuery:
        source = self._source
        begin = ("BEGIN", *source.transaction) if source.transaction else ()
        statements = (*begin, *source.session_statements)
        columns = [
            each.with_type(pa.string()) if self._is_base64(each) else each for each in self._schema
        ]
        masks = tuple(each.made_mask for each in self.sql.plan.columns)
        return ColumnarQuery(_connection(source), statements, "", pa.schema(columns), masks)

    def _fall_back(self, reason: str) -> None:
        stream = self.sql.plan.stream
        if self.only:
            raise ConfigurationError(
                TapCode.READER_UNSUITABLE,
                f"stream {stream}: reader arrow can't read the database: {reason}; set reader to "
                "jdbc",
            )
        if not self._database.is_out_of_reach:
            self._database.is_out_of_reach = True
            logger.warning(
                "read over JDBC from here on (stream %s), as the columnar driver can't read the "
                    "database: %s",
                stream, reason,
            )  # fmt: skip

    def _error(self, outcome: Outcome, location: str) -> SingerSparkError:
        stream, reason, state = self.sql.plan.stream, outcome.refused, outcome.state or ""
        if state == UNWRITABLE:
            return shortage(OSError(outcome.number, reason), location) or unwritable(
                stream, location, reason
            )
        lost = state in (LOST, UNREACHABLE) or is_lost_state(state)
        plan, source = self.sql.plan, self._source
        hides_values = source.hides_values and not lost
        return refused(plan, source, reason, state, lost=lost, hides_values=hides_values)


def lake_schema(plan: StreamPlan) -> pa.Schema:
    """A stream's columns with the types of the lake."""
    return arrow_schema(stream_columns(plan.schema, plan.stream))


def _connection(source: JdbcSource) -> str | MariaDbLogin:
    """How the columnar driver connects; ValueError: it can't connect as the URL says."""
    return login_of(source) if source.dialect.columnar_driver == CONNECTORX else conninfo(source)


def unfit(plan: StreamPlan, context: ReadContext) -> str | None:
    """Why a stream can't be read by the database's columnar driver; None if it can."""
    source = context.snapshots.source
    if source.dialect.columnar_driver is None:
        return f"{source.dialect.name} has no columnar driver"
    try:
        _connection(source)
    except ValueError as error:
        return str(error)
    odd = next((each for each in plan.columns if each.reading.columnar_select is None), None)
    if odd is not None:
        return f"column {odd.name} ({odd.native_type} as {odd.sql_type}) is not read the same by it"
    if source.dialect.columnar_driver == CONNECTORX:
        return f"{CONNECTORX} reads on this machine only" if context.database.by_spark else None
    server = context.snapshots.server
    if not server.has_snapshots:
        return "the server is older than PostgreSQL 13, or only speaks like one"
    return None if server.has_unicode_text else "the database's encoding is SQL_ASCII"
