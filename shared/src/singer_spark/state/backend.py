"""Where a state's published copy is kept: the target's `state_backend`, else the lake's bucket.

The journal in the bucket decides which state is valid; people and the tap read the copy kept here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from singer_spark.core.exact_json import to_json
from singer_spark.core.messages import timestamp_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, StorageError, redact
from singer_spark.state.database import (
    POSTGRESQL,
    WITHOUT_PACKAGE,
    DatabaseUrl,
    StateDatabase,
    StateSession,
    TableName,
)
from singer_spark.state.run_log import FORMAT_VERSION
from singer_spark.state.store import (
    BucketState,
    FolderState,
    Signature,
    StateStore,
    state_path,
    state_text,
)
from singer_spark.store.storage import Storage

KEPT_STATES = 1000

_CREATE = (
    "CREATE TABLE IF NOT EXISTS {table} (pipeline VARCHAR(1000) NOT NULL PRIMARY KEY, state TEXT, "
    "format_version INTEGER DEFAULT 1 NOT NULL, run_id VARCHAR(100), saved_at {moment}, lake TEXT)"
)
_CREATE_HISTORY = (
    "CREATE TABLE IF NOT EXISTS {history} (pipeline VARCHAR(1000) NOT NULL, run_id VARCHAR(100) "
    "NOT NULL, state TEXT NOT NULL, format_version INTEGER DEFAULT 1 NOT NULL, saved_at {moment}, "
    "PRIMARY KEY (pipeline, run_id))"
)
_READ = (
    "SELECT CAST(state AS TEXT), format_version, CAST(run_id AS TEXT), CAST(lake AS TEXT) FROM "
    "{table} WHERE pipeline = :pipeline"
)
_REGISTER = (
    "INSERT INTO {table} (pipeline, format_version, lake) VALUES (:pipeline, :version, :lake) "
    "ON CONFLICT (pipeline) DO UPDATE SET lake = excluded.lake"
)
# Two conditions: exactly the text that was seen, and no other lake in between.
_REPLACE = (
    "UPDATE {table} SET state = :state, format_version = :version, run_id = :run_id, saved_at = "
    ":saved_at "
    "WHERE pipeline = :pipeline AND CAST(state AS TEXT) = :seen AND (lake IS NULL OR lake = :lake)"
)
_FIRST = (
    "INSERT INTO {table} AS kept (pipeline, state, format_version, run_id, saved_at, lake) VALUES "
    "(:pipeline, :state, :version, :run_id, :saved_at, :lake) ON CONFLICT (pipeline) DO UPDATE SET "
    "state = excluded.state, format_version = excluded.format_version, run_id = excluded.run_id, "
    "saved_at = excluded.saved_at WHERE kept.state IS NULL AND (kept.lake IS NULL OR kept.lake = "
    "excluded.lake)"
)
_REMEMBER = (
    "INSERT INTO {history} (pipeline, run_id, state, format_version, saved_at) VALUES (:pipeline, "
    ":run_id, :state, :version, :saved_at) ON CONFLICT (pipeline, run_id) DO UPDATE SET state = "
    "excluded.state, saved_at = excluded.saved_at"
)
_FORGET = (
    "DELETE FROM {history} WHERE pipeline = :pipeline AND run_id <= (SELECT run_id FROM {history} "
    "WHERE pipeline = :pipeline ORDER BY run_id DESC LIMIT 1 OFFSET :kept)"
)


class StateTable:
    """The state of one pipeline in a table; StorageError: its database refused."""

    location: str | None

    def __init__(self, database: StateDatabase, pipeline: str, lake: str | None) -> None:
        """Nothing is read yet; `lake` is the bucket whose runs save it, None if it is only read."""
        self._database = database
        self._pipeline = pipeline
        self._lake = lake
        self.location = database.location

    @property
    def origin(self) -> str:
        """The location, as text for users."""
        return f"{self.location}, pipeline {self._pipeline}"

    def content(self) -> bytes | None:
        """The state in the row as bytes, or None."""
        with self._database.reading() as session:
            return None if session is None else self._row(session)[0]

    def signature(self) -> Signature | None:
        """The owner of the row; None if there is no row."""
        with self._database.reading() as session:
            return None if session is None else self._row(session)[1]

    def register(self) -> None:
        """Record in the row which lake's runs save it; creates table and row if missing."""
        with self._database.writing() as session:
            session.create(_CREATE, _CREATE_HISTORY)
            _, signature = self._row(session)
            if signature is None or signature.lake != self._lake:
                session.execute(_REGISTER, self._values())

    def write(
        self,
        value: Mapping[str, Any],
        seen: bytes | None,
        run_id: str | None = None,
        mark: str = "",
    ) -> bool:
        """Replace the content that was `seen`, and add the new one to the history for the run.

        Returns:
            False if someone else wrote meanwhile.

        Raises:
            StorageError: the database can't be written to; writing again shows whether it was done.
        """
        try:
            seen_text = None if seen is None else seen.decode()
        except UnicodeDecodeError:  # not written by a program, so it is left as it is
            return False
        with self._database.writing() as session:
            session.create(_CREATE, _CREATE_HISTORY)
            text = (
                f"{to_json(value, 2, ascii_only=True)}{mark}"
                if session.is_ascii_only
                else state_text(value, mark)
            )
            saved = timestamp_text(datetime.now(UTC))
            new = dict(self._values(), state=text, run_id=run_id, saved_at=saved, seen=seen_text)
            if not session.execute(_FIRST if seen is None else _REPLACE, new).rowcount:
                # An answer may have been lost, so the row may hold our own write.
                return self._row(session) == (text.encode(), Signature(self._lake, run_id))
            if run_id is not None:
                session.execute(_REMEMBER, new)
                session.execute(_FORGET, {**new, "kept": KEPT_STATES})
            return True

    def _values(self) -> dict[str, Any]:
        return {"pipeline": self._pipeline, "version": FORMAT_VERSION, "lake": self._lake}

    def _row(self, session: StateSession) -> tuple[bytes | None, Signature | None]:
        row = session.execute(_READ, self._values()).fetchone()
        if row is None:
            return None, None
        state, version, run_id, lake = row
        if version != FORMAT_VERSION:
            raise StorageError(
                RunCode.NEWER_FORMAT,
                f"{self.origin} has format version {version}, this program knows {FORMAT_VERSION}: "
                "upgrade this program",
            )
        content = None if state is None else state.encode(errors="surrogateescape")
        return content, Signature(lake, run_id)


DEFAULT_TABLE = "spark_lake_state"


@dataclass(frozen=True)
class StateBackend:
    """A location for states.

    Attributes:
        uri: `s3://…`, `file://…`, a path, `sqlite:///…` or `postgresql://…`; None: the lake's own
            bucket. May contain a password, so it is never shown.
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
            return [f"state_backend.uri: {error.message}"]
        if database is None:
            if not uri:
                problems.append(
                    "state_backend.uri: is empty; leave state_backend out to keep the state in "
                    "the lake's own bucket"
                )
            if table is not None:
                problems.append(
                    "state_backend.table_name: only a database has tables, and uri does not "
                    "name a database"
                )
            return problems
        if database.table or database.pipeline:
            problems.append(
                "state_backend.uri: table and pipeline don't belong in it; use the settings "
                "table_name and pipeline"
            )
        if database.kind == POSTGRESQL and find_spec("psycopg") is None:
            problems.append(f"state_backend.uri: {WITHOUT_PACKAGE}")
        if isinstance(table, str):
            try:
                _table(database, table)
            except ConfigurationError as error:
                problems.append(f"state_backend.table_name: {error.message}")
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
    location = Storage(backend.uri, backend.storage_options)
    return (
        BucketState(storage, path)
        if location.url == storage.url
        else FolderState(location, path, lake=_shown(storage))
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
            RunCode.BAD_STATE_BACKEND,
            f"SQLite has no schemas; put a name with a dot in double quotes, not {text!r}",
        )
    return table


def _shown(storage: Storage) -> str | None:
    """The lake's URL as noted beside its states; None if it contains a password."""
    host = storage.url.partition("://")[2].partition("/")[0]
    return None if "@" in host else redact(storage.url)
