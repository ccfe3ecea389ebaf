"""What is said of a stream, in the order that counts: catalog, stream_options, incremental_tables,
defaults.
"""

from __future__ import annotations

from typing import Any

import pytest

from singer_spark.core.key_value import KeyType
from singer_spark.errors import ConfigurationError
from tap.plan.planned import (
    COLUMNS,
    POSTGRESQL,
    SQLITE,
    catalog,
    key,
    plan,
    plans,
    settings_of,
    table,
)
from tap_spark_jdbc.dialects.tables import Table
from tap_spark_jdbc.extract.extraction import split_key
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_plan import plan_streams
from tap_spark_jdbc.plan.stream_sql import StreamSql


def silent(made: dict[str, Any]) -> dict[str, Any]:
    """A catalog that says nothing of methods."""
    for stream in made["streams"]:
        for place in (stream, stream["metadata"][0]["metadata"]):
            for name in (
                "replication-method",
                "replication-key",
                "replication_method",
                "replication_key",
            ):
                place.pop(name, None)
    return made


def test_unconfigured_table_is_exported_whole() -> None:
    found = plan()
    assert key(found) == ("FULL_TABLE", None)
    assert (found.key_properties, found.load_method, found.null_policy) == (
        ("id",),
        None,
        "include",
    )
    assert [column.name for column in found.columns] == list(COLUMNS)


def test_catalog_overrides_other_settings() -> None:
    """The catalog overrides options, which override specs, which override defaults."""
    default = {"default_replication_key": "seen_at"}
    spec = {"incremental_tables": ["public.orders:cost:decimal"]}
    options = {"stream_options": {"public-orders": {"replication_key": "id"}}}
    said = {"root": {"replication-method": "INCREMENTAL", "replication-key": "updated_at"}}
    assert key(plan(**default)) == ("INCREMENTAL", "seen_at")
    assert key(plan(**default, **spec)) == ("INCREMENTAL", "cost")
    assert key(plan(**default, **spec, **options)) == ("INCREMENTAL", "id")
    assert key(plan(**default, **spec, **options, catalog=catalog(**said))) == (
        "INCREMENTAL",
        "updated_at",
    )
    whole = catalog(root={"replication-method": "FULL_TABLE"})
    assert key(plan(**default, **spec, **options, catalog=whole)) == ("FULL_TABLE", None)
    assert key(plan(**default, **spec, catalog=silent(catalog()))) == ("INCREMENTAL", "cost")


def test_default_key_applies_where_column_exists() -> None:
    other = table("clients", columns={"id": "bigint", "UPDATED_AT": "date"})
    neither = table("regions", columns={"id": "bigint"})
    found = plans(table(), other, neither, default_replication_key="updated_at")
    assert [key(each) for each in found.values()] == [
        ("INCREMENTAL", "updated_at"),
        ("INCREMENTAL", "UPDATED_AT"),
        ("FULL_TABLE", None),
    ]


def test_excluded_table_is_exported_whole() -> None:
    """An excluded table is exported whole even under a default key."""
    config = {
        "default_replication_key": "updated_at",
        "incremental_tables": ["public.orders:updated_at:timestamp:e"],
    }
    assert key(plan(**config)) == ("FULL_TABLE", None)


def test_spec_gives_start_value_and_load_method() -> None:
    found = plan(
        incremental_tables=["public.orders:updated_at:datetime@2025-01-20 15:30:00!upsert"]
    )
    assert found.start_value is not None
    assert found.start_value.text == "2025-01-20T15:30:00.000000"
    assert found.load_method == "upsert"


def test_later_of_two_table_specs_wins() -> None:
    assert key(plan(incremental_tables=["orders:id:int", "public.orders:cost:decimal"])) == (
        "INCREMENTAL",
        "cost",
    )


def test_spec_names_match_any_case_if_unambiguous() -> None:
    assert key(plan(incremental_tables=["PUBLIC.Orders:Updated_At:timestamp"])) == (
        "INCREMENTAL",
        "updated_at",
    )
    twins = (table("orders"), table("Orders"))
    found = plans(*twins, incremental_tables=["public.Orders:id:integer"])
    assert [key(found[stream]) for stream in ("public-orders", "public-Orders")] == [
        ("FULL_TABLE", None),
        ("INCREMENTAL", "id"),
    ]
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*public\.orders.*public\.Orders"):
        plans(*twins, incremental_tables=["public.ORDERS:id:integer"])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"incremental_tables": ["public.ordrs:id:int"]},
            "no table 'public.ordrs' (did you mean 'public.orders'?)",
        ),
        ({"incremental_tables": ["ordrs:id:int"]}, "no table 'ordrs' (did you mean 'orders'?)"),
        ({"incremental_tables": ["sales.orders:id:int"]}, "no table 'sales.orders'"),
        (
            {"incremental_tables": ["orders:updatd_at:timestamp"]},
            "'updatd_at' is not a column of public.orders (did you",
        ),
        (
            {"incremental_tables": ["orders:updated_at:integer"]},
            "'updated_at' is of type timestamp without time zone",
        ),
        (
            {"incremental_tables": ["orders:tags:string"]},
            "rows can't be ordered by column 'tags' of type text[]",
        ),
        (
            {"stream_options": {"public-ordrs": {"where": "1=1"}}},
            "no stream 'public-ordrs' (did you mean",
        ),
        (
            {"stream_options": {"*": {"replication_key": "nope"}}},
            "replication_key 'nope' is not a column",
        ),
        (
            {"stream_options": {"*": {"key_properties": ["nope"]}}},
            "key property 'nope' is not a column",
        ),
        ({"stream_options": {"*": {"type_overrides": {"nope": "text"}}}}, "'nope' is not a column"),
        (
            {"stream_options": {"*": {"type_overrides": {"id": "nonsense"}}}},
            "'nonsense' is not a type",
        ),
        (
            {"stream_options": {"*": {"partition_column": "nope"}}},
            "partition_column 'nope' is not a column",
        ),
        ({"stream_options": {"*": {"end_value": 5}}}, "end_value needs a replication key"),
        (
            {"stream_options": {"*": {"replication_key": "id", "start_value": "x"}}},
            "start value of key 'id'",
        ),
    ],
)
def test_mismatched_names_and_types_are_explained(config: dict[str, Any], said: str) -> None:
    """An unknown table, column or stream is reported with the nearest known name."""
    with pytest.raises(ConfigurationError) as caught:
        plan(**config)
    assert said in str(caught.value)


def test_all_mismatches_are_reported_at_once() -> None:
    specs = ["public.a:id:int", "public.b:id:int", "orders:nope:int"]
    with pytest.raises(ConfigurationError) as caught:
        plan(incremental_tables=specs)
    assert all(part in str(caught.value) for part in ("'public.a'", "'public.b'", "'nope'"))


def test_options_match_by_glob_and_exact_name_wins() -> None:
    """Options match by glob, and the stream's own name takes precedence."""
    options = {
        "public-orders": {"load_method": "upsert", "type_overrides": {"id": "text"}},
        "public-*": {
            "load_method": "append-only",
            "where": "cost > 0",
            "type_overrides": {"cost": "text"},
        },
        "sales-*": {"load_method": "overwrite"},
    }
    found = plan(stream_options=options)
    assert (found.load_method, found.where) == ("upsert", "cost > 0")
    types = {column.name: str(column.sql_type) for column in found.columns}
    assert (types["id"], types["cost"]) == ("TEXT", "TEXT")
    assert found.schema["properties"]["cost"]["type"] == ["string", "null"]


def test_end_value_makes_backfill() -> None:
    options = {
        "replication_key": "id",
        "start_value": 5,
        "end_value": 10,
        "partition_column": "REGION",
    }
    found = plan(stream_options={"*": options})
    assert (found.start_value.json_value(), found.end_value.json_value()) == (5, 10)
    assert found.partition_column.column.name == "Region"


@pytest.mark.parametrize(
    ("column", "asked", "kind", "aware"),
    [
        ("updated_at", "timestamp", KeyType.DATETIME, False),
        ("updated_at", "datetime", KeyType.DATETIME, False),
        ("seen_at", "timestamptz", KeyType.TIMESTAMP, True),
        ("seen_at", "datetime", KeyType.TIMESTAMP, True),
        ("id", "bigint", KeyType.INTEGER, False),
        ("Region", "string", KeyType.STRING, False),
    ],
)
def test_key_has_time_zone_if_column_has_one(
    column: str, asked: str, kind: KeyType, aware: bool
) -> None:
    found = plan(incremental_tables=[f"orders:{column}:{asked}"]).replication_key
    assert (found.key_type, found.aware, found.textual) == (kind, aware, False)


def test_timestamp_stored_as_string_is_textual_key() -> None:
    columns = (
        SQLITE.column("id", "INTEGER", nullable=False),
        SQLITE.column("at", "DATETIME", nullable=True),
    )
    orders = Table(None, "orders", columns)
    settings = settings_of(incremental_tables=["orders:at:timestamp"])
    (found,) = plan_streams([orders], settings, None, text_moments=True)
    assert found.stream == "orders"
    assert (found.replication_key.textual, found.replication_key.aware) == (True, False)


def test_untyped_column_is_a_key_only_on_request() -> None:
    """A column without a type is a key only if the user says so."""
    orders = Table(None, "orders", (SQLITE.column("rank", "", nullable=True),))
    (found,) = plan_streams(
        [orders], settings_of(incremental_tables=["orders:rank:int"]), None, text_moments=True
    )
    assert SQLITE.literal(found.replication_key, found.replication_key.parse("5")) == "(5)"
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*rank"):
        plan_streams([orders], settings_of(default_replication_key="rank"), None, text_moments=True)


def test_type_override_keeps_key_comparison() -> None:
    """The key is compared by the column's own type, whatever type_overrides sets."""
    options = {"*": {"replication_key": "updated_at", "type_overrides": {"updated_at": "text"}}}
    found = plan(stream_options=options)
    assert found.replication_key.key_type is KeyType.DATETIME
    value = found.replication_key.parse("2025-01-20")
    assert (
        POSTGRESQL.literal(found.replication_key, value) == "TIMESTAMP '2025-01-20 00:00:00.000000'"
    )


@pytest.mark.parametrize(
    ("name", "options", "order"),
    [
        ("updated_at", {}, (False, False)),
        ("cost", {}, (False, False)),
        ("Region", {}, (True, False)),
        ("Region", {"key_properties": ["Region", "id"]}, (True, False)),
        ("Region", {"key_properties": ["cost"]}, (True, True)),
        ("id", {"type_overrides": {"id": "text"}}, (True, False)),
    ],
)
def test_texts_are_ordered_by_their_database_alone(
    name: str, options: dict, order: tuple[bool, bool]
) -> None:
    """The second: a record's key may have several rows, which must come in the replication key's
    order.
    """
    found = plan(stream_options={"*": {"replication_key": name, **options}})
    assert (found.source_order, found.sends_in_order) == order
    column = f'"public"."orders"."{name}"'
    clause = (
        f" ORDER BY CASE WHEN {column} IS NULL THEN 0 ELSE 1 END, {column} LIMIT "
        "1000000000000000 OFFSET 0) s"
    )
    assert StreamSql(POSTGRESQL, found).relation(Slice()).endswith(clause) is order[1]
    assert split_key(found, POSTGRESQL) is None or not order[1]
