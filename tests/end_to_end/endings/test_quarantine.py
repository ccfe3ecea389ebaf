"""Quarantine as users meet it: rows of a real table that their target can't take."""

from __future__ import annotations

import hmac
import json
import sqlite3
import subprocess
from pathlib import Path

from end_to_end.pipe import BIN, Pipe


def masked(text: str) -> str:
    return hmac.digest(b"k", text.encode(), "sha256").hex()


def test_merge_rows_without_key_are_quarantined(tmp_path: Path) -> None:
    """Rows without the merge key are quarantined, masked and reported."""
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute(
            "create table orders (id integer primary key, code text, note text, born date)"
        )
        rows = [(n, None if n % 10 == 3 else f"c{n}", f"planted {n}") for n in range(40)]
        connection.executemany("insert into orders values (?, ?, ?, '1991-09-19')", rows)
        connection.commit()
        # The value in the place of a date is not a date, but valid.
        options = {"orders": {"mask": {"note": "hash", "born": "redact"}}}
        specs = {
            "incremental_tables": ["orders:id:integer!upsert"],
            "stream_options": options,
            "mask_key": "k",
        }
        tap = {"jdbc_url": f"jdbc:sqlite:{database}", **specs}
        target = {
            "on_invalid_record": "quarantine",
            "stream_options": {"orders": {"key_properties": ["code"]}},
        }
        pipe = Pipe(tmp_path / "run", tap, {**target, "max_invalid_records": 4})
        reported = pipe.run().succeeded().target_errors
        wanted = [(masked(note), code, "***") for _, code, note in rows if code is not None]
        assert pipe.rows("orders", "note, code, born") == sorted(wanted)
    connection.close()
    assert "Done! 36 records in 1 stream(s)" in reported
    (path,) = pipe.bucket.glob(".dataspoc/rejected/test/*/orders.jsonl")
    assert (
        f"stream orders: 4 invalid record(s) rejected, kept with the reason in {path}" in reported
    )
    kept = [json.loads(line) for line in path.read_bytes().splitlines()]
    apart = [
        {"id": n, "code": None, "note": masked(f"planted {n}"), "born": "***"}
        for n in (3, 13, 23, 33)
    ]
    assert [each["record"] for each in kept] == apart
    left = b"".join(
        path.read_bytes() for path in pipe.folder.rglob("*") if path.is_file() and path != database
    )
    assert (
        b"planted" not in left + reported.encode() and b"1991-09-19" not in left + reported.encode()
    )
    assert all(each["path"] == "/code" and "NULL in its key code" in each["error"] for each in kept)
    command = [
        str(BIN / "spark-lake"),
        "runs",
        "--config",
        str(pipe.folder / "target.json"),
        "--json",
    ]
    (report,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert (report["streams"]["orders"]["records"], report["streams"]["orders"]["rejected"]) == (
        36,
        4,
    )
