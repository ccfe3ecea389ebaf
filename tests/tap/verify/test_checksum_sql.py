"""Checksums as a database sums them up are those that Python makes of the same texts."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

import pytest

from singer_spark.compared_source import Summing
from tap.opened import filled
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.tables import Table
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_plan import StreamPlan
from tap_spark_jdbc.plan.stream_sql import StreamSql
from tap_spark_jdbc.source_view import ChecksumSql

TYPES = {"id": "bigint", "note": "text", "ok": "boolean"}
SCRIPT = """
create table t (id bigint primary key, note text, ok boolean);
insert into t select n, case n % 3 when 0 then '' when 1 then 'é|' || n end, n % 2 = 0
  from generate_series(1, 200) n
"""


def number(text: str, start: int, digits: int) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[start - 1 : start - 1 + digits], 16)


@pytest.mark.parametrize("keys", [("id",), ()])
def test_postgresql_sums_match_python_sums(postgresql: Any, keys: tuple[str, ...]) -> None:
    dialect = known_dialects()["postgresql"]
    columns = tuple(dialect.column(name, kind, nullable=True) for name, kind in TYPES.items())
    sql = StreamSql(
        dialect, StreamPlan(Table("public", "t", columns), "public-t", columns, "FULL_TABLE")
    )
    made = ChecksumSql(sql, Summing(tuple(TYPES), keys, 16))
    expected: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for n in range(1, 201):
        note = "0:" if n % 3 == 0 else f"{len(str(n)) + 2}:é|{n}" if n % 3 == 1 else "N"
        row = f"{n}|{note}|{int(n % 2 == 0)}"
        bucket = number(str(n) if keys else row, 1, 4) % 16
        for place, part in enumerate((1, number(row, 1, 15), number(row, 17, 15))):
            expected[bucket][place] += part
    with filled(postgresql, SCRIPT) as (_, connection):
        found = connection.execute(made.sums(Slice())).fetchall()
        assert {
            bucket: [int(each) for each in sums] for bucket, newer, *sums in found if not newer
        } == expected
        (some,) = connection.execute(
            f"select count(*) from t where {made.condition([1, 2])}"
        ).fetchone() or (0,)
        assert some == expected[1][0] + expected[2][0] > 0
