"""The tap's discovery of a database: its tables, their rows, and columns that could be a
replication key.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from shlex import quote
from tempfile import NamedTemporaryFile
from typing import Any

from singer_spark.core.scratch import scratch_folder
from singer_spark.core.sql_type import annotated_type
from singer_spark.errors import SourceError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.ops.command import TAP

JSON = dict[str, Any]

# Keyed by the start of `x-sql-datatype`; the values are the names used in a spec.
_KEY_TYPES = {
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP": "datetime",
    "DATE": "date",
    "DECIMAL": "decimal",
}
_SIGNS = frozenset('.:@!"')
_TIMES = ("timestamp", "datetime")
# SQL that fills a column when its row is inserted, or changes.
_NOW = re.compile(
    r"(?i)current_?timestamp|localtimestamp|now\b|sys_?(date|timestamp)"
    r"|getdate|getutcdate|clock_timestamp"
)
_ON_UPDATE = re.compile(r"(?i)on update")
# Names of columns: the time of the last change, of the insert, or of some other event; a price or
# an amount; a yes or no.
_CHANGED = re.compile(r"(?i)updat|modif|chang|last_?mod|mtime|touched|synced|edited")
_CREATED = re.compile(r"(?i)creat|insert|added|ctime|registered|ingest|recorded|logged")
_EVENT = re.compile(
    r"(?i)paid|ship|deliver|sent|due|expir|birth|start|end(s|ed)?(_|$)|finish|complet|"
    r"cancel|delet|clos|valid|login|seen|ordered|placed|approv|publish|schedul|refund|return"
)
_AMOUNT = re.compile(
    r"(?i)price|amount|cost|total|balance|salary|discount|quantity|qty|"
    r"percent|(^|_)(tax|fee|rate|score)"
)
_YES_NO = re.compile(
    r"(?i)^(is|has|can|was|should|allow)_|flag|"
    r"^(active|enabled|deleted|archived|visible|paid|done)$"
)
_SMALL = re.compile(r"(?i)bool|bit|tinyint")
_WITH_FRACTION = re.compile(r".*,\s*[1-9]\d*\)")
# Ranks of columns as the time of the last change.
_BY_UPDATE, _BY_NAME_AND_DEFAULT, _BY_NAME, _BY_DEFAULT, _BY_CREATION, _ANY_TIME, _SOME_EVENT = (
    range(7)
)


@dataclass(frozen=True, eq=False)
class SourceTable:
    """A table or view.

    Attributes:
        stream: The name of its stream.
        schema: None in a database without schemas.
        name: As the database spells it.
        rows: From the database's statistics; None if it has none.
        has_key: Whether it has a primary key.
        key_types: Columns that could be the replication key, indexed ones first, with their types
            in a spec.
        defaults: SQL that fills such a column when a row is inserted or changed.
        is_whole: Whether each run reads all of it, by the config.
    """

    stream: str
    schema: str | None
    name: str
    rows: int | None
    has_key: bool
    key_types: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = True

    @classmethod
    def of(cls, stream: Mapping[str, Any]) -> SourceTable:
        """A table as described by a stream of the catalog."""
        (root,) = (each["metadata"] for each in stream["metadata"] if not each["breadcrumb"])
        properties = stream["schema"]["properties"]
        columns = {
            each["breadcrumb"][1]: each["metadata"]
            for each in stream["metadata"]
            if each["breadcrumb"]
        }
        keys = {
            name: kind
            for name in root.get("valid-replication-keys", ())
            if _may_grow(
                name, kind := _key_type(properties[name]), str(columns[name].get("sql-datatype"))
            )
        }
        defaults = {name: text for name in keys if (text := columns[name].get("sql-default"))}
        is_whole = root.get("replication-method", "FULL_TABLE") == "FULL_TABLE"
        rows, has_key = root.get("row-count"), bool(root.get("table-key-properties"))
        named = stream["tap_stream_id"], root.get("schema-name"), root["table-name"]
        return cls(*named, rows, has_key, keys, defaults, is_whole)

    @property
    def pattern(self) -> str:
        """The table's name in the setting `tables`."""
        return ".".join(escape(part) for part in (self.schema, self.name) if part is not None)

    @property
    def likely_key(self) -> str | None:
        """The likeliest time of a row's last change; None if no column looks like one."""
        times = [name for name, kind in self.key_types.items() if kind in _TIMES]
        likely = min(times, key=self._rank, default=None)
        return None if likely is None or self._rank(likely) == _SOME_EVENT else likely

    def missed_by(self, key: str) -> str | None:
        """What runs by this key don't see, for users; None if it looks like the time of the last
        change.
        """
        rank = self._rank(key)
        if rank <= _BY_NAME:
            return None
        return "misses rows that are changed later" + (
            "" if rank == _BY_CREATION else f", unless {key} changes too"
        )

    def _rank(self, name: str) -> int:
        default = self.defaults.get(name, "")
        if _ON_UPDATE.search(default):
            return _BY_UPDATE
        if _CHANGED.search(name):
            return _BY_NAME_AND_DEFAULT if _NOW.search(default) else _BY_NAME
        if _CREATED.search(name):
            return _BY_CREATION
        if _NOW.search(default):
            return _BY_DEFAULT
        return _SOME_EVENT if _EVENT.search(name) else _ANY_TIME

    def spec(self, key: str, load_method: str) -> str:
        """The table's entry in the setting `incremental_tables`."""
        table = ".".join(_quoted(part) for part in (self.schema, self.name) if part is not None)
        return f"{table}:{_quoted(key)}:{self.key_types[key]}!{load_method}"


def source_tables(tap: str, config: JSON, environment: Mapping[str, str]) -> list[SourceTable]:
    """The tables found by a tap; the config refers to variables of this `environment`.

    Raises:
        SourceError: there are none, or the tap can't connect.
    """
    with NamedTemporaryFile("w", suffix=".json", dir=scratch_folder()) as file:
        json.dump(config, file)
        file.flush()
        command = [tap, "--config", file.name, "--discover"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith(f"{TAP}: ")]
        raise SourceError(
            LakeCode.TAP_REFUSED, said[-1].removeprefix(f"{TAP}: ") if said else done.stderr.strip()
        )
    return [SourceTable.of(each) for each in json.loads(done.stdout)["streams"]]


def suggestions(tables: Sequence[SourceTable]) -> list[str]:
    """A spec for each table read whole that has a likely key, and what that key misses."""
    found = []
    for table in tables:
        if table.is_whole and (key := table.likely_key) is not None:
            missed = table.missed_by(key)
            spec = table.spec(key, "upsert" if table.has_key else "append")
            found.append(f"--incremental-table {quote(spec)}" + (f" ({missed})" if missed else ""))
    return found


def _key_type(schema: JSON) -> str:
    sql_type = annotated_type(schema)
    return "integer" if sql_type is None else _KEY_TYPES.get(sql_type.name, "integer")


def _may_grow(name: str, kind: str, native_type: str) -> bool:
    """Whether later rows may have greater values; those of a boolean or a price don't grow."""
    if kind not in ("integer", "decimal"):
        return True
    return not (
        _YES_NO.search(name)
        or _AMOUNT.search(name)
        or _SMALL.match(native_type)
        or _WITH_FRACTION.match(native_type)
    )


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""')) if _SIGNS & set(name) else name
