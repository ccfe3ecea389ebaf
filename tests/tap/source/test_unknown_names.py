"""Names that no table has, and a run without any stream: errors that name all of them, with the
nearest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError, SourceError
from tap.in_process import run_tap, tap_of
from tap.plan.planned import COLUMNS, plans, table
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.standard import STANDARD
from tap_spark_jdbc.source.discovery import tables_by_driver
from tap_spark_jdbc.source.discovery_bounds import Bounds, unknown_names

SCRIPT = (
    "create table orders (id integer primary key); create table customers (id integer primary key);"
)
FOUND = [table(schema="public", name="orders"), table(schema="crm", name="people")]


def reported(found: list[Any], **settings: Any) -> list[str]:
    given = TapSettings.from_config({"jdbc_url": "jdbc:postgresql://h/d", **settings})

    def within(schemas: tuple[str, ...]) -> list[Any]:
        return [each for each in FOUND if not schemas or each.schema in schemas]

    return unknown_names(found, given, within)


def test_unknown_names_suggest_nearest_match(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unknown plain name is reported; a pattern that fits no table is only logged."""
    assert reported(FOUND, tables=["public.ordres", "peple", "ORDERS", "crm.*"]) == [
        "tables: there is no table 'public.ordres' (did you mean 'public.orders'?)",
        "tables: there is no table 'peple' (did you mean 'people'?)",
    ]
    assert reported([], schemas=["publik", "crm"], tables=["nothing*"]) == [
        "schemas: there is no table in a schema 'publik' (did you mean 'public'?)"
    ]
    assert caplog.messages == ["setting tables: 'nothing*' fits no table"]


def test_schema_emptied_by_tables_is_no_wrong_name() -> None:
    """A schema of which the tables setting leaves nothing is not a wrong name."""
    assert reported(FOUND[:1], schemas=["public", "crm"], tables=["orders"]) == []


def test_all_wrong_config_names_are_reported_at_once(sqlite: Any, spark: Any) -> None:
    del spark  # it runs already
    wrong = {
        "tables": ["ordres", "customers"],
        "incremental_tables": ["custmers:id:integer"],
        "stream_options": {"costumers": {}},
    }
    tap, _ = sqlite(SCRIPT, **wrong)
    for flags in ([], ["--dry-run"]):
        last = tap.run_here(*flags).errors.strip().splitlines()[-1]
        assert "tables: there is no table 'ordres' (did you mean 'orders'?)" in last
        assert (
            "incremental_tables: there is no table 'custmers' (did you mean 'customers'?)" in last
        )
        assert "stream_options: there is no stream 'costumers' (did you mean 'customers'?)" in last
    assert "there is no table 'ordres'" in tap.run_here("--discover").errors


@pytest.mark.parametrize(
    ("settings", "catalog", "why"),
    [
        ({"tables": ["nothing*"]}, None, "no table fits `schemas` and `tables`"),
        ({}, {"streams": []}, "the catalog selects none"),
        (
            {},
            {"streams": [{"tap_stream_id": "orders", "selected": False}]},
            "the catalog selects none",
        ),
    ],
)
@pytest.mark.usefixtures("spark")
def test_run_without_streams_is_refused(sqlite: Any, settings: Any, catalog: Any, why: str) -> None:
    tap, _ = sqlite(SCRIPT, **settings)
    with pytest.raises(ConfigurationError, match=f"TAP-021 .*{why}"):
        tap_of(tap.config, catalog=catalog).plans()


@pytest.mark.usefixtures("spark")
def test_empty_database_has_empty_catalog(sqlite: Any) -> None:
    """A run on a database without any readable table fails."""
    tap, _ = sqlite("")
    assert tap_of(tap.config).catalog_dict == {"streams": []}
    assert "this user can read no table" in run_tap(tap.config).failed()


def test_unmatched_stream_options_pattern_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plans(table(columns=COLUMNS), stream_options={"nothing-*": {"where": "1=1"}})
    assert "stream_options: 'nothing-*' fits no stream" in caplog.messages


class Described:
    """A driver with these tables, of which it describes the columns of some."""

    holds = True
    listed_at_most: int | None = None

    def __init__(
        self, tables: dict[tuple[str, str], list[str]], asked: list[Any] | None = None
    ) -> None:
        self.tables, self.asked = tables, [] if asked is None else asked

    def identifier_quote(self) -> str:
        return '"'

    def search_pattern(self, name: str) -> str:
        return name

    def rows(self, sql: str) -> list[Any]:
        assert "oracle_maintained" in sql
        return [("SYS",), ("ODD[1]",)]

    def metadata(self, method: str, *arguments: Any) -> list[dict[str, Any]]:
        self.asked.append((method, arguments))
        if method == "getSchemas":
            return [
                {"TABLE_SCHEM": schema} for schema in sorted({schema for schema, _ in self.tables})
            ]
        if method == "getTables":
            rows = [
                {"TABLE_SCHEM": schema, "TABLE_NAME": name, "TABLE_TYPE": "TABLE"}
                for schema, name in self.tables
                if arguments[1] in (None, schema)
            ]
            return rows[: self.listed_at_most]
        if method != "getColumns":
            return []
        _, schema, name, _ = arguments
        return [
            {
                "TABLE_SCHEM": each[0],
                "TABLE_NAME": each[1],
                "COLUMN_NAME": column,
                "ORDINAL_POSITION": "1",
                "TYPE_NAME": "INTEGER",
                "COLUMN_SIZE": "10",
                "DECIMAL_DIGITS": "0",
                "NULLABLE": "1",
            }
            for each, columns in self.tables.items()
            for column in columns
            if schema in (None, each[0]) and name in ("%", each[1])
        ]


def found_by(driver: Described, dialect: Any, bounds: Bounds) -> list[str]:
    return [each.qualified_name for each in tables_by_driver(driver, dialect, bounds)]


def test_table_undescribed_by_driver_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is only logged when discovered, but is an error when a setting lists it."""
    driver = Described({("S", "KNOWN"): ["ID"], ("S", "DARK"): []})
    assert found_by(driver, STANDARD, Bounds()) == ["S.KNOWN"]
    (line,) = caplog.messages
    assert "the driver describes no column of S.DARK" in line
    with pytest.raises(SourceError, match=r"TAP-003 .*DARK"):
        found_by(driver, STANDARD, Bounds(tables=("known", "s.dark")))


@pytest.mark.parametrize(
    ("name", "kept", "left_out"),
    [
        ("sqlserver", ["db_sales", "db_owner", "dbo", "system"], ["sys", "INFORMATION_SCHEMA"]),
        ("db2", ["SYSTEMS", "SYSOPS"], ["SYSIBM", "SYSCAT", "SYSSTAT", "SYSTOOLS", "NULLID"]),
        ("snowflake", ["PUBLIC", "SNOWFLAKE"], ["INFORMATION_SCHEMA"]),
        ("derby", ["APP", "SYSTEMS"], ["SYS", "SYSIBM", "SYSCS_UTIL"]),
        (
            "oracle",
            ["APEX_SHOP", "SYSTEMS", "ODD1"],
            ["SYS", "APEX_240200", "FLOWS_FILES", "ODD[1]"],
        ),
        (
            "standard",
            ["SYSTEMS", "sysops", "pg_data"],
            ["SYS", "INFORMATION_SCHEMA", "pg_catalog", "_SYS_BIC"],
        ),
    ],
)
def test_only_system_schemas_are_left_out(name: str, kept: list[str], left_out: list[str]) -> None:
    dialect = STANDARD if name == "standard" else known_dialects()[name]
    driver = Described({(schema, "T"): ["ID"] for schema in (*kept, *left_out)})
    assert found_by(driver, dialect, Bounds()) == [f"{schema}.T" for schema in kept]
    # Named, they are read.
    assert found_by(driver, dialect, Bounds(schemas=(left_out[0],))) == [f"{left_out[0]}.T"]


def test_many_tables_are_described_by_schema() -> None:
    """Many tables are described schema by schema, and no other schema is queried."""
    asked: list[Any] = []
    driver = Described(
        {("A", f"T{n}"): ["ID"] for n in range(30)} | {("B", f"T{n}"): ["ID"] for n in range(30)},
        asked,
    )
    assert len(found_by(driver, STANDARD, Bounds(schemas=("A",)))) == 30
    assert [each for method, each in asked if method == "getColumns"] == [(None, "A", "%", "%")]


def test_truncated_description_is_split_by_table() -> None:
    """A description that the driver truncates is requested table by table."""
    asked: list[Any] = []
    driver = Described({("A", f"T{n}"): ["ID", "V"] for n in range(30)}, asked)
    dialect = replace(STANDARD, described_at_most=60)
    assert known_dialects()["snowflake"].described_at_most == 10_000
    assert len(found_by(driver, dialect, Bounds())) == 30
    assert len([each for method, each in asked if method == "getColumns"]) == 1 + 30


def test_truncated_table_list_is_split_by_schema(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A schema whose own list is cut is named, for its other tables can't be found."""
    tables = {("A", f"T{n}"): ["ID"] for n in range(8)} | {
        ("B", f"T{n}"): ["ID"] for n in range(12)
    }
    driver = Described(tables)
    driver.listed_at_most = 10
    found = found_by(driver, replace(STANDARD, described_at_most=10), Bounds())
    assert [name for name in found if name.startswith("A.")] == [f"A.T{n}" for n in range(8)]
    assert len(found) == 18
    assert caplog.messages == [
        "schema B: the driver lists 10 tables at most; further ones are not found"
    ]


def test_negative_patterns_exclude_tables(postgres: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Negative patterns exclude tables and schemas, and one that matches nothing is named."""
    script = """
        create table kept (id int primary key); create table audit_log (id int primary key);
        create schema crm; create table crm.people (id int primary key);
    """
    tap, _ = postgres(script, tables=["!audit_*", "!nothing*"])
    assert [each.stream for each in tap_of(tap.config).plans()] == ["crm-people", "public-kept"]
    assert caplog.messages == ["setting tables: '!nothing*' fits no table"]
    for schemas in (["!crm"], ["*", "!crm"], ["*", "!pg_*", "!crm"]):
        caplog.clear()
        config = tap.config | {"schemas": schemas, "tables": ["*", "!audit_*"]}
        assert [each.stream for each in tap_of(config).plans()] == ["public-kept"], schemas
        assert caplog.messages == [], schemas
    named = tap.config | {"schemas": ["pg_catalog"], "tables": ["pg_class"]}
    assert [each.stream for each in tap_of(named).plans()] == ["pg_catalog-pg_class"]
