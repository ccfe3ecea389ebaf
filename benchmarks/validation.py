"""What validation costs: the target alone, on the same RECORD lines, with `validate_records` on and
off.

usage: validation.py [--rows N] [--repeat N]

`plain` is the schema that tap-spark-jdbc sends for the table of all benchmarks; `strict` asks for
more (an enum, a pattern, lengths, bounds, required). Not a part of `make bench`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import report
from environments import CACHE

FOLDER = CACHE / "work" / "validation"
BAR = 1.3


def nullable(kind: str, sql: str, **keywords: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], "x-sql-datatype": sql, **keywords}


PLAIN = {
    "id": {"type": "integer", "x-sql-datatype": "BIGINT"},
    "quantity": nullable("integer", "INTEGER"),
    "amount": nullable("number", "DECIMAL(12,2)"),
    "weight": nullable("number", "DOUBLE PRECISION"),
    "paid": nullable("boolean", "BOOLEAN"),
    "sku": nullable("string", "VARCHAR(20)"),
    "note": nullable("string", "VARCHAR"),
    "due_on": nullable("string", "DATE", format="date"),
    "updated_at": nullable("string", "TIMESTAMP", format="date-time"),
    "shipped_at": nullable("string", "TIMESTAMP WITH TIME ZONE", format="date-time"),
    "reference": nullable("string", "UUID", format="uuid"),
    "priority": nullable("integer", "SMALLINT"),
}
STRICT = {
    **PLAIN,
    "id": {**PLAIN["id"], "minimum": 1},
    "sku": {**PLAIN["sku"], "pattern": "^SKU-[0-9]{8}$"},
    "note": {**PLAIN["note"], "minLength": 1, "maxLength": 200},
    "priority": {**PLAIN["priority"], "enum": [0, 1, 2, 3, 4, None]},
}
SCHEMAS = {
    "plain": {"type": "object", "properties": PLAIN},
    "strict": {"type": "object", "properties": STRICT, "required": ["id", "sku", "updated_at"]},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures validation on against off.")
    parser.add_argument("--rows", type=int, default=3_000_000, help="RECORD lines (3,000,000)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of each kind, by turns; the median counts (3)"
    )
    return parser.parse_args()


def row(number: int) -> dict[str, Any]:
    digest = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()
    moment = datetime(2020, 1, 1) + timedelta(seconds=11.000137 * number)
    return {
        "id": number,
        "quantity": number % 1000,
        "amount": number * 7919 % 100_000_000 / 100,
        "weight": number**0.5,
        "paid": number % 3 == 0,
        "sku": f"SKU-{number % 50_000:08}",
        "note": f"Order {number} of customer {number * 31 % 200_000}, {digest[:24]}",
        "due_on": f"{2015 + number % 10}-06-{1 + number % 30:02}",
        "updated_at": moment.isoformat(timespec="microseconds"),
        "shipped_at": f"{moment.isoformat(timespec='microseconds')}Z",
        "reference": f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}",
        "priority": number % 5 if number % 10 else None,
    }


def write_lines(rows: int) -> Path:
    """The records, once for all runs."""
    path = FOLDER / f"{rows}.jsonl"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        with half.open("w") as lines:
            for number in range(1, rows + 1):
                lines.write(
                    json.dumps({"type": "RECORD", "stream": "orders", "record": row(number)}) + "\n"
                )
        half.rename(path)
    return path


def cpu_seconds() -> float:
    """Of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(name: str, lines: Path, rows: int, *, validate: bool) -> tuple[float, float]:
    """Seconds and CPU seconds of one run of the target into a new lake; ends the program if rows
    are missing.
    """
    lake = FOLDER / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    config = FOLDER / "target.json"
    config.write_text(
        json.dumps({"bucket": str(lake), "pipeline": "bench", "validate_records": validate})
    )
    schema = {
        "type": "SCHEMA",
        "stream": "orders",
        "key_properties": ["id"],
        "schema": SCHEMAS[name],
    }
    command = [str(Path(sys.executable).parent / "target-spark-lake"), "--config", str(config)]
    began, cpu = time.monotonic(), cpu_seconds()
    with (FOLDER / "target.log").open("wb") as log:
        target = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log
        )
        assert target.stdin is not None
        target.stdin.write(json.dumps(schema).encode() + b"\n")
        target.stdin.flush()
        with lines.open("rb") as source:
            shutil.copyfileobj(source, target.stdin, 1 << 20)
        target.stdin.close()
        code = target.wait()
    used = time.monotonic() - began, cpu_seconds() - cpu
    query = f"SELECT count(*), count(DISTINCT id) FROM read_parquet('{lake}/raw/orders/*.parquet')"
    if code or duckdb.connect().execute(query).fetchone() != (rows, rows):
        sys.exit(
            f"{name}: the run ended with {code}, or rows are missing; its log is "
            f"{FOLDER / 'target.log'}"
        )
    return used


def main() -> None:
    options = arguments()
    lines = write_lines(options.rows)
    print(
        f"{report.machine()}, {options.rows:,} rows of 12 columns, the target alone, median of "
        f"{options.repeat}\n"
    )
    print("| schema | measured | on | off | on / off |\n|---|---|---:|---:|---:|")
    for name in SCHEMAS:
        found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for _ in range(options.repeat):
            for validate in (True, False):
                found[validate].append(measure(name, lines, options.rows, validate=validate))
        for number, what in enumerate(("seconds", "CPU seconds")):
            on, off = (
                statistics.median(run[number] for run in found[validate])
                for validate in (True, False)
            )
            note = "" if on <= BAR * off else f" (more than {BAR})"
            print(f"| {name} | {what} | {on:.1f} | {off:.1f} | {on / off:.2f}{note} |", flush=True)


if __name__ == "__main__":
    main()
