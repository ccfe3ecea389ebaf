"""MySQL from its first load to a lake that holds what the source holds: increments, deletes, masks,
and verify.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from end_to_end.round_trip import RoundTrip
from tap.opened import login
from tap.source.mariadb_pipes import counted, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from servers.mysql import MySQL


def test_lake_stays_in_sync_with_mysql(spark: SparkSession, mysql: MySQL, tmp_path: Path) -> None:
    """One table has updates and deletes, one is read in full, one has all kinds of text."""
    database = mysql.new_database()
    name = database.name
    run(
        database,
        "create table t (id bigint unsigned primary key, at datetime(6) not null, v varchar(20) "
        "character set latin1, twice bigint unsigned as (id * 2) virtual, hidden int invisible "
        "default 7, key (at)) collate utf8mb4_0900_ai_ci",
        "insert into t (id, at, v) select seq, '2026-01-01' + interval seq second, 'é' from "
        f"{counted(300)}",
        "create table plain (a varchar(9) character set utf8mb3, b varbinary(16), c set('x', 'y'))",
        "insert into plain values ('日本', x'00ff', 'x,y'), (null, null, '')",
    )
    config = login(
        database,
        schemas=[name],
        incremental_tables=[f"{name}.t:at:datetime!upsert"],
        slice_rows=100,
        mask_key="k" * 32,
        stream_options={
            f"{name}-t": {"detect_deletes": True},
            f"{name}-plain": {"mask": {"a": "hash"}},
        },
    )
    trip = RoundTrip(tmp_path / "lake", config)

    def in_lake() -> dict[int, Any]:
        rows = [each for each in trip.table(f"{name}-t").to_pylist() if not each["_sdc_deleted_at"]]
        return {int(each["id"]): (each["v"], each["twice"], each["hidden"]) for each in rows}

    trip.run(with_state=True)
    assert in_lake() == {n: ("é", 2 * n, 7) for n in range(1, 301)}
    masked = {each["a"] for each in trip.table(f"{name}-plain").to_pylist()}
    assert None in masked
    assert "日本" not in masked
    run(
        database,
        "update t set v = 'ß', at = now(6) where id = 7",
        "delete from t where id in (1, 150)",
        "insert into t (id, at, v) values (18446744073709551, now(6), 'new')",
    )
    trip.run(with_state=True)
    expected = {n: ("ß" if n == 7 else "é", 2 * n, 7) for n in range(1, 301) if n not in (1, 150)}
    assert in_lake() == {**expected, 18446744073709551: ("new", 2 * 18446744073709551, 7)}
