"""`spark-lake verify` in the process of a test, over what a `RoundTrip` loaded from a new
database.
"""

from __future__ import annotations

import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.round_trip import PIPELINE, RoundTrip
from singer_spark.state.store import BucketState
from singer_spark.store.storage import Storage
from tap.opened import login
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.layout import Layout
from target_spark_lake.ops.verification import TapSide, repair, verify
from target_spark_lake.ops.verify_report import VerifyReport

ORDERS = """
create table orders (
  region text collate "C", id integer, seen timestamptz, amount numeric(12,2), exact numeric,
    share double precision,
  small real, wall timestamp, day date, data bytea, doc jsonb, tags text[], numbers integer[],
    ok boolean, gone integer,
  primary key (region, id)
);
insert into orders select
  case n % 5 when 0 then '' when 1 then E'a''b"\\\\c`d' when 2 then E'line\\nbreak\\t' when 3
    then 'ключ 键 🔑'
    else ' x ' end,
  n, '2025-01-01T00:00:00.000001Z'::timestamptz + n * interval '1 minute', n / 7.0, n / 7.0,
  case n % 4 when 0 then 'NaN' when 1 then '-0'::float8 when 2 then '-Infinity' else n / 7.0 end,
    n / 7.0,
  '0001-01-01 00:00:00.000001'::timestamp + n * interval '100 days', date '9999-12-31' - n,
  case when n % 3 = 0 then null else decode(md5(n::text), 'hex') end, jsonb_build_object('n', n,
    'null', null),
  array['a', null, n::text], array[n, null], n % 2 = 0, null
from generate_series(1, 40) n
"""


def postgresql_trip(
    postgresql: Any, folder: Path, *specs: str, **tap: Any
) -> tuple[RoundTrip, Any]:
    database = postgresql.new_database()
    config = login(database, incremental_tables=list(specs), **{"slice_rows": 15, **tap})
    trip = RoundTrip(folder / "lake", config)
    return trip, psycopg.connect(database.dsn, autocommit=True)


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with closing(sqlite3.connect(tmp_path / "source.db", isolation_level=None)) as connection:
        yield connection


def sqlite_trip(folder: Path, *specs: str, **tap: Any) -> RoundTrip:
    config = {
        "jdbc_url": f"jdbc:sqlite:{folder}/source.db",
        "incremental_tables": list(specs),
        **tap,
    }
    return RoundTrip(folder / "lake", config)


def report(trip: RoundTrip, *, stream: str | None = None, **target: Any) -> VerifyReport:
    """What verify finds."""
    config = {"bucket": str(trip.folder), "pipeline": PIPELINE, **target}
    settings, storage, layout = (
        TargetSettings.from_config(config),
        Storage(str(trip.folder)),
        Layout(PIPELINE),
    )
    store = BucketState(storage, layout.state)
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        tap = TapSide(trip.config)
        return verify(storage, layout, store, settings, config, tap, stream=stream)


def verified(trip: RoundTrip, stream: str, **options: Any) -> dict[str, Any]:
    """What verify finds of one stream, as `--json` has it."""
    found: dict[str, Any] = report(trip, stream=stream, **options).to_json()["streams"][stream]
    return found


def differences(found: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The keys that are missing, extra and different."""
    return found["missing"], found["extra"], found["different"]


AGREE: tuple[list[Any], list[Any], list[Any]] = ([], [], [])


def repaired(trip: RoundTrip, **target: Any) -> VerifyReport:
    """What verify finds, and brings from the source into the lake."""
    config = {"bucket": str(trip.folder), "pipeline": PIPELINE, **target}
    settings, storage, layout = (
        TargetSettings.from_config(config),
        Storage(str(trip.folder)),
        Layout(PIPELINE),
    )
    run = open_run(storage, layout, store=BucketState(storage, layout.state), command="repair")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        return repair(run, settings, config, TapSide(trip.config))
