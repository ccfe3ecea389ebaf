"""Dialects: quoting, literals and the forms of text, as data says them."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.core.sql_type import SqlType
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.dialects import Dialect, dialect_of, known_dialects, text_form
from tap_spark_jdbc.dialects.tables import Key, Table
from tap_spark_jdbc.dialects.type_rules import KNOWN_TYPES, spark_string, text_cast

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
DIALECTS = [*known_dialects().values(), dialect_of("jdbc:acme:x")]


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


def key_of(dialect: Dialect, native_type: str, kind: KeyType | None = None) -> Key:
    column = dialect.column('k"ey', native_type, nullable=True)
    return Key.of(Table(None, "t", (column,)), column, kind, text_moments=dialect.text_moments)


@given(name=TEXT, value=TEXT)
def test_names_and_values_reach_database_unchanged(name: str, value: str) -> None:
    sqlite = known_dialects()["sqlite"]
    table = sqlite.table(Table(None, f"t{name}", ()))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"create table {table} ({sqlite.quote(name)} text)")
        connection.execute(f"insert into {table} values ({sqlite.string(value)})")
        found = connection.execute(f"select * from {table}")
        assert [column[0] for column in found.description] == [name]
        assert found.fetchall() == [(value,)]


def test_nul_character_is_refused(dialect: Dialect) -> None:
    with pytest.raises(ConfigurationError, match=r"TAP-030 .*NUL"):
        dialect.quote("a\0b")
    with pytest.raises(ConfigurationError, match=r"TAP-030 .*NUL"):
        dialect.string("a\0b")


def test_every_key_type_has_literal(dialect: Dialect) -> None:
    assert set(dialect.literals) == set(KeyType)


@pytest.mark.parametrize(
    ("native_type", "raw", "literal"),
    [
        ("bigint", "-5", "(-5)"),
        ("numeric", "1.50", "CAST(1.5 AS numeric)"),
        ("date", "2025-01-20", "DATE '2025-01-20'"),
        (
            "timestamp without time zone",
            "2025-01-20 15:30:00.5",
            "TIMESTAMP '2025-01-20 15:30:00.500000'",
        ),
        (
            "timestamp with time zone",
            "2025-01-20 15:30:00.5+02",
            "TIMESTAMP WITH TIME ZONE '2025-01-20 13:30:00.500000+00:00'",
        ),
        ("text", "it's", "'it''s'"),
        (
            "uuid",
            "550e8400-e29b-41d4-a716-446655440000",
            "CAST('550e8400-e29b-41d4-a716-446655440000' AS uuid)",
        ),
        ("bytea", "\\x00ff", "CAST(E'\\\\x00ff' AS bytea)"),
    ],
)
def test_postgresql_literals(native_type: str, raw: str, literal: str) -> None:
    dialect = known_dialects()["postgresql"]
    key = key_of(dialect, native_type)
    assert dialect.literal(key, key.parse(raw)) == literal


@pytest.mark.parametrize(
    ("native_type", "sql_type", "select"),
    [
        ("bpchar", "TEXT", '"k"'),
        ("interval", "INTERVAL", 'CAST("k" AS text)'),
        ("interval day to second(3)", "INTERVAL", 'CAST("k" AS text)'),
        ("interval(0)", "INTERVAL", 'CAST("k" AS text)'),
        # An enum, whose values may be a key.
        (
            "interval_kind",
            "TEXT",
            'CASE WHEN "k" IS DISTINCT FROM NULL THEN pg_catalog.concat("k") END',
        ),
    ],
)
def test_postgresql_types_match_by_whole_name(native_type: str, sql_type: str, select: str) -> None:
    dialect = known_dialects()["postgresql"]
    column = dialect.column("k", native_type, nullable=True)
    assert (str(column.sql_type), dialect.select(column)) == (sql_type, select)


@pytest.mark.parametrize(
    ("native_type", "sql_type"),
    [
        ("datetime /* mariadb-5.3 */", "TIMESTAMP"),
        ("datetime(6) /* mariadb-5.3 */", "TIMESTAMP"),
        ("timestamp /* 5.5 binary format */", "TIMESTAMP WITH TIME ZONE"),
        ("time(3) /* mariadb-5.3 */", "TIME"),
    ],
)
def test_mariadb_s_times_of_older_versions_are_times(native_type: str, sql_type: str) -> None:
    column = known_dialects()["mariadb"].column("k", native_type, nullable=True)
    assert (str(column.sql_type), column.reading.problem) == (sql_type, None)


def test_text_columns_are_compared_as_text() -> None:
    """A text column is compared with text, whatever its key type."""
    dialect = known_dialects()["postgresql"]
    key = key_of(dialect, "text", KeyType.DATETIME)
    assert key.textual
    assert (
        dialect.literal(key, key.parse("2025-01-20T15:30:00"), like="2025-01-19T00:00:00")
        == "'2025-01-20T15:30'"
    )
    assert (
        dialect.literal(key_of(dialect, "text", KeyType.UUID), KeyValue(KeyType.UUID, "ab"))
        == "'ab'"
    )


def test_text_key_literal_keeps_database_text() -> None:
    dialect = known_dialects()["sqlite"]
    key = key_of(dialect, "DATETIME")
    value = key.parse("2025-01-20 15:30:00")
    assert (
        dialect.literal(key, value, raw="2025-01-20T15:30:00.000Z") == "'2025-01-20T15:30:00.000Z'"
    )


@given(moment=st.datetimes(), separator=st.sampled_from("T "), digits=st.sampled_from([0, 3, 6]))
def test_text_form_never_exceeds_other_spellings(moment, separator, digits) -> None:
    """The text form of a timestamp is never above another spelling of it."""
    value = KeyValue.parse(str(moment), KeyType.DATETIME)
    exact = moment.isoformat(
        sep=separator, timespec={0: "seconds", 3: "milliseconds", 6: "microseconds"}[digits]
    )
    if KeyValue.parse(exact, KeyType.DATETIME) == value:
        assert text_form(value, like=exact) <= exact
        assert text_form(value) <= exact


def test_paging(dialect: Dialect) -> None:
    clause = dialect.limited(7, 100)
    assert "7" in clause
    assert "100" in clause


def test_urls_find_their_dialect() -> None:
    assert dialect_of("jdbc:postgresql://localhost/shop").name == "postgresql"
    assert dialect_of("jdbc:sqlite:shop.db").name == "sqlite"
    assert dialect_of("jdbc:derby:shop").name == "derby"
    assert dialect_of("jdbc:acme://localhost").driver == ""


def test_every_override_type_has_text_cast() -> None:
    for name in KNOWN_TYPES:
        cast = text_cast(SqlType(name, 10, 2) if name == "DECIMAL" else SqlType(name))
        assert "{c}" in cast
        assert cast == "{c}" or "{complaint}" in cast
    with pytest.raises(ValueError, match="can't be read as VARBINARY"):
        text_cast(SqlType("VARBINARY"))


def test_name_cannot_become_template_slot(dialect: Dialect) -> None:
    column = dialect.column("{c}{complaint}'\\", "date", nullable=True)
    name = dialect.quote(column.name)
    assert dialect.select(column).count(name) == column.reading.select.count("{c}")
    assert "{complaint}" not in column.reading.select
    assert "{complaint}" not in column.reading.becomes


def test_string_literals_of_spark() -> None:
    assert spark_string("it's a \\ slash") == r"'it\'s a \\ slash'"


def test_no_statement_needs_md5_or_sha1(dialect: Dialect) -> None:
    """MySQL 9.6 and later, and servers under FIPS, have neither."""
    assert not re.search(r"(?i)\b(md5|sha1|sha)\s*\(", repr(dialect))
    assert dialect.checksums is None or "{t}" in dialect.checksums.sha256
