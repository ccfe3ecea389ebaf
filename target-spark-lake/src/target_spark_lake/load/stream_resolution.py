"""Resolves a stream under one SCHEMA, against its table, when its first record comes.

Not earlier, so that a run without new data looks up no table in the bucket, and loads neither Arrow
nor Spark's types.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import STRING, Struct, columns_from_text
from singer_spark.core.messages import DELETED_AT
from singer_spark.core.schema_mapping import admitted_types, stream_columns
from singer_spark.errors import ConfigurationError, SchemaError, SingerSparkError, StorageError, cut
from target_spark_lake.commit.bookmarks import bookmarks_of
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import HISTORY, folder_name
from target_spark_lake.load.sink import ResolvedStream, StreamSink
from target_spark_lake.stage.batch_plan import BatchPlan, BatchTimes
from target_spark_lake.table.changes import CONTROL_COLUMNS
from target_spark_lake.table.declared_columns import (
    MOST_LEVELS,
    levels_of,
    nested_as_text,
    numbers_kept,
    read_as_declared,
    zones_kept,
)
from target_spark_lake.table.evolution import EVOLVE, evolve
from target_spark_lake.table.partitioning import check_unchanged
from target_spark_lake.table.table_record import ICEBERG, TableRecord, tables_of
from target_spark_lake.table.text_columns import JsonTexts, path_to
from target_spark_lake.validate.bulk_check import record_check
from target_spark_lake.validate.record_validator import RecordValidator
from target_spark_lake.validate.schema_check import schema_problem, unreadable

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.intake.stream_schema import StreamSchema

logger = logging.getLogger("target-spark-lake")


def resolve(sink: StreamSink, settings: TargetSettings, run: PipelineRun) -> ResolvedStream:
    """Resolve a sink's stream under its last SCHEMA.

    Raises:
        SchemaError: its columns are incompatible with the table's, or the user's rules forbid the
            change.
        ConfigurationError: the table belongs to another pipeline, or has another format or other
            hive folders.
    """
    try:
        return _resolve(sink, settings, run)
    except (SingerSparkError, OSError, MemoryError):
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        schema = sink.schema
        problem = unreadable(schema.schema, error)
        raise SchemaError(
            LakeCode.SCHEMA_UNUSABLE,
            f"stream {schema.stream}: its JSON Schema is malformed: {problem}; correct it in the "
            "tap or its catalog",
        ) from error


def _resolve(sink: StreamSink, settings: TargetSettings, run: PipelineRun) -> ResolvedStream:
    problem = _checked(sink.schema, settings)
    record, columns = (
        _table_before(sink, settings, run)
        if sink.resolved is None
        else (sink.resolved.record, sink.columns)
    )
    _keep_zones(sink, settings, record)
    _keep_depth(sink, record)
    _keep_numbers(sink, columns)
    schema, now = sink.schema, datetime.now(UTC)
    millis = int(run.started_at.timestamp() * 1000)
    times = BatchTimes(now, now, millis) if settings.add_record_metadata else None
    records = stream_columns(schema.schema, schema.stream)
    codec, keeps_deletes = settings.compression, schema.keeps_deletes
    rows = BatchPlan.of(
        records, None, times, codec, merging=schema.merges, keeps_deletes=keeps_deletes
    )
    if sink.resolved is None and sink.adopted is not None:
        columns = _evolved(sink, columns, columns_from_text(sink.adopted.columns))
    # Columns that merges need are stored only if the table has them already, the user wants them,
    # or it keeps deletes.
    hidden = set() if times else set(CONTROL_COLUMNS) - set(columns.types if columns else ())
    if schema.keeps_deletes:
        hidden.discard(DELETED_AT)
    texts = _resolve_texts(sink, record, columns, records)
    schema = sink.schema
    columns = _evolved(sink, columns, rows.found.without(hidden))
    if sink.resolved is None and record is not None and not record.is_claim():
        _tell_changes(
            sink, record, rows.found, is_new=run.shapes.get(schema.stream) != sink.shape(settings)
        )
    _check_depth(schema.stream, columns)
    evolves = settings.format == ICEBERG  # its files keep the partitions they were written for
    if record is not None and not record.is_claim() and not schema.method.replaces and not evolves:
        check_unchanged(schema.stream, sink.table, record.partition_by, schema.partition_by)
    if schema.partitioning is not None:
        schema.partitioning.check(columns)
    if sink.resolved is None and schema.merges:
        _warn_of_text_cursors(schema, columns)
    # A merge finds a key's newest row across all folders, and only then puts it into its own.
    folders = None if schema.merges else schema.partitioning
    check = None if problem else record_check(schema.schema, schema.key_properties, texts)
    rows = rows.into(columns, check, folders)
    return _resolved(
        schema, record, columns, rows, settings, keys_have_values=schema.merges, texts=texts
    )


def _checked(schema: StreamSchema, settings: TargetSettings) -> str | None:
    """The schema's problem, if records are not validated against it."""
    problem = schema_problem(schema.schema)
    if problem and settings.validate_records:
        raise SchemaError(
            LakeCode.SCHEMA_UNUSABLE,
            f"stream {schema.stream}: its JSON Schema is malformed: {problem}; correct it in the "
            "tap or its catalog, or set validate_records to false",
        )
    return problem


def resolve_keys(schema: StreamSchema, settings: TargetSettings) -> ResolvedStream:
    """Resolve a stream of keys, which gets no table."""
    records = stream_columns(schema.schema, schema.stream)
    check = record_check(schema.schema, schema.key_properties)
    rows = BatchPlan.of(records, check, None, settings.compression)
    return _resolved(schema, None, rows.found, rows, settings, keys_have_values=True)


def _resolved(
    schema: StreamSchema,
    record: TableRecord | None,
    columns: Struct,
    rows: BatchPlan,
    settings: TargetSettings,
    *,
    keys_have_values: bool,
    texts: Mapping[str, Any] = {},
) -> ResolvedStream:
    validates = settings.validate_records
    judged = schema.stream, schema.schema, schema.key_properties, rows.columns
    validator = RecordValidator(
        *judged, validate=validates, keys_have_values=keys_have_values, texts=texts
    )
    return ResolvedStream(
        schema, record, columns, rows, validator, validates, settings.stages_by_spark
    )


def _table_before(
    sink: StreamSink, settings: TargetSettings, run: PipelineRun
) -> tuple[TableRecord | None, Struct | None]:
    """The table before the run, and the columns of it that are kept."""
    schema = sink.schema
    record = run.table_record(schema.stream, sink.table)
    if record is None:
        _refuse_gap(sink, run)
        _, _, former = run.shapes.get(schema.stream, "").partition(" ")
        if former not in ("", sink.table):
            logger.warning(
                "stream %s: its table is %s from now on; %s, where its rows were so far, stays as "
                "it is: remove it, or set `path` back",
                *(schema.stream, sink.table, former),
            )
    if schema.method.has_history:
        run.table_record(
            schema.stream, f"{sink.table}{HISTORY}"
        )  # refused if it is another stream's
    run.logs.check_format(schema.stream, sink.table, record, settings.format)
    before, keeps = record.load_method if record else None, not schema.method.replaces
    if not keeps and before is not None and before == settings.load_method != schema.load_method:
        logger.warning(
            "stream %s: it is sent in full, so from now on its table mirrors the source "
            "(overwrite). Until now it was %s, by the setting load_method, which is for streams "
            "that are read incrementally. To keep that, set load_method in stream_options",
            *(schema.stream, before),
        )
    if record is None or not record.own_columns or not (keeps or sink.rules.mode != EVOLVE):
        return record, None
    return record, columns_from_text(record.own_columns)


def _refuse_gap(sink: StreamSink, run: PipelineRun) -> None:
    """Refuse a new table that starts from the bookmark, because it would lack the rows in the
    stream's old one.
    """
    stream = sink.schema.stream
    # Other taps don't declare what they send: a bookmark of the stream does.
    if (
        sink.schema.extent == "full"
        or run.starts_over
        or stream not in bookmarks_of(run.committed_state())
    ):
        return
    tables, unreadable = tables_of(run.storage)
    ours = tables.get(run.layout.pipeline, {})
    elsewhere = [table for table, each in ours.items() if each.stream == stream]
    for table, problem in unreadable.items():
        if table.rpartition("/")[2] == folder_name(stream):
            raise StorageError(
                LakeCode.TABLE_MOVED,
                f"stream {stream}: its rows so far may be in table {table}, but {problem}",
            )
    if elsewhere:
        raise ConfigurationError(
            LakeCode.TABLE_MOVED,
            f"stream {stream}: this run may send only what changed since its bookmark, and its "
            f"rows so far are in table {elsewhere[0]}, not in {sink.table}; nothing was written: "
            f"set `path` back, or run `spark-lake state reset --stream {stream}` first, so that "
            f"the next run loads all of it into {sink.table} (with start_value in the tap, what "
            "is newer than that)",
        )


def _known_columns(sink: StreamSink, record: TableRecord | None) -> Struct:
    """The columns of the dead run's files or, without any, of the table."""
    if sink.adopted is not None:
        return columns_from_text(sink.adopted.columns)
    return columns_from_text(record.own_columns if record is not None else {})


def _keep_zones(sink: StreamSink, settings: TargetSettings, record: TableRecord | None) -> None:
    """Read `TIMESTAMP` columns with the time zone of the table, or of the dead run's files."""
    zones = zones_kept(
        settings.options_of(sink.schema.stream).columns, _known_columns(sink, record)
    )
    if not zones:
        return
    if sink.resolved is None:
        logger.warning(
            "stream %s: column(s) %s keep their time zone; write TIMESTAMP WITH TIME ZONE in "
            "stream_options (columns), or timestamp_ntz for times without one",
            *(sink.schema.stream, ", ".join(zones)),
        )
    properties = read_as_declared(sink.schema.schema["properties"], zones)
    sink.schema = replace(sink.schema, schema={**sink.schema.schema, "properties": properties})
    sink.rules = replace(sink.rules, declared={**sink.rules.declared, **zones})


def _warn_of_text_cursors(schema: StreamSchema, columns: Struct) -> None:
    """Warn of cursors that compare as text although the source may compare moments or numbers."""
    for name in schema.cursor:
        if name in schema.numbers or columns.types.get(name) != STRING:
            continue
        of_column = schema.schema["properties"][name]
        branches = [
            of_column,
            *(each for word in ("anyOf", "oneOf") for each in of_column.get(word, ())),
        ]
        moments = any(
            isinstance(each, dict) and each.get("format") in ("date-time", "date")
            for each in branches
        )
        if moments or admitted_types(of_column, schema.schema) - {"string", "null"}:
            logger.warning(
                "stream %s: its cursor %s may hold values of several kinds, so it is kept and "
                "compared as text, by which 9 is after 10 and 00:00:00.5Z before 00:00:00Z: an "
                "older row may stay; declare one type in the tap's catalog, as a string with the "
                "format date-time, or name another cursor in stream_options",
                *(schema.stream, name),
            )


def _keep_depth(sink: StreamSink, record: TableRecord | None) -> None:
    """Keep what is nested too deeply as JSON text; a table that already has a type for it keeps
    that type.
    """
    properties = sink.schema.schema["properties"]
    nested = nested_as_text(properties, _known_columns(sink, record))
    if nested != properties:
        sink.schema = replace(sink.schema, schema={**sink.schema.schema, "properties": nested})


def _check_depth(stream: str, columns: Struct) -> None:
    """Refuse columns that only an older version could write, because readers can't open their
    files.
    """
    deep = Struct(tuple(each for each in columns if levels_of(each.type) > MOST_LEVELS))
    if not deep.fields:
        return
    from target_spark_lake.table.lake_parquet import unopenable

    if found := unopenable(deep):
        raise SchemaError(
            LakeCode.COLUMN_NESTED,
            f"stream {stream}: column(s) {', '.join(found)} of its table are nested so deeply "
            f"that no reader opens their files ({cut(next(iter(found.values())), 120)}); nothing "
            "was written: load the stream into another table (`spark-lake state reset --stream "
            f"{stream}`, then stream_options, path), where what is below {MOST_LEVELS} levels is "
            "JSON text",
        )


def _keep_numbers(sink: StreamSink, columns: Struct | None) -> None:
    """Read numbers with the types of table or dead run if those can't become today's."""
    found = columns
    if found is None and sink.adopted is not None:
        found = columns_from_text(sink.adopted.columns)
    schema, fixed = sink.schema, sink.rules.mode != EVOLVE
    if found is None:
        return
    folders = {part.column for part in schema.partitioning.parts} if schema.partitioning else set()
    stays = (
        found.types
        if fixed
        else {name: kind for name, kind in found.types.items() if name in folders}
    )
    properties = {
        name: each
        for name, each in schema.schema["properties"].items()
        if name not in sink.rules.declared
    }
    kept = numbers_kept(properties, found, stays)
    if kept:
        read = read_as_declared(schema.schema["properties"], kept)
        sink.schema = replace(schema, schema={**schema.schema, "properties": read})


def _resolve_texts(
    sink: StreamSink, record: TableRecord | None, table: Struct | None, records: Struct
) -> Mapping[str, Any]:
    """Where the records' texts get quotes, because they may occur beside other values
    (`JsonTexts.locations`).

    Raises:
        SchemaError: the table can't distinguish such values.
    """
    schema, stays = sink.schema, table if not sink.schema.method.replaces else None
    before = schema.texts
    if sink.resolved is None:
        before = record.texts if record is not None and stays is not None else before
        before = before.beside(sink.adopted.texts) if sink.adopted is not None else before
    texts = JsonTexts(schema.schema, before)
    locations = texts.locations(
        records, sink.rules.declared, stays, schema.key_properties if schema.merges else ()
    )
    keys = {path_to(name) for name in schema.key_properties} if schema.merges else set()
    refused = sorted({*texts.refused, *keys.intersection(texts.mixing)})
    if refused:
        names = ", ".join(path[1:] for path in refused)
        asked = ", ".join(f'"{path[1:].partition("/")[0]}": "TEXT"' for path in refused)
        raise SchemaError(
            LakeCode.TYPE_CONFLICT,
            f"stream {schema.stream}: by its SCHEMA column(s) {names} may be text or something "
            "else, and in the table "
            'texts have no quotes there, so that 1 and "1" would be one value; nothing was '
            "written. Options: load it again with load_method overwrite, load the stream into "
            f"another table (`spark-lake state reset --stream {schema.stream}`, then "
            "stream_options, path), or keep every value as its text and 1 "
            'and "1" as one '
            f"(stream_options, columns: {{{asked}}})",
        )
    if texts.mixing and sink.resolved is None:
        logger.warning(
            "stream %s: column(s) %s of its table, which version 0.1.0 began, hold texts as they "
            "are and other values "
            'as JSON, so 1 and "1" look alike; a table that is loaded again tells them apart',
            *(schema.stream, ", ".join(path[1:] for path in texts.mixing)),
        )
    sink.schema = replace(schema, texts=texts.found)
    return locations


def _evolved(sink: StreamSink, table: Struct | None, incoming: Struct) -> Struct:
    """The table's columns after rows with the incoming columns are added."""
    stream, rules = sink.schema.stream, sink.rules
    evolution = evolve(stream, table, incoming, rules)
    changes = [each for each in evolution.changes if each not in sink.changes]
    if changes:
        when = " with its next row" if sink.is_checked else ""
        logger.info("stream %s: its table gets %s%s", stream, ", ".join(changes), when)
        if not sink.is_checked:
            sink.changes += changes
    if evolution.left_out:
        names = ", ".join(evolution.left_out)
        logger.warning(
            "stream %s: new column(s) %s left out (schema_evolution discard)", stream, names
        )
    unknown = ", ".join(
        sorted(set(rules.declared) - {*incoming.types, *(table.types if table else ())})
    )
    if unknown:
        logger.info(
            "stream %s: it has no column %s, which stream_options (columns) names", stream, unknown
        )
    return evolution.columns


def _tell_changes(sink: StreamSink, record: TableRecord, incoming: Struct, *, is_new: bool) -> None:
    """Log what a lost column or another key means for the table, in the first run that meets it."""
    schema, stored = sink.schema, columns_from_text(record.own_columns)
    own = {name: kind for name, kind in stored.types.items() if not name.startswith("_sdc_")}
    gone = [name for name in own if name not in incoming.types]
    new = [name for name in incoming.types if name not in stored.types]
    said = []
    if gone:
        it, are = ("it", "is") if len(gone) == 1 else ("them", "are")
        kept = "so the table loses" if schema.method.replaces else "rows from before keep"
        # A column that takes another's place with the same type is often the same one.
        twin = (
            new[0]
            if len(gone) == len(new) == 1 and incoming.types[new[0]] == own[gone[0]]
            else None
        )
        way = (
            f" (if {twin} is its new name, `rename` in the tap's stream_options keeps one column)"
            if twin
            else ""
        )
        said.append(
            f"column {', '.join(gone)} {are} gone from the source, or not selected; {kept} "
            f"{it}{way}"
        )
    if schema.merges and record.method.merges and record.key_properties != schema.key_properties:
        before, now = (", ".join(key) for key in (record.key_properties, schema.key_properties))
        said.append(
            f"the merge key changes from ({before}) to ({now}); rows from before are compared by "
            "the new key"
        )
    if not is_new:
        return
    for each in said:
        if each not in sink.changes:
            logger.warning("stream %s: %s", schema.stream, each)
            sink.changes.append(each)
