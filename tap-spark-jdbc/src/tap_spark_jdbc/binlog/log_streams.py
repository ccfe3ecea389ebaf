"""Reading the binary log once with Arrow, which a run without changes does not load."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tap_spark_jdbc.binlog.binlog_server import logged_tables
from tap_spark_jdbc.binlog.change_lines import BinlogStream
from tap_spark_jdbc.binlog.column_values import BinlogValues
from tap_spark_jdbc.binlog.dump import Dump
from tap_spark_jdbc.binlog.position import LogPosition, MySqlGtids
from tap_spark_jdbc.binlog.reading import BinlogReading
from tap_spark_jdbc.supply.columnar_source import lake_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.binlog.binlog_server import BinlogServer, LoggedTable
    from tap_spark_jdbc.binlog.position import BinlogBookmark, LoggedColumn
    from tap_spark_jdbc.extract.stream_progress import RunBudget
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

# Functions of the server that turn a type's bytes into a text.
_TEXTS = {
    "uuid": "CAST(CAST({c} AS UUID) AS CHAR)",
    "inet6": "INET6_NTOA({c})",
    "inet4": "INET6_NTOA({c})",
}
_SIZES = {"uuid": 16, "inet6": 16, "inet4": 4}
_AT_ONCE = 500


def binlog_streams(
    server: BinlogServer,
    plans: Sequence[StreamPlan],
    bookmarks: Mapping[str, BinlogBookmark],
    tables: Mapping[str, LoggedTable],
) -> dict[str, BinlogStream]:
    """The streams that continue at their bookmarks."""
    database = server.database
    found, charmaps = {}, _charmaps(database)
    for plan in plans:
        types = dict(
            zip((each.name for each in plan.columns), lake_schema(plan).types, strict=True)
        )
        columns = {each.name: each for each in plan.columns}
        values = BinlogValues(plan.stream, columns, types, charmaps, partial(_converted, database))
        bookmark = bookmarks[plan.stream]
        stream = BinlogStream(
            plan, bookmark, tables[plan.stream], values, partial(_columns_now, server, plan)
        )
        if bookmark.gtids:
            stream.shown = server.gtid_kind.parse(bookmark.gtids)
        found[plan.stream] = stream
    return found


def _columns_now(server: BinlogServer, plan: StreamPlan) -> tuple[LoggedColumn, ...]:
    return logged_tables(server, [plan])[plan.stream].columns


def read_log(
    server: BinlogServer,
    streams: Mapping[str, BinlogStream],
    first: BinlogBookmark,
    until: LogPosition,
    budget: RunBudget,
    progress: Progress,
    move: Callable[[BinlogReading, LogPosition], None],
    *,
    by_gtid: bool,
) -> BinlogReading:
    """Read the log from the first bookmark to a position; `move` is called where transactions end.

    With `by_gtid`, reading begins after the bookmark's identifiers, because its position is another
    server's.

    Raises:
        SourceError: the server refused.
    """
    reading = BinlogReading(
        {(each.table.schema, each.table.name): each for each in streams.values()},
        budget,
        progress,
        until,
        lambda: move(reading, reading.committed or until),
        server.gtid_kind.parse(first.gtids) if server.gtids and first.gtids else None,
        0 if by_gtid or first.prepared else first.created,
        {name: LogPosition.parse(position) for name, position in first.prepared}
        if not by_gtid
        else {},
    )
    dump = Dump.of(server.database.source)
    if not by_gtid:
        events = dump.events(first.begin)
    elif server.is_mariadb:
        events = dump.events(
            None,
            statement=f"SET @slave_connect_state = '{first.gtids}', @slave_gtid_strict_mode = 1",
        )
    else:
        events = dump.events(None, gtids=MySqlGtids.parse(first.gtids).encoded())
    for batch in events:
        if not reading.add(batch):
            break
    return reading


def _charmaps(database: Database) -> Callable[[str], str]:
    """A function that asks the server, once, for the characters of a single-byte character set."""
    known: dict[str, str] = {}

    def charmap(charset: str) -> str:
        if charset not in known:
            every = bytes(range(256)).hex()
            sql = f"SELECT HEX(CONVERT(CONVERT(X'{every}' USING {charset}) USING utf8mb4))"
            ((found,),) = database.connection.rows(sql)
            known[charset] = bytes.fromhex(str(found)).decode()
        if len(known[charset]) != 256:
            raise ValueError(f"the character set {charset} is not known here")
        return known[charset]

    return charmap


def _converted(database: Database, native: str, found: pa.Array) -> pa.Array:
    """The texts into which the server converts a type's bytes, or floating-point numbers."""
    rules = {each.sql_type: each.text or each.select for each in database.source.dialect.type_rules}
    shown = {**_TEXTS, "double": rules["DOUBLE PRECISION"]}
    select, size = shown.get(native, rules["GEOMETRY"]), _SIZES.get(native, 0)
    values, texts = found.to_pylist(), []

    def literal(value: bytes | float) -> str:
        if isinstance(value, float):
            return f"({value:.17e})"
        return f"X'{value.ljust(size, bytes(1)).hex()}'"

    for begin in range(0, len(values), _AT_ONCE):
        selected = (
            "NULL" if each is None else select.replace("{c}", literal(each))
            for each in values[begin : begin + _AT_ONCE]
        )
        texts += [
            row[0]
            for row in database.connection.rows(
                " UNION ALL ".join(f"SELECT {each}" for each in selected)
            )
        ]
    return pa.array(texts, pa.string())
