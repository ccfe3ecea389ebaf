"""The start of a log-based stream: its table is read, then changes come from the log.

Columns that were added meanwhile are refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.wal.position import LogBookmark, Moment, lsn_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

_NOW = """
SELECT CAST(pg_catalog.pg_current_wal_insert_lsn() AS text) AS position,
  CAST((SELECT pg_catalog.json_agg(attname) FROM pg_catalog.pg_attribute
  WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped) AS text) AS columns
"""


@dataclass
class LogStart:
    """Where a stream continues once its table is read.

    Attributes:
        bookmark: The bookmark without the snapshot in which the table is read.
    """

    bookmark: LogBookmark
    database: Database
    plan: StreamPlan

    def begin(self, moment: str) -> None:
        """Begin reading the table in this snapshot.

        SourceError: it may show a column that is not known yet.
        """
        ((position, columns),) = self.database.connection.rows(
            _NOW.replace("{oid}", self.bookmark.table)
        )
        _refuse_new(self.plan, json.loads(columns or "[]"))
        self.bookmark = replace(self.bookmark, moment=Moment(moment, lsn_of(str(position))))


def check_columns(database: Database, plan: StreamPlan, oid: str, logged: Iterable[str]) -> None:
    """Raise SourceError if the log has a column that was not there when the run began; a dropped
    column does not count.
    """
    if set(logged) <= {each.name for each in plan.table.columns}:
        return
    ((_, columns),) = database.connection.rows(_NOW.replace("{oid}", oid))
    _refuse_new(plan, set(logged).intersection(json.loads(columns or "[]")))


def _refuse_new(plan: StreamPlan, columns: Iterable[str]) -> None:
    if new := sorted(set(columns) - {each.name for each in plan.table.columns}):
        raise SourceError(
            TapCode.LOG_TABLE_CHANGED,
            f"stream {plan.stream}: its table got column(s) {', '.join(new)} while the run began; "
            "run it again",
        )
