"""MariaDB's rows by ConnectorX and by JDBC, value by value and fingerprint by fingerprint, and
their late rows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from singer_spark.core.bookmark import MAX_WINDOW_HASHES
from tap.batch_output import JSON, batch_config, unbatched
from tap.dialects.mariadb_extremes import VALUES, column, make_matrix
from tap.in_process import Sent, run_tap
from tap.opened import login
from tap.source.mariadb_pipes import run
from tap_spark_jdbc.supply import columnar_source
from tap_spark_jdbc.supply.jdbc_reader import JdbcReader

if TYPE_CHECKING:
    from servers.mariadb import MariaDatabase

pytestmark = pytest.mark.usefixtures("spark")
# By the table's character set: a text that fills it.
TEXTS = {
    "latin1": "Ä ß é ÿ €",
    "utf8mb3": "日本語 Ä \\ \u2028",
    "utf8mb4": "😀 日本語 \t",
    "ascii": "plain '",
}
ALL = {column(number): native_type for number, native_type in enumerate(VALUES)}
MASKS = dict(zip(ALL, ["hash", "redact", "null", "last4"] * len(ALL), strict=False))
# Without a key to cut by, long values are left to JDBC.
SHORT = [
    name
    for name, kind in ALL.items()
    if not re.match("text|long|json|.*blob|.*binary|geometry", kind)
]
CASES: dict[str, JSON] = {
    "all types": {"tables": ["matrix"]},
    "fingerprints": {"tables": ["matrix"], "incremental_tables": ["matrix:id:integer"]},
    "null keys": {"tables": ["matrix"], "incremental_tables": ["matrix:k:datetime"]},
    "where": {
        "tables": ["matrix"],
        "stream_options": {"*": {"where": "n in (2, 3) or v37 = '日本語 😀' -- :n"}},
    },
    "queries": {
        "tables": ["nothing"],
        "queries": [
            {
                "name": "asked",
                "sql": f"select {', '.join(SHORT)} from matrix where n < 5 or n = 7 # it's all",
            }
        ],
    },
    "character sets": {"tables": [f"of_{name}" for name in TEXTS]},
    "empty": {"tables": ["nothing"], "incremental_tables": ["nothing:id:integer"]},
    "masks": {"tables": ["matrix"], "stream_options": {"*": {"mask": MASKS}}, "mask_key": "k" * 32},
    "boundary without rows": {
        "tables": ["matrix"],
        "incremental_tables": ["matrix:id:integer"],
        "safety_lag_rows": 0,
    },
}


@pytest.fixture(scope="module")
def database(mariadb: Any) -> MariaDatabase:
    database = mariadb.new_database()
    make_matrix(database)
    run(
        database,
        "alter table matrix add column k datetime(6) as (if(n % 3 = 0, null, '2026-01-01' + "
        "interval n second))",
    )
    run(database, "create table nothing like matrix")
    for name, text in TEXTS.items():
        run(
            database,
            f"create table of_{name} (id int primary key, a varchar(50), b text, c char(20)) "
            f"charset {name}",
        )
        run(
            database,
            f"insert into of_{name} values (1, '{text.replace(chr(39), chr(39) * 2)}', null, '')",
        )
        run(database, f"insert into of_{name} select 2, concat(a, a), a, a from of_{name}")
    return database


def bookmarks(sent: Sent) -> JSON:
    """The state, without the moments at which the runs began."""
    found: JSON = json.loads(json.dumps(sent.final["value"]["bookmarks"]))
    for each in found.values():
        each.pop("runs", None)
    return found


@pytest.mark.parametrize(
    ("case", "batches"),
    # Either way turns values, fingerprints and masks into its own form; the other cases meet SQL.
    [
        *[(case, False) for case in ("all types", "fingerprints", "masks", "null keys", "where")],
        ("character sets", False),
        *[(case, True) for case in ("all types", "fingerprints", "masks", "queries", "empty")],
        ("boundary without rows", True),
    ],
)
def test_rows_of_both_readers(
    database: MariaDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    batches: bool,
) -> None:
    """ConnectorX brings each value, and each fingerprint of a state, that JDBC brings."""
    found = {}
    for reader in ("jdbc", "arrow"):
        config = login(database, schemas=[database.name], reader=reader, **CASES[case])
        if batches:
            config["batch_config"] = batch_config(tmp_path / reader)
        if reader == "arrow":
            monkeypatch.delattr(JdbcReader, "read")
            monkeypatch.delattr(JdbcReader, "work")
        sent = run_tap(config).succeeded()
        rows = [each for each in unbatched(sent.messages) if each["type"] == "RECORD"]
        found[reader] = (
            Counter(repr((each["stream"], each["record"])) for each in rows),
            bookmarks(sent),
        )
    assert found["arrow"] == found["jdbc"]
    assert bool(found["jdbc"][0]) == (case != "empty")


@pytest.mark.parametrize(
    ("readers", "rows", "batches"),
    [
        (("arrow", "jdbc"), 30, False),
        (("jdbc", "arrow"), 30, True),
        (("arrow", "arrow"), 30, False),
        (("arrow", "jdbc"), MAX_WINDOW_HASHES + 50, True),
    ],
)
def test_late_rows(
    mariadb: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    readers: tuple[str, str],
    rows: int,
    batches: bool,
) -> None:
    """A late row comes once, whichever reader makes the bookmark and reads from it; among many
    rows, it comes with its bucket.
    """
    monkeypatch.setattr(columnar_source, "FEW_ROWS", 0)
    database = mariadb.new_database()
    config = login(
        database,
        schemas=[database.name],
        incremental_tables=["t:id:integer"],
        safety_lag_rows=2 * rows,
    )
    if batches:
        config["batch_config"] = batch_config(tmp_path / "batches")
    values = (
        "seq / 7, cast(seq / 7 as decimal(12, 4)), concat('r \"', seq), '2026-01-01' + "
        "interval seq second, null"
    )
    insert = f"insert into t select seq, {values} from "
    columns = "a double, b decimal(12, 4), c text, d datetime(6), e blob"
    run(
        database,
        f"create table t (id int primary key, {columns})",
        f"{insert} seq_1_to_{rows} where seq <> 7",
    )

    def arrived(reader: str, state: JSON | None) -> tuple[Counter[int], JSON]:
        sent = run_tap(config | {"reader": reader}, state).succeeded()
        found = Counter(
            each["record"]["id"] for each in unbatched(sent.messages) if each["type"] == "RECORD"
        )
        return found, sent.final["value"]

    writer, follower = readers
    came, state = arrived(writer, None)
    assert came == Counter(set(range(1, rows + 1)) - {7})
    came, state = arrived(follower, state)
    assert not came
    run(database, f"{insert} seq_7_to_7", f"{insert} seq_{rows + 1}_to_{rows + 3}")
    came, state = arrived(writer, state)
    assert {7, rows + 1, rows + 2, rows + 3} <= set(came)
    assert came.total() == 4 or (rows > MAX_WINDOW_HASHES and came.total() < rows / 50)
    assert came.most_common(1)[0][1] == 1
    came, state = arrived(follower, state)
    assert not came
