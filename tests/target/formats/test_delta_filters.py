"""Readers of a Delta table find by a filter what they find by reading all rows, whatever its log
says of its files.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from deltalake import DeltaTable

from target.delta_lake import DeltaLake
from target.loading import reader, record, schema
from target.table_readers import rows_by_spark

Finding = tuple[str, str, int]

PASSAGE = "é" * 255


def typed(*kinds: str, **more: Any) -> dict[str, Any]:
    return {"type": [*kinds, "null"], **more}


# Of each type: its schema, and the values of each file; numbers of decimals are texts here.
TYPES: dict[str, tuple[dict[str, Any], list[list[Any]]]] = {
    "bigint": (typed("integer"), [[-(1 << 63), None, 0], [(1 << 63) - 1, 1], [None, None]]),
    "int": (
        typed("integer", **{"x-sql-datatype": "INTEGER"}),
        [[-(1 << 31), 0], [(1 << 31) - 1, None]],
    ),
    "boolean": (typed("boolean"), [[True, None], [False], [True, False], [None]]),
    "double": (
        typed("number", **{"x-sql-datatype": "DOUBLE"}),
        [
            [1.5, -2.0, None],
            [0.0, -0.0],
            ["NaN", 3.0],
            ["Infinity", "-Infinity"],
            [5e-324, 1.7e308],
            [None],
            ["NaN"],
        ],
    ),
    "real": (typed("number", **{"x-sql-datatype": "REAL"}), [[1.5, None], ["NaN"], [-0.0, 3.4e38]]),
    "text": (
        typed("string"),
        [
            ["", "a", None],
            ["a" * 256, "z" * 257],
            [PASSAGE + "éb", PASSAGE + "éa"],
            [PASSAGE + "\U0010ffff\U0010ffff"],
            ["\U0010ffff" * 300, "m"],
            [PASSAGE + "\ud7ffx", "\x00"],
            ["x" * 5000, "y"],
            [None],
        ],
    ),
    "decimal": (
        typed("number", **{"x-sql-datatype": "DECIMAL(38,10)"}),
        [
            ["0.0000000001", "-0.0000000001", None],
            ["1234567890123456.0000000000", "1.5"],
            ["9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999"],
            ["123456.7890123456", "0.1234567890"],
            ["0", "100000000000000000000"],
            [None],
        ],
    ),
    "date": (
        typed("string", format="date"),
        [["0001-01-01", None], ["9999-12-31", "1970-01-01"], ["1582-10-10"]],
    ),
    "instant": (
        typed("string", format="date-time"),
        [
            ["0001-01-01T00:00:00Z", None],
            ["2026-02-03T04:05:06.000001Z"],
            ["9999-12-31T23:59:59.999999Z"],
        ],
    ),
    "moment": (
        typed("string", format="date-time", **{"x-sql-datatype": "TIMESTAMP"}),
        [
            ["0001-01-01T00:00:00", None],
            ["2026-02-03T04:05:06.000001"],
            ["9999-12-31T23:59:59.999999"],
        ],
    ),
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def line(stream: str, value: Any) -> bytes:
    is_decimal = stream == "decimal" and value is not None
    text = value if is_decimal else json.dumps(value)
    return f'{{"type":"RECORD","stream":"{stream}","record":{{"v":{text}}}}}\n'.encode()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> DeltaLake:
    lake = DeltaLake(tmp_path_factory.mktemp("filters") / "lake")
    for number in range(max(len(files) for _, files in TYPES.values())):
        messages: list[Any] = []
        for stream, (kind, files) in TYPES.items():
            values = files[number] if number < len(files) else []
            messages += [schema(stream, {"v": kind}), *(line(stream, value) for value in values)]
        lake.load(*messages)
    return lake


def files_of(table: DeltaTable) -> list[str]:
    return [path.removeprefix("file://") for path in table.file_uris()]


def probes_of(stream: str, rows: pa.Table) -> list[pa.Scalar]:
    more = [pa.scalar(each) for each in (PASSAGE, "a" * 300, "b") if stream == "text"]
    return [each for each in rows["v"].unique() if each.is_valid] + more


@pytest.mark.slow
@pytest.mark.parametrize("stream", TYPES)
def test_delta_filters(lake: DeltaLake, stream: str) -> None:
    """A filter on a Delta table finds in each reader the rows that it finds without the log's
    statistics.
    """
    table = lake.table(stream)
    plain = pyarrow.dataset.dataset(files_of(table), schema=pa.schema(table.schema().to_arrow()))
    rows = plain.to_table()
    assert rows.num_rows == sum(map(len, TYPES[stream][1]))
    probes = probes_of(stream, rows)
    assert list(by_arrow(table.to_pyarrow_dataset(), probes)) == list(by_arrow(plain, probes))
    lazy = polars.scan_delta(str(lake.folder / "raw" / stream))
    assert list(by_polars(lazy, probes)) == list(
        by_polars(polars.scan_parquet(files_of(table)), probes)
    )
    assert list(by_duckdb(table.to_pyarrow_dataset(), probes)) == list(by_duckdb(plain, probes))


def by_arrow(data: pyarrow.dataset.Dataset, probes: list[pa.Scalar]) -> Iterator[Finding]:
    field = pc.field("v")
    for probe in probes:
        for name, compare in COMPARISONS.items():
            yield str(probe)[-20:], name, data.count_rows(filter=compare(field, probe))
    yield "", "IS NULL", data.count_rows(filter=field.is_null())
    yield "", "IS NOT NULL", data.count_rows(filter=field.is_valid())


def by_polars(data: polars.LazyFrame, probes: list[pa.Scalar]) -> Iterator[Finding]:
    column, dtype = polars.col("v"), data.collect_schema()["v"]
    for probe in probes:
        literal = polars.lit(
            polars.from_arrow(pa.array([probe.as_py()], probe.type)).cast(dtype)[0], dtype=dtype
        )
        for name, compare in COMPARISONS.items():
            yield str(probe)[-20:], name, data.filter(compare(column, literal)).collect().height
    yield "", "IS NULL", data.filter(column.is_null()).collect().height
    yield "", "IS NOT NULL", data.filter(column.is_not_null()).collect().height


def by_duckdb(
    data: pyarrow.dataset.Dataset | pa.Table, probes: list[pa.Scalar]
) -> Iterator[Finding]:
    with reader() as connection:
        connection.register("found", data)
        for probe in probes:
            for name in COMPARISONS:
                query = f"SELECT count(*) FROM found WHERE v {name} ?"
                yield (
                    str(probe)[-20:],
                    name,
                    connection.execute(query, [probe.as_py()]).fetchone()[0],
                )
        for name in ("IS NULL", "IS NOT NULL"):
            yield (
                "",
                name,
                connection.execute(f"SELECT count(*) FROM found WHERE v {name}").fetchone()[0],
            )


# Spark's conditions on each type at its limits, with values that are in no file.
IN_SPARK = {
    "double": ["= double('NaN')", "< double('NaN')", "= 0D", "> -0D", "IS NULL"],
    "boolean": ["= true", "IS NOT NULL"],
    "text": [
        *(f"{name} {PASSAGE + 'éb'!r}" for name in ("=", ">")),
        f"= {'x' * 5000!r}",
        "= repeat('\U0010ffff', 300)",
    ],
    "decimal": [
        f"{condition} AS DECIMAL(38,10))"
        for condition in ("= CAST('0.0000000001'", "> CAST('1234567890123456'")
    ],
    "instant": [f"{name} TIMESTAMP '2026-02-03 04:05:06.000001Z'" for name in ("=", ">")],
}


@pytest.mark.slow
def test_delta_filters_in_spark(lake: DeltaLake) -> None:
    """A filter on a Delta table finds in Spark the rows that it finds in the files."""
    folder, statements = lake.folder / "raw", []
    for stream, conditions in IN_SPARK.items():
        # Each condition by a scan of its own, which the log's statistics narrow; the files are read
        # once, and whole.
        statements.append(
            " UNION ALL ".join(
                f"SELECT {number} AS n, count(*) AS rows FROM delta.`{folder / stream}` WHERE "
                f"v {condition}"
                for number, condition in enumerate(conditions)
            )
        )
        counts = (f"count_if(v {each}) AS n{number}" for number, each in enumerate(conditions))
        statements.append(f"SELECT {', '.join(counts)} FROM parquet.`{folder / stream}`")
    found = rows_by_spark("target.spark_delta", statements)
    for by_log, by_files in zip(found[::2], found[1::2], strict=True):
        assert {f"n{row['n']}": row["rows"] for row in by_log} == by_files[0]


def test_filters_on_added_column_find_all_rows(tmp_path: Path) -> None:
    """Older files hold NULL in the added column, and their statistics agree."""
    lake = DeltaLake(tmp_path / "lake")
    lake.load(schema("s", {"id": {"type": "integer"}}), *(record("s", id=n) for n in (1, 2)))
    later = {
        "id": {"type": "integer"},
        "text": {"type": ["string", "null"]},
        "part": {"type": ["number", "null"]},
    }
    lake.load(schema("s", later), record("s", id=3, text="x", part=0.5))
    table = DeltaTable(str(lake.folder / "raw/s"))
    assert len(table.file_uris()) == 2
    data = table.to_pyarrow_dataset()
    for name in ("text", "part"):
        assert sorted(data.to_table(filter=pc.field(name).is_null())["id"].to_pylist()) == [1, 2]
        assert data.to_table(filter=pc.field(name).is_valid())["id"].to_pylist() == [3]
    assert data.to_table(filter=pc.field("id") < 3).num_rows == 2
    assert lake.rows("s", "id") == [(1,), (2,), (3,)]
