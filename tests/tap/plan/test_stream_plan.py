"""What is said of a stream, in the order that counts: catalog, stream_options, incremental_tables, defaults."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from singer_spark.singer.bookmark import KeyType
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.tables import Table
from tap_spark_jdbc.extraction.extraction import split_key
from tap_spark_jdbc.plan.catalog import catalog_of, named_tables
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_plan import StreamPlan, plan_streams
from tap_spark_jdbc.plan.stream_sql import StreamSql

POSTGRESQL, SQLITE = known_dialects()["postgresql"], known_dialects()["sqlite"]
COLUMNS = {
    "id": "bigint",
    "Region": "text",
    "updated_at": "timestamp without time zone",
    "seen_at": "timestamp with time zone",
    "cost": "numeric(12,2)",
    "tags": "text[]",
}


def table(name: str = "orders", schema: str | None = "public", columns: dict[str, str] = COLUMNS, **more: Any) -> Table:
    read = tuple(POSTGRESQL.column(each, kind, nullable=each != "id") for each, kind in columns.items())
    more = {"primary_key": ("id",) if "id" in columns else (), "indexed": frozenset({"id", "updated_at"}), **more}
    return Table(schema, name, read, **more)


def settings_of(**config: Any) -> TapSettings:
    return TapSettings.from_config({"jdbc_url": "jdbc:postgresql://localhost/shop", **config})


def plans(*tables: Table, catalog: dict | None = None, **config: Any) -> dict[str, StreamPlan]:
    found = plan_streams(tables or (table(),), settings_of(**config), catalog, text_moments=False)
    return {plan.stream: plan for plan in found}


def plan(*, catalog: dict | None = None, **config: Any) -> StreamPlan:
    return plans(catalog=catalog, **config)["public-orders"]


def key(found: StreamPlan) -> tuple[str, str | None]:
    return found.replication_method, found.replication_key and found.replication_key.column.name


def catalog(*tables: Table, root: dict | None = None, deselect: tuple[str, ...] = (), **config: Any) -> dict[str, Any]:
    """The discovered catalog as somebody edited it: `root` is laid over each stream's metadata; None removes."""
    made = copy.deepcopy(catalog_of(tables or (table(),), settings_of(**config)))
    for stream in made["streams"]:
        for each in stream["metadata"]:
            if not each["breadcrumb"]:
                each["metadata"] |= root or {}
            elif each["breadcrumb"][1] in deselect:
                each["metadata"]["selected"] = False
    return made


def silent(made: dict[str, Any]) -> dict[str, Any]:
    """A catalog that says nothing of methods."""
    for stream in made["streams"]:
        for place in (stream, stream["metadata"][0]["metadata"]):
            for name in ("replication-method", "replication-key", "replication_method", "replication_key"):
                place.pop(name, None)
    return made


def test_a_table_of_which_nothing_is_said_is_exported_whole() -> None:
    found = plan()
    assert key(found) == ("FULL_TABLE", None)
    assert (found.key_properties, found.load_method, found.null_policy) == (("id",), None, "include")
    assert [column.name for column in found.columns] == list(COLUMNS)


def test_the_catalog_counts_more_than_options_than_specs_than_defaults() -> None:
    default = {"default_replication_key": "seen_at"}
    spec = {"incremental_tables": ["public.orders:cost:decimal"]}
    options = {"stream_options": {"public-orders": {"replication_key": "id"}}}
    said = {"root": {"replication-method": "INCREMENTAL", "replication-key": "updated_at"}}
    assert key(plan(**default)) == ("INCREMENTAL", "seen_at")
    assert key(plan(**default, **spec)) == ("INCREMENTAL", "cost")
    assert key(plan(**default, **spec, **options)) == ("INCREMENTAL", "id")
    assert key(plan(**default, **spec, **options, catalog=catalog(**said))) == ("INCREMENTAL", "updated_at")
    whole = catalog(root={"replication-method": "FULL_TABLE"})
    assert key(plan(**default, **spec, **options, catalog=whole)) == ("FULL_TABLE", None)
    assert key(plan(**default, **spec, catalog=silent(catalog()))) == ("INCREMENTAL", "cost")


def test_a_default_key_is_for_the_tables_that_have_it() -> None:
    other = table("clients", columns={"id": "bigint", "UPDATED_AT": "date"})
    neither = table("regions", columns={"id": "bigint"})
    found = plans(table(), other, neither, default_replication_key="updated_at")
    assert [key(each) for each in found.values()] == [
        ("INCREMENTAL", "updated_at"),
        ("INCREMENTAL", "UPDATED_AT"),
        ("FULL_TABLE", None),
    ]


def test_an_excluded_table_is_exported_whole_even_under_a_default_key() -> None:
    config = {"default_replication_key": "updated_at", "incremental_tables": ["public.orders:updated_at:timestamp:e"]}
    assert key(plan(**config)) == ("FULL_TABLE", None)


def test_a_spec_gives_start_value_and_load_method() -> None:
    found = plan(incremental_tables=["public.orders:updated_at:datetime@2025-01-20 15:30:00!upsert"])
    assert found.start_value is not None
    assert found.start_value.text == "2025-01-20T15:30:00.000000"
    assert found.load_method == "upsert"


def test_of_two_specs_for_a_table_the_later_counts() -> None:
    assert key(plan(incremental_tables=["orders:id:int", "public.orders:cost:decimal"])) == ("INCREMENTAL", "cost")


def test_names_in_specs_match_in_any_case_where_one_table_fits() -> None:
    assert key(plan(incremental_tables=["PUBLIC.Orders:Updated_At:timestamp"])) == ("INCREMENTAL", "updated_at")
    twins = (table("orders"), table("Orders"))
    found = plans(*twins, incremental_tables=["public.Orders:id:integer"])
    assert [key(found[stream]) for stream in ("public-orders", "public-Orders")] == [
        ("FULL_TABLE", None),
        ("INCREMENTAL", "id"),
    ]
    with pytest.raises(ConfigurationError, match=r"could be public\.orders and public\.Orders"):
        plans(*twins, incremental_tables=["public.ORDERS:id:integer"])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"incremental_tables": ["public.ordrs:id:int"]}, "no table 'public.ordrs' (did you mean 'public.orders'?)"),
        ({"incremental_tables": ["ordrs:id:int"]}, "no table 'ordrs' (did you mean 'orders'?)"),
        ({"incremental_tables": ["sales.orders:id:int"]}, "no table 'sales.orders'"),
        (
            {"incremental_tables": ["orders:updatd_at:timestamp"]},
            "'updatd_at' is not a column of public.orders (did you",
        ),
        ({"incremental_tables": ["orders:updated_at:integer"]}, "'updated_at' is of type timestamp without time zone"),
        ({"incremental_tables": ["orders:tags:string"]}, "rows can't be ordered by column 'tags' of type text[]"),
        ({"stream_options": {"public-ordrs": {"where": "1=1"}}}, "no stream 'public-ordrs' (did you mean"),
        ({"stream_options": {"*": {"replication_key": "nope"}}}, "replication_key 'nope' is not a column"),
        ({"stream_options": {"*": {"key_properties": ["nope"]}}}, "key property 'nope' is not a column"),
        ({"stream_options": {"*": {"type_overrides": {"nope": "text"}}}}, "'nope' is not a column"),
        ({"stream_options": {"*": {"type_overrides": {"id": "nonsense"}}}}, "'nonsense' is not a type"),
        ({"stream_options": {"*": {"partition_column": "nope"}}}, "partition_column 'nope' is not a column"),
        ({"stream_options": {"*": {"end_value": 5}}}, "end_value needs a replication key"),
        ({"stream_options": {"*": {"replication_key": "id", "start_value": "x"}}}, "start value of key 'id'"),
    ],
)
def test_what_does_not_fit_is_named_with_what_is_near(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan(**config)
    assert said in str(caught.value)


def test_all_that_does_not_fit_is_named_at_once() -> None:
    specs = ["public.a:id:int", "public.b:id:int", "orders:nope:int"]
    with pytest.raises(ConfigurationError) as caught:
        plan(incremental_tables=specs)
    assert all(part in str(caught.value) for part in ("'public.a'", "'public.b'", "'nope'"))


def test_options_fit_by_glob_and_the_stream_s_own_name_weighs_most() -> None:
    options = {
        "public-orders": {"load_method": "upsert", "type_overrides": {"id": "text"}},
        "public-*": {"load_method": "append-only", "where": "cost > 0", "type_overrides": {"cost": "text"}},
        "sales-*": {"load_method": "overwrite"},
    }
    found = plan(stream_options=options)
    assert (found.load_method, found.where) == ("upsert", "cost > 0")
    types = {column.name: str(column.sql_type) for column in found.columns}
    assert (types["id"], types["cost"]) == ("TEXT", "TEXT")
    assert found.schema["properties"]["cost"]["type"] == ["string", "null"]


def test_end_value_makes_a_backfill() -> None:
    options = {"replication_key": "id", "start_value": 5, "end_value": 10, "partition_column": "REGION"}
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
def test_a_key_has_a_zone_where_its_column_has_one(column: str, asked: str, kind: KeyType, aware: bool) -> None:
    found = plan(incremental_tables=[f"orders:{column}:{asked}"]).replication_key
    assert (found.key_type, found.aware, found.textual) == (kind, aware, False)


def test_a_moment_kept_as_text_is_a_textual_key() -> None:
    columns = (SQLITE.column("id", "INTEGER", nullable=False), SQLITE.column("at", "DATETIME", nullable=True))
    orders = Table(None, "orders", columns)
    settings = settings_of(incremental_tables=["orders:at:timestamp"])
    (found,) = plan_streams([orders], settings, None, text_moments=True)
    assert found.stream == "orders"
    assert (found.replication_key.textual, found.replication_key.aware) == (True, False)


def test_a_column_without_a_type_is_a_key_only_by_the_user_s_word() -> None:
    orders = Table(None, "orders", (SQLITE.column("rank", "", nullable=True),))
    (found,) = plan_streams([orders], settings_of(incremental_tables=["orders:rank:int"]), None, text_moments=True)
    assert SQLITE.literal(found.replication_key, found.replication_key.parse("5")) == "(5)"
    with pytest.raises(ConfigurationError, match="'rank' of type that is not declared"):
        plan_streams([orders], settings_of(default_replication_key="rank"), None, text_moments=True)


def test_an_override_leaves_the_key_as_the_database_compares_it() -> None:
    options = {"*": {"replication_key": "updated_at", "type_overrides": {"updated_at": "text"}}}
    found = plan(stream_options=options)
    assert found.replication_key.key_type is KeyType.DATETIME
    value = found.replication_key.parse("2025-01-20")
    assert POSTGRESQL.literal(found.replication_key, value) == "TIMESTAMP '2025-01-20 00:00:00.000000'"


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
def test_texts_are_ordered_by_their_database_alone(name: str, options: dict, order: tuple[bool, bool]) -> None:
    """The second: a record's key may have several rows, which must come in the replication key's order."""
    found = plan(stream_options={"*": {"replication_key": name, **options}})
    assert (found.source_order, found.sends_in_order) == order
    clause = f' ORDER BY CASE WHEN "{name}" IS NULL THEN 0 ELSE 1 END, "{name}" LIMIT 1000000000000000 OFFSET 0) s'
    assert StreamSql(POSTGRESQL, found).relation(Slice()).endswith(clause) is order[1]
    assert split_key(found, POSTGRESQL) is None or not order[1]


def test_the_catalog_shows_the_standard_metadata() -> None:
    (stream,) = catalog(default_replication_key="updated_at")["streams"]
    assert (stream["tap_stream_id"], stream["stream"], stream["key_properties"]) == (
        "public-orders",
        "public-orders",
        ["id"],
    )
    metadata = {tuple(each["breadcrumb"]): each["metadata"] for each in stream["metadata"]}
    assert metadata[()] == {
        "inclusion": "available",
        "selected": True,
        "schema-name": "public",
        "table-name": "orders",
        "is-view": False,
        "table-key-properties": ["id"],
        "valid-replication-keys": ["id", "updated_at", "seen_at", "cost"],
        "replication-method": "INCREMENTAL",
        "replication-key": "updated_at",
    }
    assert metadata[("properties", "id")] == {"inclusion": "automatic", "selected": True, "sql-datatype": "bigint"}
    assert metadata[("properties", "updated_at")]["inclusion"] == "automatic"
    assert metadata[("properties", "cost")]["inclusion"] == "available"
    assert stream["schema"]["properties"]["cost"]["x-sql-datatype"] == "DECIMAL(12,2)"


def test_a_discovered_catalog_plans_what_the_settings_plan() -> None:
    config = {"incremental_tables": ["orders:updated_at:timestamp!upsert"]}
    assert plan(**config, catalog=catalog(**config)) == plan(**config)


def test_deselected_columns_are_not_read_but_keys_always_are() -> None:
    config = {"incremental_tables": ["orders:updated_at:timestamp"]}
    edited = catalog(deselect=("id", "updated_at", "cost", "tags"), **config)
    assert [column.name for column in plan(catalog=edited, **config).columns] == [
        "id",
        "Region",
        "updated_at",
        "seen_at",
    ]


def test_deselected_streams_are_not_asked_for_and_a_spec_may_still_name_them() -> None:
    made = catalog(table(), table("clients"))
    made["streams"][1]["metadata"][0]["metadata"]["selected"] = False
    assert named_tables(made) == [("public", "orders")]
    found = plans(table(), catalog=made, incremental_tables=["public.clients:id:integer"])
    assert list(found) == ["public-orders"]


def test_key_properties_of_the_catalog_count_unless_it_names_none() -> None:
    options = {"*": {"key_properties": ["cost"]}}
    assert plan(stream_options=options, catalog=catalog()).key_properties == ("id",)
    keyless = table("orders", primary_key=())
    found = plans(keyless, catalog=catalog(keyless), stream_options=options)
    assert found["public-orders"].key_properties == ("cost",)
    view = catalog(root={"view-key-properties": ["Region"]})
    assert plan(catalog=view).key_properties == ("Region",)


def test_a_catalog_of_bare_names_is_enough() -> None:
    bare = {"streams": [{"tap_stream_id": "public-orders", "replication_method": "FULL_TABLE"}]}
    assert ("public", "orders") in named_tables(bare)
    assert key(plan(catalog=bare, default_replication_key="updated_at")) == ("FULL_TABLE", None)


@pytest.mark.parametrize("names", [("tap_stream_id",), ("stream",), ("tap_stream_id", "stream")])
def test_a_stream_that_the_catalog_renames_is_refused_instead_of_left_out(names: tuple[str, ...]) -> None:
    made = catalog()
    made["streams"][0] |= dict.fromkeys(names, "sales")
    with pytest.raises(ConfigurationError, match=r"names stream 'public-orders' 'sales'.*stream_maps"):
        plans(catalog=made)


def test_a_stream_of_the_catalog_whose_table_is_gone_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="'public-clients' of the catalog has no table"):
        plans(table(), catalog=catalog(table(), table("clients")))


def test_a_column_of_the_catalog_that_is_gone_is_said(caplog: pytest.LogCaptureFixture) -> None:
    made = catalog()
    smaller = table(columns={name: kind for name, kind in COLUMNS.items() if name != "cost"})
    found = plans(smaller, catalog=made)["public-orders"]
    assert "cost" not in found.schema["properties"]
    assert "columns cost are gone" in caplog.text


def test_columns_that_differ_by_case_are_refused_by_name_unless_one_is_deselected() -> None:
    twins = table(columns={"id": "bigint", "Name": "text", "NAME": "text"})
    with pytest.raises(ConfigurationError, match="'Name' and 'NAME' differ only by case"):
        plans(twins)
    found = plans(twins, catalog=catalog(twins, deselect=("NAME",)))
    assert [column.name for column in found["public-orders"].columns] == ["id", "Name"]


def test_tables_with_one_stream_name_are_refused_by_name_unless_one_is_deselected() -> None:
    twins = (table("b-c", schema="a"), table("c", schema="a-b"))
    with pytest.raises(ConfigurationError, match=r"a\.b-c and a-b\.c would both be stream 'a-b-c'"):
        plans(*twins)
    made = catalog(*twins)
    made["streams"][0]["metadata"][0]["metadata"]["selected"] = False
    assert named_tables(made) == [("a-b", "c")]
    assert [each.table.schema for each in plans(twins[1], catalog=made).values()] == ["a-b"]


def test_a_column_without_exact_reading_is_an_error_with_a_way_out() -> None:
    derby = known_dialects()["derby"]
    column = derby.column("v", "java.util.Currency", nullable=True)
    odd = Table("APP", "T", (derby.column("id", "INTEGER", nullable=False), column))
    with pytest.raises(ConfigurationError, match="column 'v' can't be read: no exact reading"):
        plan_streams([odd], settings_of(), None, text_moments=False)
    made = catalog(odd)
    assert made["streams"][0]["metadata"][2]["metadata"]["inclusion"] == "unsupported"
    (found,) = plan_streams([odd], settings_of(), catalog(odd, deselect=("v",)), text_moments=False)
    assert [each.name for each in found.columns] == ["id"]
    options = {"stream_options": {"*": {"type_overrides": {"v": "text"}}}}
    (found,) = plan_streams([odd], settings_of(**options), None, text_moments=False)
    assert [each.name for each in found.columns] == ["id", "v"]
