"""Reading the slot once with Arrow and the columnar driver, which a run without changes does not
load.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tap_spark_jdbc.source.connection_errors import with_hint
from tap_spark_jdbc.source.libpq import conninfo
from tap_spark_jdbc.supply.columnar_query import ColumnarQuery, read
from tap_spark_jdbc.supply.columnar_source import lake_schema
from tap_spark_jdbc.wal.change_lines import ChangeLines
from tap_spark_jdbc.wal.column_values import LogValues
from tap_spark_jdbc.wal.log_sink import EnoughError, LogSink, LogStream
from tap_spark_jdbc.wal.log_start import check_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.wal.position import LogBookmark
    from tap_spark_jdbc.wal.published_tables import LogTable
    from tap_spark_jdbc.wal.slot import LogSlot

_MESSAGES = pa.schema([("data", pa.binary())])


def log_stream(
    plan: StreamPlan,
    table: LogTable,
    bookmark: LogBookmark,
    database: Database,
    announce: Callable[..., None],
) -> LogStream:
    """A stream that continues at its bookmark; `announce` writes its SCHEMA."""
    kinds = (pa.string() if pa.types.is_binary(each) else each for each in lake_schema(plan).types)
    types = dict(zip((each.name for each in plan.columns), kinds, strict=True))
    values = LogValues(
        plan.stream, {each.name: each for each in plan.columns}, types, database, table.name
    )
    lines = ChangeLines(plan.stream, values, plan.key_properties, plan.sent_as)
    check = partial(check_columns, database, plan, table.oid)
    return LogStream(
        plan.stream,
        bookmark.lsn,
        bookmark.moment,
        lines,
        lambda unchanged: announce(unchanged=unchanged),
        check,
    )


def read_log(
    database: Database, slot: LogSlot, until: int, most: int | None, sink: LogSink
) -> None:
    """Pass the sink all messages up to a position, or not many more than `most`.

    SourceError: the server refused.
    """
    source = database.source
    query = ColumnarQuery(
        conninfo(source),
        slot.session_statements,
        slot.peeking(until, most),
        _MESSAGES,
        (None,) * len(_MESSAGES),
    )
    try:
        outcome = read(query, sink, database.columnar)
    except EnoughError:
        return
    if outcome.state is not None:
        raise slot.refused("read", with_hint(outcome.refused, outcome.state))
