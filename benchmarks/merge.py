"""What a merge costs: changes to 1 % of a table, spread or clustered, against Delta's MERGE and a
whole rewrite.

usage: merge.py [--rows N] [--format parquet delta iceberg]

Each program is measured whole, start included: ours from the Singer messages, the others from a
Parquet file of the same changes. The first run of Delta's program fetches its jars.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from environments import CACHE, HERE, java_home, peer
from pyiceberg.catalog.sql import SqlCatalog
from report import machine, table

FOLDER = CACHE / "work" / "merge"
PIPELINE, STREAM = "bench", "items"
MB = 1_000_000
FILES = 10
COLUMNS = """
    id, {clock} AS clock, (id * 7919) % 1000003 AS number, md5(id::varchar) AS code,
    'customer ' || (id % 5000) AS customer, (id % 100000) / 100.0::double AS amount,
    id % 3 = 0 AS paid,
    'a note about item ' || id || ' {clock}' AS note
"""
KINDS = {
    "id": "integer",
    "clock": "integer",
    "number": "integer",
    "code": "string",
    "customer": "string",
    "amount": "number",
    "paid": "boolean",
    "note": "string",
}


@dataclass(frozen=True)
class Cost:
    """What one merge took: seconds of the whole program, new files and their bytes; `clocks`
    distinguishes results.
    """

    seconds: float
    files: int
    bytes: int
    clocks: int


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Merges changes to 1 % of a table.")
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows of the table (10,000,000)"
    )
    parser.add_argument(
        "--format",
        nargs="+",
        default=["parquet", "delta", "iceberg"],
        help="our table formats (all)",
    )
    return parser.parse_args()


def rows_of(condition: str, clock: int, rows: int) -> str:
    return f"SELECT {COLUMNS.format(clock=clock)} FROM range({rows}) AS r(id) WHERE {condition}"


def write_messages(path: Path, query: str) -> None:
    """The rows as a tap sends them."""
    properties = {name: {"type": [kind, "null"]} for name, kind in KINDS.items()}
    head = {
        "type": "SCHEMA",
        "stream": STREAM,
        "schema": {"type": "object", "properties": properties},
    }
    keys = {"key_properties": ["id"], "bookmark_properties": ["clock"]}
    record = ", ".join(f"{name} := {name}" for name in KINDS)
    lines = (
        f"SELECT 'RECORD' AS type, '{STREAM}' AS stream, struct_pack({record}) AS record FROM "
        f"({query})"
    )
    duckdb.execute(f"COPY ({lines}) TO '{path}.records' (FORMAT json)")
    with path.open("wb") as output, Path(f"{path}.records").open("rb") as records:
        output.write(json.dumps({**head, **keys}).encode() + b"\n")
        shutil.copyfileobj(records, output, 1 << 24)
    Path(f"{path}.records").unlink()


def load(folder: Path, messages: Path, table_format: str) -> float:
    """Seconds that our target takes for the messages."""
    config = folder / "target.json"
    lake = {
        "bucket": str(folder / "lake"),
        "pipeline": PIPELINE,
        "format": table_format,
        "load_method": "upsert",
    }
    config.write_text(json.dumps({**lake, "add_record_metadata": False}))
    began = time.monotonic()
    with messages.open("rb") as source, (folder / "log").open("ab") as log:
        program = Path(sys.executable).parent / "target-spark-lake"
        subprocess.run(
            [program, "--config", config], stdin=source, stdout=log, stderr=log, check=True
        )
    return time.monotonic() - began


def run_spark(*arguments: object) -> float:
    # Delta has no release for Spark 4.3 yet.
    python = peer("delta") / "python"
    began = time.monotonic()
    command = [str(python), str(HERE / "programs" / "spark_merge.py"), *map(str, arguments)]
    # With the class path as Spark makes it by itself: no archive, no settings of ours.
    environment = {
        "JAVA_HOME": str(java_home()),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(CACHE),
    }
    with (FOLDER / "spark.log").open("ab") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)
    return time.monotonic() - began


def data_files(folder: Path) -> dict[Path, int]:
    return {
        path: path.stat().st_size
        for path in folder.rglob("*.parquet")
        if "_delta_log" not in path.parts
    }


def current_files(folder: Path) -> list[str]:
    """The files that a reader of the table meets."""
    if (folder / "_delta_log").exists():
        return DeltaTable(str(folder)).file_uris()
    if (folder / "metadata").exists():
        catalog = SqlCatalog("lake", uri=f"sqlite:///{folder.parents[1]}/.dataspoc/catalog.db")
        return [
            task.file.file_path for task in catalog.load_table(f"raw.{STREAM}").scan().plan_files()
        ]
    return [*map(str, data_files(folder))]


def cost(seconds: float, before: dict[Path, int], folder: Path) -> Cost:
    """What was written, and the rows of the table according to its log or its folder."""
    current = current_files(folder)
    new = {path: size for path, size in data_files(folder).items() if path not in before}
    (found,) = (
        duckdb.read_parquet(current)
        .aggregate("count(*), count(DISTINCT id), sum(clock)")
        .fetchall()
    )
    if found[0] != found[1]:
        sys.exit(f"{folder}: {found[0]} rows have {found[1]} keys")
    return Cost(seconds, len(new), sum(new.values()), found[2])


def ours(base: Path, changes: Path, table_format: str) -> Cost:
    """On the loaded lake, which is put back afterwards: an Iceberg table knows where it lies."""
    kept = FOLDER / "kept"
    shutil.copytree(base, kept)
    place = base / "lake" / "raw" / STREAM
    before = data_files(place)
    seconds = load(base, changes, table_format)
    found = cost(seconds, before, place)
    shutil.rmtree(base)
    kept.rename(base)
    return found


def peers(source: Path, changes: Path) -> Iterator[tuple[str, Cost]]:
    """Delta's MERGE on a converted copy, and a rewrite beside the table."""
    place = FOLDER / "delta"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)
    run_spark("convert", place, changes, "-")
    before = data_files(place)
    seconds = run_spark("delta", place, changes, "-")
    yield "Delta MERGE", cost(seconds, before, place)
    output = FOLDER / "rewritten"
    shutil.rmtree(output, ignore_errors=True)
    seconds = run_spark("rewrite", source, changes, output)
    yield "whole rewrite", cost(seconds, {}, output)


def main() -> None:
    options = arguments()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    rows, half = options.rows, options.rows // 2
    messages = FOLDER / "base.jsonl"
    write_messages(messages, rows_of("true", 1, rows))
    for table_format in options.format:
        base = FOLDER / f"base-{table_format}"
        base.mkdir()
        seconds = load(base, messages, table_format)
        print(f"loaded {rows:,} rows into {table_format} in {seconds:.1f} s", file=sys.stderr)
    source = FOLDER / "source"
    source.mkdir()
    step = -(-rows // FILES)
    for number in range(FILES):
        query = rows_of(f"id >= {number * step} AND id < {(number + 1) * step}", 1, rows)
        duckdb.execute(
            f"COPY ({query}) TO '{source}/{number:05d}.parquet' (FORMAT parquet, COMPRESSION zstd)"
        )
    lines = [["changes", "", "seconds", "new files", "MB written", "against Delta MERGE"]]
    for kind, where in (
        ("spread", "id % 100 = 0"),
        ("clustered", f"id >= {half} AND id < {half + rows // 100}"),
    ):
        query = rows_of(where, 2, rows)
        write_messages(FOLDER / "changes.jsonl", query)
        duckdb.execute(f"COPY ({query}) TO '{FOLDER}/changes.parquet' (FORMAT parquet)")
        found = dict(peers(source, FOLDER / "changes.parquet"))
        for table_format in options.format:
            title = f"ours, {table_format}"
            found[title] = ours(
                FOLDER / f"base-{table_format}", FOLDER / "changes.jsonl", table_format
            )
        if len({each.clocks for each in found.values()}) > 1:
            sys.exit(f"{kind}: the tables differ: {found}")
        for title, each in found.items():
            ratio = f"{each.seconds / found['Delta MERGE'].seconds:.2f}"
            cells = [f"{each.seconds:.1f}", str(each.files), f"{each.bytes / MB:,.0f}", ratio]
            lines.append([f"1 % {kind}", title, *cells])
    print(f"\n{rows:,} rows of {len(KINDS)} columns; {machine()}\n\n{table(lines)}")
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
