"""The catalog: what it shows of streams, and what a user has set by editing it."""

from __future__ import annotations

import pytest

from singer_spark.errors import ConfigurationError
from tap.plan.planned import COLUMNS, catalog, key, plan, plans, settings_of, table
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.tables import Table
from tap_spark_jdbc.plan.catalog import named_tables
from tap_spark_jdbc.plan.stream_plan import plan_streams


def test_catalog_shows_standard_metadata() -> None:
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
    assert metadata[("properties", "id")] == {
        "inclusion": "automatic",
        "selected": True,
        "sql-datatype": "bigint",
    }
    assert metadata[("properties", "updated_at")]["inclusion"] == "automatic"
    assert metadata[("properties", "cost")]["inclusion"] == "available"
    assert stream["schema"]["properties"]["cost"]["x-sql-datatype"] == "DECIMAL(12,2)"


def test_discovered_catalog_plans_same_as_settings() -> None:
    config = {"incremental_tables": ["orders:updated_at:timestamp!upsert"]}
    assert plan(**config, catalog=catalog(**config)) == plan(**config)


def test_deselected_columns_are_skipped_except_keys() -> None:
    config = {"incremental_tables": ["orders:updated_at:timestamp"]}
    edited = catalog(deselect=("id", "updated_at", "cost", "tags"), **config)
    assert [column.name for column in plan(catalog=edited, **config).columns] == [
        "id",
        "Region",
        "updated_at",
        "seen_at",
    ]


def test_deselected_streams_are_not_queried() -> None:
    """Deselected streams are not queried, and a spec may still name them."""
    made = catalog(table(), table("clients"))
    made["streams"][1]["metadata"][0]["metadata"]["selected"] = False
    assert named_tables(made) == [("public", "orders")]
    found = plans(table(), catalog=made, incremental_tables=["public.clients:id:integer"])
    assert list(found) == ["public-orders"]


def test_catalog_key_properties_count_if_named() -> None:
    """Key properties of the catalog count unless it names none."""
    options = {"*": {"key_properties": ["cost"]}}
    assert plan(stream_options=options, catalog=catalog()).key_properties == ("id",)
    keyless = table("orders", primary_key=())
    found = plans(keyless, catalog=catalog(keyless), stream_options=options)
    assert found["public-orders"].key_properties == ("cost",)
    view = catalog(root={"view-key-properties": ["Region"]})
    assert plan(catalog=view).key_properties == ("Region",)


def test_catalog_of_bare_names_is_enough() -> None:
    bare = {"streams": [{"tap_stream_id": "public-orders", "replication_method": "FULL_TABLE"}]}
    assert ("public", "orders") in named_tables(bare)
    assert key(plan(catalog=bare, default_replication_key="updated_at")) == ("FULL_TABLE", None)


@pytest.mark.parametrize("names", [("tap_stream_id",), ("stream",), ("tap_stream_id", "stream")])
def test_stream_renamed_in_the_catalog_is_refused(
    names: tuple[str, ...],
) -> None:
    """A stream that the catalog renames is refused instead of left out."""
    made = catalog()
    made["streams"][0] |= dict.fromkeys(names, "sales")
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*public-orders.*sales.*stream_maps"):
        plans(catalog=made)


def test_catalog_stream_without_table_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*public-clients"):
        plans(table(), catalog=catalog(table(), table("clients")))


def test_missing_catalog_column_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    made = catalog()
    smaller = table(columns={name: kind for name, kind in COLUMNS.items() if name != "cost"})
    found = plans(smaller, catalog=made)["public-orders"]
    assert "cost" not in found.schema["properties"]
    assert "columns cost are gone" in caplog.text


def test_columns_differing_by_case_are_refused() -> None:
    """Columns that differ only by case are refused by name unless one is deselected."""
    twins = table(columns={"id": "bigint", "Name": "text", "NAME": "text"})
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*Name.*NAME"):
        plans(twins)
    found = plans(twins, catalog=catalog(twins, deselect=("NAME",)))
    assert [column.name for column in found["public-orders"].columns] == ["id", "Name"]


def test_tables_with_one_stream_name_are_refused() -> None:
    """Tables with one stream name are refused by name unless one is deselected."""
    twins = (table("b-c", schema="a"), table("c", schema="a-b"))
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*a\.b-c.*a-b\.c.*a-b-c"):
        plans(*twins)
    made = catalog(*twins)
    made["streams"][0]["metadata"][0]["metadata"]["selected"] = False
    assert named_tables(made) == [("a-b", "c")]
    assert [each.table.schema for each in plans(twins[1], catalog=made).values()] == ["a-b"]


def test_unreadable_columns_are_in_one_message() -> None:
    """The message names the columns of all streams."""
    derby = known_dialects()["derby"]
    first, second = (
        Table(
            "APP",
            name,
            tuple(derby.column(each, "java.util.Currency", nullable=True) for each in columns),
        )
        for name, columns in (("T", "vw"), ("U", "x"))
    )
    with pytest.raises(ConfigurationError) as caught:
        plan_streams([first, second], settings_of(), None, text_moments=False)
    reported = str(caught.value)
    assert [reported.count(f"column '{each}' can't be read") for each in "vwx"] == [1, 1, 1]
    assert reported.count("type_overrides to text") == 2
    assert "stream APP-T: " in reported
    assert "stream APP-U: " in reported


def test_unknown_mariadb_type_is_read_as_text(caplog: pytest.LogCaptureFixture) -> None:
    """The reading is logged, and rows are not ordered by the column."""
    column = known_dialects()["mariadb"].column("doc", "xmltype", nullable=True)
    with caplog.at_level("INFO", "tap-spark-jdbc"):
        (found,) = plan_streams(
            [Table("shop", "t", (column,))], settings_of(), None, text_moments=False
        )
    assert [(str(each.sql_type), each.key_type) for each in found.columns] == [("TEXT", None)]
    assert (
        "stream shop-t: column doc (xmltype): a type not known here is read as the server's text"
        in caplog.text
    )


def test_inexact_column_is_an_error_with_a_way_out() -> None:
    """A column that can't be read exactly is an error with a way out."""
    derby = known_dialects()["derby"]
    column = derby.column("v", "java.util.Currency", nullable=True)
    odd = Table("APP", "T", (derby.column("id", "INTEGER", nullable=False), column))
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*v"):
        plan_streams([odd], settings_of(), None, text_moments=False)
    made = catalog(odd)
    assert made["streams"][0]["metadata"][2]["metadata"]["inclusion"] == "unsupported"
    (found,) = plan_streams([odd], settings_of(), catalog(odd, deselect=("v",)), text_moments=False)
    assert [each.name for each in found.columns] == ["id"]
    options = {"stream_options": {"*": {"type_overrides": {"v": "text"}}}}
    (found,) = plan_streams([odd], settings_of(**options), None, text_moments=False)
    assert [each.name for each in found.columns] == ["id", "v"]
