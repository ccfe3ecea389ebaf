"""Nothing that a pipeline writes or prints has an unmasked value of a masked column; verify
compares masked values.
"""

from __future__ import annotations

import hmac
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest

from end_to_end.round_trip import RoundTrip
from end_to_end.verifying import AGREE, differences, report, verified
from tap.in_process import tap_of
from tap_spark_jdbc.dry_run import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "planted-mask-key"
# Each of its values says `planted`, or has these digits.
PEOPLE = """
create table people (id bigint primary key, at timestamp, email text, card varchar(20),
  salary numeric(14,2),
  born date);
create index on people (at);
insert into people select 7700110000 + n, timestamp '2026-01-01' + (n / 5) * interval '1 s',
  'planted' || n || '@x',
  '77001122' || n || '9999', 7700113300 + n, null from generate_series(1, 40) n;
"""
MASKS = {"id": "hash", "email": "hash", "card": "last4", "salary": "redact", "born": "null"}
PLANTED = ("planted", "77001")


def written(folder: Path) -> str:
    """All that lies below a folder, Parquet's values and statistics among it."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            found.append(f"{path} {path.read_bytes()!r}")
            if path.suffix == ".parquet":
                file = pq.ParquetFile(path)
                groups = range(file.metadata.num_row_groups)
                found.append(
                    f"{file.read().to_pylist()} "
                    f"{[file.metadata.row_group(each).to_dict() for each in groups]}"
                )
    return "\n".join(found)


@pytest.mark.parametrize(("reader", "way"), [("arrow", "lines"), ("jdbc", "batches")])
def test_masked_values_leave_no_trace(
    spark: SparkSession,
    postgresql: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    reader: str,
    way: str,
) -> None:
    """Nothing that a run leaves holds a masked value, and verify compares masked values."""
    caplog.set_level(logging.DEBUG)
    database = postgresql.new_database()
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    options = {
        "public-people": {
            "mask": MASKS,
            "replication_key": "at",
            "load_method": "upsert",
            "detect_deletes": True,
        }
    }
    config: dict[str, Any] = {
        **login,
        "stream_options": options,
        "mask_key": KEY,
        "slice_rows": 10,
        "reader": reader,
    }
    lake = tmp_path / "lake"
    if way == "batches":
        storage = {"root": str(lake / ".dataspoc/staging/batches")}
        config["batch_config"] = {"encoding": {"format": "parquet"}, "storage": storage}
    trip = RoundTrip(lake, config)
    with psycopg.connect(database.dsn, autocommit=True) as source:
        source.execute(PEOPLE)
        lines = trip.run(with_state=True)
        source.execute("update people set email = 'planted-new' where id = 7700110040")
        source.execute("delete from people where id = 7700110001")
        lines += trip.run(with_state=True, hard_delete=True)
        agreed = verified(trip, "public-people")
        assert (differences(agreed), agreed["source_rows"], agreed["lake_rows"]) == (AGREE, 39, 39)
        source.execute("delete from people where id = 7700110002")
        found = report(trip).to_json()
        hashed = hmac.digest(KEY.encode(), b"7700110002", "sha256").hex()
        assert found["streams"]["public-people"]["extra"] == [hashed]
    tap = tap_of(config)
    try:
        dry = describe(tap, verbose=True)
    finally:
        tap.progress.stop()
        tap.database.close()
    everything = "\n".join([written(lake), lines.decode(), json.dumps(found), dry, caplog.text])
    assert hashed in everything
    assert [planted for planted in PLANTED if planted in everything] == []
