"""Runs the target in this process on Singer messages, and reads the lake back with an independent
reader.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from singer_spark.state.source import open_state_source
from singer_spark.state.store import Checkpoint
from target_spark_lake.target import TargetSparkLake

JSON = dict[str, Any]

# Settings of every run that a test does not set itself.
DEFAULTS: JSON = {}


def schema(stream: str, properties: JSON, keys: tuple[str, ...] = (), **annotations: Any) -> JSON:
    return {
        "type": "SCHEMA",
        "stream": stream,
        "schema": {"type": "object", "properties": properties, **annotations},
        "key_properties": list(keys),
    }


def record(stream: str, **values: Any) -> JSON:
    return {"type": "RECORD", "stream": stream, "record": values}


def state(**value: Any) -> JSON:
    return {"type": "STATE", "value": value}


def to_bytes(*messages: JSON | bytes) -> bytes:
    """Lines as most taps write them; bytes are left as they are."""
    return b"".join(
        each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in messages
    )


def with_resume(body: list[JSON]) -> list[JSON]:
    """A tap's messages, with the number of the message as what it needs to continue after a
    STATE.
    """
    return [
        {**message, "resume": {"format_version": 1, "sent": number}}
        if message["type"] == "STATE"
        else message
        for number, message in enumerate(body)
    ]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    # It keeps nothing of the files that it reads: tests replace them under their names.
    return duckdb.connect(config={"enable_external_file_cache": False})


def reader() -> duckdb.DuckDBPyConnection:
    """A connection of one's own to this process's database: a new database takes twenty times the
    CPU.
    """
    connection = _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


class SlowInput(io.BytesIO):
    """Lines that come one by one, and empty ones in their place for as long as the next one has to
    wait.
    """

    def __init__(self, data: bytes, may_go_on: Callable[[bytes], bool]) -> None:
        """Begins.

        Args:
            data: The lines.
            may_go_on: Whether the next line may come after this one.
        """
        super().__init__(data)
        self.may_go_on = may_go_on
        self.last = b""

    def read(self, size: int | None = -1) -> bytes:
        if self.last and not self.may_go_on(self.last):
            return b"\n"
        self.last = self.readline()
        return self.last


@contextmanager
def staging_ended() -> Iterator[None]:
    """Waits behind a run for its own staging, as the end of the process does."""
    others = set(threading.enumerate())
    try:
        yield
    finally:
        while own := [
            each for each in set(threading.enumerate()) - others if each.name.startswith("staging")
        ]:
            for thread in own:
                # One that is just starting can't be joined yet.
                with suppress(RuntimeError):
                    thread.join()


class Lake:
    """A lake in a folder, loaded by the target."""

    def __init__(self, folder: Path, state_url: str | None = None) -> None:
        """Knows the place.

        Args:
            folder: The bucket.
            state_url: What the tap is given; the bucket's `state.json` where not given.
        """
        self.folder = folder
        self.state_url = state_url or f"{folder}/.dataspoc/state/test/state.json"

    def load(self, *messages: JSON | bytes, **settings: Any) -> None:
        self.listen(io.BytesIO(to_bytes(*messages)), **settings)

    def load_slowly(self, *messages: JSON | bytes, **settings: Any) -> None:
        """After each STATE the next line comes when its checkpoint is written."""
        place = self.folder / ".dataspoc/state/test/checkpoint.json"

        def is_written(line: bytes) -> bool:
            message = json.loads(line)
            if message["type"] != "STATE" or "final" in message:
                return True
            return place.exists() and json.loads(place.read_bytes())["resume"] == message["resume"]

        self.listen(SlowInput(to_bytes(*messages), is_written), **settings)

    def listen(self, source: io.BytesIO, **settings: Any) -> None:
        config = {
            "bucket": str(self.folder),
            "pipeline": "test",
            "spark": {"master": "local[2]"},
            **DEFAULTS,
            **settings,
        }
        with staging_ended():
            TargetSparkLake(config=config).listen(source)

    def announced(self, body: list[JSON], *, resume: bool = True) -> list[JSON]:
        """The lines of a tap that announces itself, and continues from the checkpoint if there is
        one.

        Args:
            body: All messages between the first and the last STATE; its own last STATE is what the
                latter repeats.
            resume: False begins at the saved state.
        """
        place = self.state_url
        checkpoint = open_state_source(place).checkpoint if resume else None
        last = {**body[-1], "final": True}
        if checkpoint is not None:
            opening = {"value": checkpoint.state, "start": "resume", "resume": checkpoint.resume}
            rest = with_resume(body)[checkpoint.resume["sent"] + 1 :]
            begun = {
                message["stream"] for message in rest if message["type"] in ("RECORD", "BATCH")
            }
            known = {message["stream"] for message in rest if message["type"] == "SCHEMA"}
            missing = [
                message
                for message in body
                if message["type"] == "SCHEMA" and message["stream"] not in known
            ]
            first = [message for message in missing if message["stream"] in begun]
            done = [message for message in missing if message["stream"] not in begun]
            return [{"type": "STATE", "final": False, **opening}, *first, *rest, *done, last]
        saved = open_state_source(place).saved
        opening = {"value": saved.value if saved else {}, "start": "saved" if saved else "first"}
        return [{"type": "STATE", "final": False, **opening}, *with_resume(body), last]

    def checkpoint(self) -> Checkpoint | None:
        """What a tap would continue from."""
        return open_state_source(self.state_url).checkpoint

    def rows(self, stream: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """Rows of a table in the order of all columns, as DuckDB reads them."""
        query = f"SELECT {columns} FROM {self._read(stream)}"
        with reader() as connection:
            return connection.sql(f"{query} ORDER BY ALL").fetchall()

    def _read(self, stream: str) -> str:
        files = f"{self.folder}/raw/{stream}/*.parquet".replace("'", "''")
        return f"read_parquet('{files}', union_by_name=true)"

    def types(self, stream: str) -> dict[str, str]:
        query = f"DESCRIBE SELECT * FROM {self._read(stream)}"
        with reader() as connection:
            return {name: kind for name, kind, *_ in connection.sql(query).fetchall()}

    def files(self) -> list[str]:
        """Everything that a reader of the lake could find: data and state, without the journals."""
        found = (
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file()
        )
        return sorted(
            path
            for path in found
            if path.startswith("raw/") or "/state/" in path or "/staging/" in path
        )

    def state(self) -> JSON | None:
        path = self.folder / ".dataspoc/state/test/state.json"
        return json.loads(path.read_text()) if path.exists() else None

    def tables(self) -> list[str]:
        """Folders of the tables that hold a file."""
        return sorted({path.parent.name for path in (self.folder / "raw").rglob("*.parquet")})
