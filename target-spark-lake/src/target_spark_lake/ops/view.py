"""`spark-lake view`: SQL for each key's latest row in a table that keeps every version.

The newest row is the one with the greatest cursor, NULL being the smallest. Among equals it is the
last received: files of later runs have greater names, and later rows of a file greater numbers. In
a table with hive folders the SQL also reads the `row_order` objects, which record when each row of
a joined file was received.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click

from singer_spark.core.messages import DELETED_AT
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.store.storage import Storage
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import LAKE_FOLDER, Layout
from target_spark_lake.ops.command import Chosen, Lake, show, subcommand
from target_spark_lake.table.partitioning import NULL_VALUE, Partitioning, escaped
from target_spark_lake.table.table_record import (
    DELTA,
    ICEBERG,
    PARQUET,
    check_owner,
    read_record,
    records_of,
)

Quoter = Callable[[str], str]
DUCKDB, SPARK = "duckdb", "spark"
ENGINES = (DUCKDB, SPARK)
# The file that a row was first in, and its number there.
_FIRST_FILE, _FIRST_ROW = "_spark_lake_first_file", "_spark_lake_first_row"
_RECEIVED = (f"{_FIRST_FILE} DESC", f"{_FIRST_ROW} DESC")
_KINDS = {DELTA: "a Delta", ICEBERG: "an Iceberg"}
# Spark's expressions for a row's file and its number there, if other than those of its Parquet
# reader.
_SPARK_ROW_IDS = {ICEBERG: ("substring_index(_file, '/', -1)", "_pos")}
# The engines' columns for these: a column of the table with such a name would hide them.
_DUCKDB_NAMES, _SPARK_NAMES = ("file_row_number",), {ICEBERG: ("_file", "_pos")}
# Types of folder values that have another name in DuckDB.
_DUCKDB_TYPES = {"string": "VARCHAR"}


def snapshot_view(
    storage: Storage, layout: Layout, settings: TargetSettings, stream: str, engine: str
) -> str:
    """The SQL for a stream's table.

    Raises:
        ConfigurationError: there is no such table, or its key is unknown.
    """
    options = settings.options_of(stream)
    table = layout.table(stream, options.path)
    record = read_record(storage, layout.table_record(table))
    if record is None or record.is_claim():
        raise ConfigurationError(
            LakeCode.TABLE_MISSING,
            f"stream {stream}: there is no table {table} in {storage.url}; load it first",
        )
    check_owner(record, layout.pipeline, stream, table)
    keys = record.key_properties if options.key_properties is None else options.key_properties
    if not keys:
        raise ConfigurationError(
            LakeCode.NO_KEY,
            f"stream {stream}: its primary key is not known, so it has no latest rows; give it "
            "key_properties in stream_options",
        )
    cursor = record.cursor if options.cursor is None else (options.cursor,)
    unknown = [name for name in (*keys, *cursor) if name not in record.columns]
    if unknown:
        raise _impossible(stream, f"table {table} has no column {', '.join(unknown)}")
    hides = settings.hard_delete if options.hard_delete is None else options.hard_delete
    if record.format != PARQUET and engine != SPARK:
        raise _impossible(
            stream,
            f"{table} is {_KINDS[record.format]} table, and only Spark's SQL "
            "shows the order of its files; use --engine spark, or load_method upsert",
        )
    theirs = _SPARK_NAMES.get(record.format, ("_metadata",)) if engine == SPARK else _DUCKDB_NAMES
    if taken := next((name for name in record.columns if name.lower() in theirs), None):
        other_engine = f"--engine {SPARK if engine == DUCKDB else DUCKDB}"
        other = other_engine if record.format == PARQUET else "load_method upsert"
        raise _impossible(
            stream,
            f"table {table} has a column {taken}, which hides where in its files {engine} finds a "
            f"row; use {other}, or rename the column (the tap's `rename`, or stream_maps)",
        )
    url = storage.url_for_spark(table) if engine == SPARK else f"{storage.url}/{table}"
    folders = Partitioning.of(stream, record.partition_by)
    if folders and not cursor and not {part.column for part in folders.parts} <= set(keys):
        raise _impossible(
            stream,
            f"table {table} is partitioned by {', '.join(folders.texts)}, so the "
            "rows of a key may lie in several folders, whose files don't show which was received "
            "last; give it a cursor in stream_options",
        )
    orders = f"{_literal(storage.url)}/{layout.row_order(table, '*')}"
    if engine == SPARK:
        # The record always exists; if nothing matched, Spark would refuse to look.
        found = [layout.table_record(table), layout.row_order(table, "*")]
        inner = ",".join(path.removeprefix(f"{LAKE_FOLDER}/") for path in found)
        orders = f"{storage.url_for_spark(LAKE_FOLDER)}/{{{inner}}}"
    if record.format == ICEBERG:
        url = ".".join(map(_quoter("`"), (layout.catalog.name, *layout.catalog.identifier(table))))
    return SnapshotView(
        url, orders, record.columns, keys, cursor, hides, record.format, folders
    ).sql(engine)


def _impossible(stream: str, reason: str) -> ConfigurationError:
    return ConfigurationError(LakeCode.VIEW_IMPOSSIBLE, f"stream {stream}: {reason}")


def _quoter(mark: str) -> Quoter:
    return lambda name: mark + name.replace(mark, mark * 2) + mark


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _literal(path: str) -> str:
    """A path for DuckDB, with glob characters escaped."""
    return re.sub(r"[*?[]", r"[\g<0>]", path)


def _decoded(text: str) -> str:
    """Spark SQL that decodes percent signs in a text; plus signs are kept."""
    return f"url_decode(replace({text}, '+', '%2B'))"


# The rows of a table with `_FIRST_FILE` and `_FIRST_ROW`.
_PART, _PARTS, _PARTS_OF = "_spark_lake_part", "_spark_lake_parts", "_spark_lake_parts_of"
_DUCKDB_ORDER = f"""
    SELECT given.*, {{folders}}, coalesce({_PART}.file,
      parse_filename(_spark_lake_file)) AS {_FIRST_FILE},
      coalesce({_PART}.file_row + file_row_number - {_PART}.first_row,
        file_row_number) AS {_FIRST_ROW}
    FROM {{source}} AS given
    ASOF LEFT JOIN (
      SELECT {_PARTS_OF}, {_PART}, {_PART}.first_row AS _spark_lake_begins
      FROM (
        SELECT parse_filename(filename, true) AS {_PARTS_OF}, unnest(from_json(content,
        '{{{{"parts": [{{{{"first_row": "BIGINT", "file": "VARCHAR", "file_row": "BIGINT"}}}}]}}}}'
          ).parts) AS {_PART}
        FROM read_text({{orders}})
      ) AS orders
    ) AS known ON parse_filename(_spark_lake_file) = {_PARTS_OF}
      AND file_row_number >= _spark_lake_begins
  """
_SPARK_ORDER = f"""
    SELECT *, coalesce({_PART}.file, _spark_lake_file) AS {_FIRST_FILE},
      coalesce({_PART}.file_row + _spark_lake_row - {_PART}.first_row,
        _spark_lake_row) AS {_FIRST_ROW}
    FROM (
      SELECT given.*, element_at(filter({_PARTS}, each -> each.first_row <= _spark_lake_row),
        -1) AS {_PART}
      FROM (
        SELECT {{columns}}, {{file}} AS _spark_lake_file, {{row}} AS _spark_lake_row
        FROM {{source}}
      ) AS given
      LEFT JOIN (
        SELECT substring_index(_metadata.file_name, '.json', 1) AS {_PARTS_OF},
          from_json(value,
            'parts ARRAY<STRUCT<first_row: BIGINT, file: STRING, file_row: BIGINT>>').parts
            AS {_PARTS}
        FROM text.{{orders}} WITH (wholetext = 'true')
      ) AS known ON _spark_lake_file = {_PARTS_OF}
    ) AS placed
  """


@dataclass(frozen=True)
class SnapshotView:
    """The SQL's input: the table's folder for the engine, a pattern of `row_order` objects."""

    url: str
    orders: str
    columns: Mapping[str, str]
    keys: Sequence[str]
    cursor: Sequence[str]
    without_deleted: bool
    format: str = PARQUET
    folders: Partitioning | None = None

    def sql(self, engine: str) -> str:
        """The SELECT statement for an engine."""
        return self._duckdb() if engine == DUCKDB else self._spark()

    def _duckdb(self) -> str:
        quoted = _quoter('"')
        # DuckDB would also take folders above the table as columns.
        options = (
            "union_by_name = true, hive_partitioning = false, filename = '_spark_lake_file', "
            "file_row_number = true"
        )
        source = f"read_parquet({_text(f'{_literal(self.url)}/**/*.parquet')}, {options})"
        if not self.folders:
            return self._select(
                quoted, source, ["parse_filename(_spark_lake_file) DESC", "file_row_number DESC"]
            )
        columns = []
        for name, kind in self._folder_columns().items():
            text = (
                f"split_part(string_split(_spark_lake_file, {_text(f'/{escaped(name)}=')})[-1], "
                "'/', 1)"
            )
            value = f"nullif(url_decode({text}), '{NULL_VALUE}')"
            columns.append(f"CAST({value} AS {_DUCKDB_TYPES.get(kind, kind)}) AS {quoted(name)}")
        ordered = _DUCKDB_ORDER.format(
            source=source, orders=_text(self.orders), folders=", ".join(columns)
        )
        return self._select(quoted, f"({ordered})", _RECEIVED)

    def _spark(self) -> str:
        quoted = _quoter("`")
        plain = f"parquet.{quoted(self.url)} WITH (mergeSchema = 'true')"
        source = {DELTA: f"delta.{quoted(self.url)}", ICEBERG: self.url}.get(self.format, plain)
        file, row = _SPARK_ROW_IDS.get(self.format, ("_metadata.file_name", "_metadata.row_index"))
        if not self.folders:
            return self._select(quoted, source, [f"{file} DESC", f"{row} DESC"])
        columns = ["*"]
        if self.format == PARQUET:
            # Spark would guess the types of folder values, and read 007 as 7.
            source = (
                f"parquet.{quoted(self.url)} WITH (mergeSchema = 'true', recursiveFileLookup "
                "= 'true')"
            )
            path = _decoded("_metadata.file_path")
            for name, kind in self._folder_columns().items():
                text = _decoded(
                    f"substring_index(substring_index({path}, '/{escaped(name)}=', -1), '/', 1)"
                )
                columns.append(f"CAST(nullif({text}, '{NULL_VALUE}') AS {kind}) AS {quoted(name)}")
        ordered = _SPARK_ORDER.format(
            columns=", ".join(columns),
            source=source,
            orders=quoted(self.orders),
            file=file,
            row=row,
        )
        return self._select(quoted, f"({ordered})", _RECEIVED)

    def _folder_columns(self) -> Mapping[str, str]:
        """The columns stored in folder names, with Spark's names of their types."""
        names = self.folders.columns if self.folders else frozenset()
        return {name: kind for name, kind in self.columns.items() if name in names}

    def _select(self, quoted: Quoter, source: str, received: Sequence[str]) -> str:
        columns = ", ".join(map(quoted, self.columns))
        keys = ", ".join(map(quoted, self.keys))
        newest = [f"{quoted(name)} DESC NULLS LAST" for name in self.cursor]
        wanted = "_spark_lake_row_id = 1"
        if self.without_deleted and DELETED_AT in self.columns:
            wanted += f" AND {quoted(DELETED_AT)} IS NULL"
        return (
            f"SELECT {columns}\nFROM (\n  SELECT *, row_number() OVER (PARTITION BY {keys} ORDER "
            f"BY {', '.join([*newest, *received])}) AS _spark_lake_row_id\n  FROM {source}\n) AS "
            f"versions\nWHERE {wanted}"
        )


@subcommand("view", "view", "view public-orders --engine duckdb")
@click.argument("stream", required=False)
@click.option("--engine", type=click.Choice(ENGINES), help="SQL dialect")
def view_command(chosen: Chosen, stream: str | None, engine: str | None) -> None:
    """SQL for the latest row of each key of a table that keeps every version.

    STREAM is the name of the stream; without one the streams are listed.
    """
    lake = Lake.of(chosen)
    if stream is None:
        tables = records_of(lake.storage, lake.layout.pipeline).values()
        kept = {record.stream for record in tables if record.method.keeps_versions}
        show(chosen, sorted(kept), "\n".join)
        return
    if engine is None:
        raise ConfigurationError(
            RunCode.BAD_FLAG,
            f"view {stream}: choose the SQL dialect, --engine {' or '.join(ENGINES)}",
        )
    sql = snapshot_view(lake.storage, lake.layout, lake.settings, stream, engine)
    print(json.dumps({"sql": sql}) if chosen.json else sql)
