"""Questions of `spark-lake init`: each answer is checked at once, and asked again if bad."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from getpass import getpass
from glob import escape
from typing import Any, TypeVar

from singer_spark.errors import ConfigurationError, SingerSparkError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import CODECS
from target_spark_lake.ops.command import TAP, installed
from target_spark_lake.ops.new_pipeline import NewPipeline
from target_spark_lake.ops.source_tables import SourceTable, source_tables
from target_spark_lake.table.table_record import FORMATS

JSON = dict[str, Any]
T = TypeVar("T")

# A pipeline with valid values, into which the one to be checked is put.
_RIGHT = NewPipeline("main", "jdbc:sqlite:shop.db", "./lake")
QUESTIONS = {
    "pipeline": "Name of the pipeline",
    "jdbc_url": "JDBC URL of the database, e.g. jdbc:postgresql://localhost:5432/shop",
    "user": "Database user (leave empty for none)",
    "tables": "Tables to copy, e.g. public.orders public.c* (leave empty for all)",
    "incremental_tables": "Incremental tables, e.g. public.orders:updated_at:timestamp (leave "
    "empty for none)",
    "bucket": "Where the lake is: a folder or s3://...",
    "path": "Folder for the tables in it",
    "format": f"Table format: {', '.join(FORMATS)}",
    "compression": f"Compression: {', '.join(CODECS)}",
    "cron": 'Schedule, e.g. "0 5 * * *" or @daily (leave empty for none)',
}
USUAL = {
    "pipeline": "main",
    "bucket": "./lake",
    "path": "raw",
    "format": "parquet",
    "compression": "zstd",
}
SEVERAL = ("tables", "incremental_tables", "log_based")
# Databases whose log the tap reads.
WITH_LOG = ("jdbc:postgresql:", "jdbc:mysql:", "jdbc:mariadb:")
WHOLE = "-"
_PROGRAM = re.compile(r"^(tap|target): (a setting is wrong: )?")
# For wide tables.
SHOWN_KEYS = 5


def ask(given: JSON) -> JSON:
    """The given values, completed by answers.

    Raises:
        ConfigurationError: the input ended.
    """
    known = dict(given)
    _ask(known, "pipeline", "jdbc_url", "user")
    if tables := _connected(known):
        _choose(known, tables)
    _ask(known, "tables", "incremental_tables", "bucket", "path", "format", "compression", "cron")
    return known


def _ask(known: JSON, *names: str, again: bool = False) -> None:
    for name in names:
        value = known.get(name)
        if value is None or again:
            # Whether a format is available depends on where the lake is.
            right = replace(_RIGHT, bucket=known["bucket"]) if name == "format" else _RIGHT
            known[name] = _answer(
                QUESTIONS[name], value or USUAL.get(name), partial(_value, name, right=right)
            )


def _connected(known: JSON) -> list[SourceTable]:
    """The tables of the database; empty if it can't be reached and the user continues all the
    same.
    """
    tap = installed(TAP)
    if tap is None or known.get("tables") is not None:
        return []
    asked: list[str] = []
    while True:
        chosen = {name: value for name, value in known.items() if value is not None}
        new = NewPipeline(**{"bucket": _RIGHT.bucket, **chosen})
        for variable in (each for each in new.variables if each not in os.environ):
            os.environ[variable] = getpass(
                f"{variable} (only to connect now, stored nowhere): ", sys.stderr
            )
            asked.append(variable)
        _say("Connecting ...")
        try:
            return source_tables(tap, new.tap_config, os.environ)
        except SingerSparkError as error:
            # The password may have been the wrong one.
            while asked:
                del os.environ[asked.pop()]
            _say(str(error))
        if not _answer("Change the answers and try again? yes or no", "yes", _yes_or_no):
            return []
        _ask(known, "jdbc_url", "user", again=True)


def _choose(known: JSON, tables: Sequence[SourceTable]) -> None:
    for number, table in enumerate(tables, 1):
        rows = "" if table.rows is None else f"  {table.rows:,} rows"
        _say(f"{number:4}  {table.pattern}{rows}")
    question = "Tables to copy: numbers or names, e.g. 1 3-5 public.c* (leave empty for all)"
    chosen = _answer(question, None, lambda text: _tables(text, tables))
    known["tables"] = tuple(table.pattern for table in chosen) if len(chosen) < len(tables) else ()
    if known.get("log_based") is None and known["jdbc_url"].startswith(WITH_LOG):
        question = (
            "Tables whose changes and deletes come from the database's log: numbers or "
            "names (leave empty for none)"
        )
        logged = _answer(question, None, lambda text: _logged(text, tables, chosen))
        known["log_based"] = tuple(escape(table.stream) for table in logged)
    if known.get("incremental_tables") is None:
        by_log = known.get("log_based") or ()
        whole = [
            table for table in chosen if not any(fnmatch(table.stream, each) for each in by_log)
        ]
        known["incremental_tables"] = _specs([table for table in whole if table.key_types])


def _specs(tables: Sequence[SourceTable]) -> tuple[str, ...]:
    """Keys and load methods for tables that can be read incrementally."""
    if not tables:
        return ()
    _say("\nWith a replication key, a run reads only rows whose key has grown since the last run.")
    for table in tables:
        suggested = table.likely_key
        others = [name for name in table.key_types if name != suggested][:SHOWN_KEYS]
        also = f"  (or {', '.join(others)})" if others else ""
        missed = f"; {said}" if suggested and (said := table.missed_by(suggested)) else ""
        _say(
            f"      {table.pattern}: "
            f"{suggested or f'{WHOLE}, the whole table each time'}{also}{missed}"
        )
    first = tables[0].pattern
    example = f"{first}={next(iter(tables[0].key_types))} or {first}={WHOLE}"
    keys = _answer(
        f"Change any? e.g. {example} (leave empty to accept)",
        None,
        lambda text: _keys(text, tables),
    )
    if not keys:
        return ()
    _say(
        "\nA row that changes comes again. upsert keeps one row for each primary key, append keeps "
        "every version."
    )
    method = _answer("Load method: upsert or append", "upsert", _load_method)
    return tuple(
        table.spec(key, method if table.has_key else "append") for table, key in keys.items()
    )


def _answer(question: str, usual: str | None, check: Callable[[str], T]) -> T:
    """The checked value of an answer; a refused answer is requested again."""
    while True:
        # On standard error, so that standard output holds only the report.
        sys.stderr.write(f"{question}{f' [{usual}]' if usual else ''}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise _refused(
                "nothing was written: the input ended before all questions were answered"
            )
        try:
            return check(line.strip() or usual or "")
        except ConfigurationError as error:
            _say(f"  {error.message}")


def _value(name: str, text: str, *, right: NewPipeline = _RIGHT) -> Any:
    """The value of a setting; raises ConfigurationError with its problem."""
    value: Any = tuple(text.split()) if name in SEVERAL else text
    if not text and name == "jdbc_url":
        raise _refused("the URL of the database is needed")
    if problems := replace(right, **{name: value}).problems():
        raise _refused("; ".join(_PROGRAM.sub("", problem) for problem in problems))
    return value


def _yes_or_no(text: str) -> bool:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise _refused("answer yes or no")
    return text.lower().startswith("y")


def _load_method(text: str) -> str:
    if text not in ("upsert", "append"):
        raise _refused("answer upsert or append")
    return text


def _tables(text: str, tables: Sequence[SourceTable]) -> list[SourceTable]:
    """The tables chosen by numbers, ranges, names and patterns; all of them without words."""
    words = text.replace(",", " ").split()
    chosen: set[SourceTable] = set() if words else set(tables)
    for word in words:
        if span := re.fullmatch(r"(\d+)(?:-(\d+))?", word):
            first, last = int(span[1]), int(span[2] or span[1])
            if not 1 <= first <= last <= len(tables):
                raise _refused(f"{word}: the numbers go from 1 to {len(tables)}")
            chosen.update(tables[first - 1 : last])
        elif found := [
            each
            for each in tables
            if word in (each.pattern, each.name) or fnmatch(each.pattern, word)
        ]:
            chosen.update(found)
        else:
            raise _refused(f"{word}: no table has this name")
    return [table for table in tables if table in chosen]


def _logged(
    text: str, tables: Sequence[SourceTable], chosen: Sequence[SourceTable]
) -> list[SourceTable]:
    """The tables that are read from the log; without words, none of them."""
    found = _tables(text, tables) if text else []
    for table in found:
        if table not in chosen:
            raise _refused(f"{table.pattern}: it is not among the tables to copy")
        if not table.has_key:
            raise _refused(
                f"{table.pattern}: it has no primary key, by which changes find their rows"
            )
    return found


def _keys(text: str, tables: Sequence[SourceTable]) -> dict[SourceTable, str]:
    """The key of each table that has one: the suggested one, or the one given as `table=column`."""
    keys = {table: table.likely_key for table in tables}
    for word in text.replace(",", " ").split():
        name, _, key = word.rpartition("=")
        found = [table for table in tables if name in (table.pattern, table.name)]
        if len(found) != 1:
            raise _refused(
                f"{word}: write it as {tables[0].pattern}={WHOLE}, with a table from above"
            )
        if key not in (*found[0].key_types, WHOLE):
            known = ", ".join([*found[0].key_types, WHOLE])
            raise _refused(f"{word}: {found[0].pattern} can have {known}")
        keys[found[0]] = None if key == WHOLE else key
    return {table: key for table, key in keys.items() if key is not None}


def _refused(reason: str) -> ConfigurationError:
    return ConfigurationError(LakeCode.BAD_ANSWER, reason)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
