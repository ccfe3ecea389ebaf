"""Where the published copy of a pipeline's state is kept: the target's `state_backend`, or else the
lake's bucket.

The journal in the bucket decides which state is valid; the copy kept here is read by people and the
tap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from singer_spark.errors import ConfigurationError, redact
from singer_spark.state.database import StateDatabase
from singer_spark.state.database_url import POSTGRESQL, WITHOUT_PACKAGE, DatabaseUrl, TableName
from singer_spark.state.folder import FolderState
from singer_spark.state.store import BucketState, StateStore, state_path
from singer_spark.state.table import StateTable
from singer_spark.store.storage import Storage

DEFAULT_TABLE = "spark_lake_state"


@dataclass(frozen=True)
class StateBackend:
    """A place for states.

    Attributes:
        uri: `s3://…`, `file://…`, a path, `sqlite:///…` or `postgresql://…`; None: the lake's own
            bucket. May contain a
            password, so it is never shown.
        table_name: A database's table, optionally with its schema before a dot.
        storage_options: fsspec's options for another bucket or folder.
    """

    uri: str | None = field(default=None, repr=False)
    table_name: str = DEFAULT_TABLE
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, config: Mapping[str, Any] | None, storage_options: Mapping[str, Any] | None = None
    ) -> StateBackend:
        """Parse `state_backend`.

        The target's `storage_options` are for a backend that has none of its own.
        """
        known = ("uri", "table_name", "storage_options")
        values = {
            name: value
            for name, value in (config or {}).items()
            if name in known and value is not None
        }
        values.setdefault("storage_options", dict(storage_options or {}))
        return cls(**values)

    @staticmethod
    def problems(config: Any) -> list[str]:
        """Problems of a `state_backend`, each with the setting's name.

        Registers its password with `redact`.
        """
        uri = config.get("uri") if isinstance(config, dict) else None
        if not isinstance(uri, str):
            return []
        problems, table = [], config.get("table_name")
        try:
            database = DatabaseUrl.parse(uri)
        except ConfigurationError as error:
            return [f"state_backend.uri: {error}"]
        if database is None:
            if not uri:
                problems.append(
                    "state_backend.uri: is empty, leave state_backend out for the lake's own bucket"
                )
            if table is not None:
                problems.append(
                    "state_backend.table_name: only a database has tables, uri is none of one"
                )
            return problems
        if database.table or database.pipeline:
            problems.append(
                "state_backend.uri: table and pipeline are settings of their own, table_name and "
                "pipeline"
            )
        if database.kind == POSTGRESQL and find_spec("psycopg") is None:
            problems.append(f"state_backend.uri: {WITHOUT_PACKAGE}")
        if isinstance(table, str):
            try:
                _table(database, table)
            except ConfigurationError as error:
                problems.append(f"state_backend.table_name: {error}")
        return problems


def open_state_store(backend: StateBackend, storage: Storage, pipeline: str) -> StateStore:
    """The store of one pipeline's state.

    Raises:
        ConfigurationError: there is no such kind of backend.
    """
    path = state_path(pipeline)
    if backend.uri is None:
        return BucketState(storage, path)
    database = DatabaseUrl.parse(backend.uri)
    if database is not None:
        return open_database_state(database, backend.table_name, pipeline, _shown(storage))
    place = Storage(backend.uri, backend.storage_options)
    return (
        BucketState(storage, path)
        if place.url == storage.url
        else FolderState(place, path, lake=_shown(storage))
    )


def open_database_state(
    database: DatabaseUrl, table: str | None, pipeline: str, lake: str | None
) -> StateTable:
    """The state of one pipeline in a table, which `lake`'s runs save; None if it is only read.

    Raises:
        ConfigurationError: the table can't have this name.
    """
    return StateTable(
        StateDatabase(database, _table(database, table or DEFAULT_TABLE)), pipeline, lake
    )


def _table(database: DatabaseUrl, text: str) -> TableName:
    table = TableName.parse(text)
    if table.schema is not None and database.kind != POSTGRESQL:
        raise ConfigurationError(
            f"SQLite has no schemas; put a name with a dot in double quotes, not {text!r}"
        )
    return table


def _shown(storage: Storage) -> str | None:
    """The lake's URL as noted beside its states; None if it contains a password."""
    host = storage.url.partition("://")[2].partition("/")[0]
    return None if "@" in host else redact(storage.url)
