"""Bad input: one clear line, an exit code that is not 0, and nothing changed in the lake."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.pipe import TIMEOUT_SECONDS, Outcome, Pipe
from servers.postgresql import PostgreSQL
from singer_spark.errors import SingerSparkError
from singer_spark.state.source import open_state_source
from tap.in_process import tap_of
from tap.opened import login
from tap_spark_jdbc.extract.run_state import OpeningState
from target_spark_lake.target import TargetSparkLake

SCHEMA = {
    "type": "SCHEMA",
    "stream": "people",
    "key_properties": ["id"],
    "schema": {
        "properties": {
            "id": {"type": "integer"},
            "born": {"type": ["string", "null"], "format": "date"},
        }
    },
}
RECORD = {"type": "RECORD", "stream": "people", "record": {"id": 1, "born": "1755-11-02"}}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of the lake that a reader looks at, or a run for its rows, with its bytes."""
    of_runs = ("/.dataspoc/runs/", "/.dataspoc/locks/", "/tap_failure.json")
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part in str(path) for part in of_runs)
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def first_run(postgresql: PostgreSQL, tmp_path_factory: pytest.TempPathFactory) -> Pipe:
    """A pipe from PostgreSQL whose rows up to 100 were loaded from elsewhere, with new rows
    waiting.
    """
    database = postgresql.new_database()
    with psycopg.connect(database.dsn) as connection:
        connection.execute("create table orders (id int primary key, note text)")
        connection.execute(
            "insert into orders select n, 'note ' || n from generate_series(1, 200) n"
        )
    specs = ["public.orders:id:integer"]
    pipe = Pipe(tmp_path_factory.mktemp("shop"), login(database, incremental_tables=specs))
    schema = {"properties": {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}}}
    bookmark = {"replication_key": "id", "replication_key_value": 100}
    good = feed(
        pipe,
        {"type": "SCHEMA", "stream": "public-orders", "key_properties": ["id"], "schema": schema},
        *(
            {"type": "RECORD", "stream": "public-orders", "record": {"id": n, "note": f"note {n}"}}
            for n in range(1, 101)
        ),
        {"type": "STATE", "value": {"bookmarks": {"public-orders": bookmark}}},
    )
    assert good.target_code == 0, good.target_errors
    return pipe


@pytest.fixture
def shop(first_run: Pipe, tmp_path: Path) -> Pipe:
    """A copy of it for one test."""
    shutil.copytree(first_run.folder, tmp_path / "run")
    return Pipe(tmp_path / "run", first_run.tap)


def assert_one_clear_line(errors: str, program: str, *says: str) -> None:
    lines = [line for line in errors.splitlines() if line.startswith(f"{program}:")]
    assert len(lines) == 1, errors
    assert all(word in lines[0] for word in says), lines[0]
    assert "Traceback" not in errors


def assert_refused(act: Callable[[], object], *says: str) -> None:
    """An error in this process, whose text is one line without a password."""
    with pytest.raises(SingerSparkError) as refused:
        act()
    reported = str(refused.value)
    assert "\n" not in reported
    assert "hunter22" not in reported
    assert all(word in reported for word in says), reported


BAD_SETTINGS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    (
        {"incremental_tables": ["public.ordrs:id:integer"]},
        ("ordrs", "did you mean 'public.orders'?"),
    ),
    ({"incremental_tables": ["public.orders:idd:integer"]}, ("idd", "did you mean 'id'?")),
    (
        {"incremental_table": ["public.orders:id:integer"]},
        ("incremental_table", "did you mean 'incremental_tables'?"),
    ),
    ({"incremental_tables": ["public.orders:id:integr"]}, ("integr",)),
    ({"jdbc_url": "jdbc:sqlite:/no/such/folder/shop.db"}, ("/no/such/folder/shop.db",)),
    (
        {"jdbc_url": "jdbc:postgresql://127.0.0.1:1/shop", "user": "u", "password": "hunter22"},
        ("127.0.0.1:1",),
    ),
    (
        {"jdbc_url": 5, "n_jobs": "many", "no_such_setting": 1},
        ("jdbc_url", "n_jobs", "no_such_setting"),
    ),
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("settings", "says"), BAD_SETTINGS, ids=lambda case: str(case)[:40])
def test_bad_tap_config_changes_nothing(
    shop: Pipe, settings: dict[str, Any], says: tuple[str, ...]
) -> None:
    """How a program ends with such an error is in `test_first_run_errors`."""
    before = tree(shop.bucket)
    assert_refused(lambda: tap_of({**shop.tap, **settings}).plans(), *says)
    assert tree(shop.bucket) == before


@pytest.mark.parametrize(
    "text", ['{"bookmarks": {', '["bookmarks"]', '{"bookmarks": {"orders": 5}}', "\x00\x01"]
)
def test_malformed_state_starts_no_full_run(shop: Pipe, text: str) -> None:
    shop.state_path.write_text(text)
    before = tree(shop.bucket)
    if text == "\x00\x01":
        outcome = shop.run()
        assert outcome.tap_code != 0
        assert_one_clear_line(outcome.tap_errors, "tap-spark-jdbc", "state")
    else:
        assert_refused(lambda: OpeningState.of(open_state_source(str(shop.state_path))), "state")
    assert tree(shop.bucket) == before


def text_of(lines: Sequence[dict[str, Any] | str]) -> str:
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def feed(pipe: Pipe, *lines: dict[str, Any] | str) -> Outcome:
    """Gives the target these lines, as any tap would."""
    done = subprocess.run(
        pipe.target_command(),
        input=text_of(lines),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    states = [json.loads(line) for line in done.stdout.splitlines()]
    return Outcome(0, done.returncode, "", done.stderr, states)


BAD_LINES: list[tuple[list[dict[str, Any] | str], tuple[str, ...]]] = [
    ([SCHEMA, RECORD, '{"type": "RECORD", "stream": "people", "rec'], ("line 3",)),
    ([RECORD], ("people", "SCHEMA")),
    (
        [SCHEMA, RECORD, {**RECORD, "record": {"id": "one", "born": None}}],
        ("people", "id", "integer"),
    ),
    (
        [SCHEMA, RECORD, {**RECORD, "record": {"id": 2, "born": "2025-02-30"}}],
        ("people", "born", "2025-02-30"),
    ),
    ([SCHEMA, RECORD, {**RECORD, "record": {"id": 2, "born": 5}}], ("people", "born")),
    (
        [SCHEMA, {"type": "STATE", "value": {}, "final": False, "start": "full"}, RECORD],
        ("the tap died",),
    ),
    (
        [SCHEMA, {"type": "STATE", "value": {}, "final": False, "start": "saved"}, RECORD],
        ("state",),
    ),
]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Pipe:
    """A lake that another tap has filled once."""
    pipe = Pipe(tmp_path_factory.mktemp("people"), {})
    good = feed(
        pipe, SCHEMA, RECORD, {"type": "STATE", "value": {"bookmarks": {"people": {"at": 1}}}}
    )
    assert good.target_code == 0, good.target_errors
    return pipe


@pytest.mark.parametrize(("lines", "says"), BAD_LINES, ids=lambda case: str(case[-1])[:40])
def test_bad_lines_change_nothing(people: Pipe, lines: list[Any], says: tuple[str, ...]) -> None:
    """The first and the last by the program; of the others it would make a line in the same way."""
    pipe = people
    before = tree(pipe.bucket)
    if lines in (BAD_LINES[0][0], BAD_LINES[-1][0]):
        outcome = feed(pipe, *lines)
        assert outcome.target_code != 0
        assert outcome.states == []
        assert_one_clear_line(outcome.target_errors, "target-spark-lake", *says)
    else:
        output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        lines_in = io.BytesIO(text_of(lines).encode())
        with redirect_stdout(output):
            assert_refused(lambda: TargetSparkLake(config=pipe.target).listen(lines_in), *says)
        assert output.buffer.getvalue() == b""
    assert tree(pipe.bucket) == before


def test_unwritable_bucket_is_named(tmp_path: Path) -> None:
    """It is a folder: the line points at no options of a store."""
    (tmp_path / "file").write_text("no folder")
    pipe = Pipe(tmp_path / "run", {}, {"bucket": str(tmp_path / "file" / "lake")})
    outcome = feed(pipe, SCHEMA, RECORD)
    assert outcome.target_code != 0
    assert_one_clear_line(outcome.target_errors, "target-spark-lake", str(tmp_path / "file"))
    assert "storage_options" not in outcome.target_errors
