"""Every type of MariaDB and MySQL at its extremes, from the server to Parquet: what pymysql reads,
DuckDB finds.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pymysql
import pytest
from pymysql.constants import FIELD_TYPE

from end_to_end.round_trip import RoundTrip
from end_to_end.summed_values import texts_of_both
from singer_spark.errors import SourceError
from tap.batch_output import batch_config
from tap.dialects.mariadb_extremes import (
    SHAPES,
    VALUES,
    VALUES_OF_MYSQL,
    VECTORS,
    column,
    make_matrix,
)
from tap.opened import connected, discovered, login, read
from tap_spark_jdbc.dialects import known_dialects, overridden
from tap_spark_jdbc.plan.queries import described_columns
from tap_spark_jdbc.supply.jdbc_reader import JdbcReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.mariadb import MariaDatabase

PAGE = Path(__file__).parents[3] / "docs/mysql.md"
REFUSED = {
    "date": ["0000-00-00", "2024-00-15", "2024-02-31", "0000-01-01"],
    "datetime(6)": ["0000-00-00 00:00:00", "2024-02-31 10:00:00", "0000-01-01 00:00:00"],
    "timestamp": ["0000-00-00 00:00:00"],
}


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def database(request: pytest.FixtureRequest) -> MariaDatabase:
    return request.getfixturevalue(request.param).new_database()


@pytest.fixture(scope="module", params=["jdbc", "arrow", "arrow in batches"])
def how(request: pytest.FixtureRequest) -> str:
    """The reader, and whether rows come in batches."""
    return request.param


@pytest.fixture(scope="module")
def types(database: MariaDatabase, how: str) -> dict[str, tuple[list[Any], Any]]:
    """The types of the server that the reader reads, as `VALUES`."""
    found = VALUES_OF_MYSQL if database.is_mysql else VALUES
    return {
        name: each for name, each in found.items() if how == "jdbc" or not name.startswith("vector")
    }


@pytest.fixture(scope="module")
def matrix(types, database: MariaDatabase) -> list[dict[str, Any]]:
    """What pymysql reads of table `matrix`."""
    make_matrix(database, types)
    plain = {
        kind: read for kind, read in pymysql.converters.decoders.items() if kind != FIELD_TYPE.TIME
    }
    with pymysql.connect(
        host=database.host, port=database.port, user=database.user, password=database.password,
        database=database.name, charset="utf8mb4", conv=plain | pymysql.converters.encoders,
        sql_mode="", init_command="SET time_zone = '+00:00'",
        cursorclass=pymysql.cursors.DictCursor,
    ) as connection, connection.cursor() as cursor:  # fmt: skip
        names = ["id", "n", "virtual_sum", "stored_text", *(column(n) for n in range(len(types)))]
        # pymysql does not know it.
        vectors = {column(n) for n, each in enumerate(types) if each.startswith("vector")}
        shown = [f"cast({each} as binary) as {each}" if each in vectors else each for each in names]
        cursor.execute(f"select {', '.join(shown)} from matrix order by id")
        return list(cursor.fetchall())


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession,
    database: MariaDatabase,
    matrix: list[dict[str, Any]],
    tmp_path_factory,
    how: str,
) -> RoundTrip:
    """The table as tap and target have loaded it, by each reader."""
    folder, (reader, *batches) = tmp_path_factory.mktemp("mariadb"), how.split()
    config = login(
        database,
        tables=["matrix"],
        schemas=[database.name],
        spark={"master": "local[2]"},
        reader=reader,
    )
    if batches:
        config["batch_config"] = batch_config(folder / "batches")
    trip = RoundTrip(folder, config)
    with pytest.MonkeyPatch.context() as patched:
        if reader == "arrow":
            patched.delattr(JdbcReader, "read")  # no row comes over JDBC
        trip.run()
    return trip


def test_checksum_text_matches_for_every_type(
    lake: RoundTrip, types, database: MariaDatabase
) -> None:
    """Every type at its extremes has the same checksum text in the source and in the lake."""
    texts = texts_of_both(lake, f"{database.name}-matrix")
    assert texts.lake == texts.source
    assert {name: len(set(each)) for name, each in texts.lake.items()} == texts.distinct
    floating = {
        column(number)
        for number, kind in enumerate(types)
        if kind.startswith(("float", "double", "vector"))
    }
    assert texts.unsummed == floating


def _truth(values: list[Any], in_lake: Any, native_type: str, value: Any, row: int) -> Any:
    if value is None:
        return None
    if native_type == "float":
        # MariaDB shows six digits of it, so the truth is what was put in.
        return struct.unpack("f", struct.pack("f", values[row]))[0]
    if native_type == "geometry":
        return values[row]
    return in_lake(value)


def test_every_value_is_equal_in_parquet(
    lake: RoundTrip, types, database: MariaDatabase, matrix
) -> None:
    stream = f"{database.name}-matrix"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        files = f"{lake.folder}/raw/{stream}/**/*.parquet"
        found = (
            connection.sql(f"select * from read_parquet('{files}') order by id")
            .to_arrow_table()
            .to_pylist()
        )
    assert len(found) == len(matrix)
    wrong = []
    for number, native_type in enumerate(types):
        for row, (mine, theirs) in enumerate(zip(found, matrix, strict=True)):
            truth, value = (
                _truth(*types[native_type], native_type, theirs[column(number)], row),
                mine[column(number)],
            )
            if native_type.startswith("timestamp") and value is not None:
                assert value.utcoffset().total_seconds() == 0
                value = value.replace(tzinfo=None)
            if native_type.startswith("float"):
                truth, value = (
                    each and struct.unpack("f", struct.pack("f", each))[0]
                    for each in (truth, value)
                )
            # The text of a number distinguishes -0.0 from 0.0.
            if (value, repr(value)) != (truth, repr(truth)):
                wrong.append((native_type, value, truth))
        assert [row[column(number)] for row in found].count(None) == len(found) - len(
            types[native_type][0]
        )
    assert wrong == []
    assert [(row["virtual_sum"], row["stored_text"]) for row in found] == [
        (row["n"] + 1, f"n{row['n']}") for row in matrix
    ]


def test_geometry_text_is_exact(types, database: MariaDatabase, matrix) -> None:
    dialect = known_dialects()["mariadb"]
    name = column(list(types).index("geometry"))
    shown = dialect.column(name, "geometry", nullable=True)
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            f"select {dialect.select(shown)}, ST_AsWKB({name}) from matrix order by id limit "
            f"{len(SHAPES)}"
        )
        for text, shape in cursor.fetchall():
            cursor.execute("select ST_AsWKB(ST_GeomFromText(%s))", [text.rpartition(";")[2]])
            assert cursor.fetchone() == (shape,)


def test_types_page_matches_mariadb_types(
    lake: RoundTrip, types, database: MariaDatabase, matrix
) -> None:
    rows = re.findall(
        r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    with duckdb.connect() as connection:
        files = f"{lake.folder}/raw/{database.name}-matrix/**/*.parquet"
        found = connection.sql(f"describe select * from read_parquet('{files}')").fetchall()
    stored = {name: kind for name, kind, *_ in found}
    dialect = known_dialects()["mariadb"]
    listed = {
        re.sub(r"^(enum|set)\(.*", r"\1(…)", native_type): (
            str(dialect.column("v", _catalog_type(native_type), nullable=True).sql_type),
            stored[column(n)],
        )
        for n, native_type in enumerate(types)
    }
    of_other = {*VALUES, *VALUES_OF_MYSQL} - {*types}
    assert {
        native: (sql_type, kind) for native, sql_type, kind in rows if native not in of_other
    } == listed


def test_query_columns_have_table_types(
    spark: SparkSession, types, database: MariaDatabase, matrix
) -> None:
    """The columns of a MariaDB query have the types of the table's columns."""
    dialect = known_dialects()["mariadb"]
    columns = [column(number) for number, each in enumerate(types) if each != "vector(3)"]
    with connected(spark, login(database)) as connection:
        if len(columns) < len(types):
            vectors = column(list(types).index("vector(3)"))
            with pytest.raises(SourceError, match=r"select HEX\(column\)"):
                described_columns(connection, dialect, f"select {vectors} from matrix")
        found = described_columns(
            connection, dialect, f"select {', '.join(columns)} from matrix -- all"
        )
    # The driver says CHAR of what it has no name for.
    words = {
        "enum": "CHAR(4)",
        "set": "CHAR(5)",
        "inet4": "CHAR(15)",
        "inet6": "CHAR(39)",
        "json": "JSON",
    }
    listed = [
        words.get(each.partition("(")[0], str(dialect.column("v", each, nullable=True).sql_type))
        for each in types
        if each != "vector(3)"
    ]
    assert [(each.name, str(each.sql_type)) for each in found] == list(
        zip(columns, listed, strict=True)
    )
    assert [each.name for each in found if each.reading.problem] == []


def _catalog_type(native_type: str) -> str:
    """MariaDB's catalog says longtext of json, and nothing of the character set."""
    return {"json": "longtext"}.get(native_type, native_type)


@pytest.mark.parametrize("native_type", REFUSED)
def test_invalid_date_is_an_error_with_a_way_out(
    spark: SparkSession, database: MariaDatabase, native_type: str
) -> None:
    """A date that no calendar has is a clear error that suggests reading it as text."""
    config = login(database, tables=["refused"], schemas=[database.name])
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("set sql_mode = 'ALLOW_INVALID_DATES'")
        for value in REFUSED[native_type]:
            cursor.execute("drop table if exists refused")
            cursor.execute(f"create table refused (id int primary key, v {native_type} null)")
            cursor.execute("insert into refused values (1, %s)", [value])
            found = discovered(spark, config)[f"{database.name}-refused"]
            named = found.column("v")
            with pytest.raises(
                Exception, match=rf"column v \({re.escape(native_type)}\) .*type_overrides.*{value}"
            ):
                read(spark, config, found, named)
            cursor.execute("select cast(v as char) from refused")
            assert read(spark, config, found, overridden(named, "text")) == list(cursor.fetchall())


def test_overrides_of_non_text_types_are_exact(
    spark: SparkSession, types, database: MariaDatabase, matrix
) -> None:
    config = login(database, tables=["matrix"], schemas=[database.name])
    found = discovered(spark, config)[f"{database.name}-matrix"]
    named = ["binary(4)", "bit(12)", "bit(1)", "double", "tinyint(1)"]
    columns = [found.column(column(list(types).index(each))) for each in named]
    wanted = [overridden(each, "text") for each in columns[:4]] + [
        overridden(columns[4], "smallint")
    ]
    rows = read(spark, config, found, *wanted, order="id")
    assert rows[0] == ("61620000", "000000000000", "0", "1.7976931348623157e308", 0)
    assert rows[1] == ("5C2700FF", "000000000101", "1", "-2.2250738585072014e-308", 1)
    assert rows[-1] == (None,) * 5
    latin = found.column(column(list(types).index("varchar(40) character set latin1")))
    assert read(spark, config, found, overridden(latin, "binary"), order="id")[0] == (
        "Ä ß é".encode("latin1"),
    )
    if "vector(3)" in types:
        vector = found.column(column(list(types).index("vector(3)")))
        for kind, form in (("binary", bytes), ("text", lambda each: each.hex().upper())):
            rows = read(spark, config, found, overridden(vector, kind), order="id")
            assert [each for (each,) in rows][: len(VECTORS)] == [
                form(each) for each in types["vector(3)"][0]
            ]
