"""The tap's discovery of a database: its tables, their rows, and columns that could be a replication key."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from singer_spark.errors import SourceError
from singer_spark.process.scratch import scratch_folder
from singer_spark.singer.sql_type import annotated_type
from target_spark_lake.cli.meltano_yml import TAP

JSON = dict[str, Any]

# Keyed by the start of `x-sql-datatype`; the values are the names used in a spec.
_KEY_TYPES = {
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP": "datetime",
    "DATE": "date",
    "DECIMAL": "decimal",
}
_SIGNS = frozenset('.:@!"')


@dataclass(frozen=True, eq=False)
class SourceTable:
    """A table or view.

    Attributes:
        schema: None in a database without schemas.
        name: As the database spells it.
        rows: From the database's statistics; None if it has none.
        has_key: Whether it has a primary key.
        key_types: Columns that could be the replication key, indexed ones first, with their types in a spec.
    """

    schema: str | None
    name: str
    rows: int | None
    has_key: bool
    key_types: Mapping[str, str]

    @classmethod
    def of(cls, stream: JSON) -> SourceTable:
        """A table as described by a stream of the catalog."""
        (root,) = (each["metadata"] for each in stream["metadata"] if not each["breadcrumb"])
        properties = stream["schema"]["properties"]
        keys = {name: _key_type(properties[name]) for name in root.get("valid-replication-keys", ())}
        rows, has_key = root.get("row-count"), bool(root.get("table-key-properties"))
        return cls(root.get("schema-name"), root["table-name"], rows, has_key, keys)

    @property
    def pattern(self) -> str:
        """The table's name in the setting `tables`."""
        return ".".join(escape(part) for part in (self.schema, self.name) if part is not None)

    @property
    def likely_key(self) -> str | None:
        """The first column that looks like the time of the last change."""
        return next((name for name, kind in self.key_types.items() if kind in ("timestamp", "datetime")), None)

    def spec(self, key: str, load_method: str) -> str:
        """The table's entry in the setting `incremental_tables`."""
        table = ".".join(_quoted(part) for part in (self.schema, self.name) if part is not None)
        return f"{table}:{_quoted(key)}:{self.key_types[key]}!{load_method}"


def source_tables(
    tap: str, config: JSON, environment: Mapping[str, str], folder: Path | None = None
) -> list[SourceTable]:
    """The tables found by a tap with this config; `environment` has the variables that the config refers to.

    Raises:
        SourceError: there are none, or the tap can't connect.
    """
    with NamedTemporaryFile("w", suffix=".json", dir=scratch_folder()) as file:
        json.dump(config, file)
        file.flush()
        command = [tap, "--config", file.name, "--discover"]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith(f"{TAP}: ")]
        raise SourceError(said[-1].removeprefix(f"{TAP}: ") if said else done.stderr.strip())
    return [SourceTable.of(each) for each in json.loads(done.stdout)["streams"]]


def _key_type(schema: JSON) -> str:
    sql_type = annotated_type(schema)
    return "integer" if sql_type is None else _KEY_TYPES.get(sql_type.name, "integer")


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""')) if _SIGNS & set(name) else name
