"""With `detect_deletes` the keys of all rows follow the records, in a stream of their own that no
STATE knows.
"""

from __future__ import annotations

import json

import pytest

from singer_spark.errors import ConfigurationError
from tap.plan.planned import COLUMNS, plan, plans, table
from tap_spark_jdbc.send.stream_output import keys_plan

DETECT = {"detect_deletes": True}
ORDERS = """
    create table orders (region text not null, id integer not null, note text, at integer,
      primary key (region, id));
    create index orders_at on orders (at);
"""


def rows(numbers: range) -> str:
    return ";".join(
        f"insert into orders values ('r{n % 2}', {n}, 'note {n}', {n})" for n in numbers
    )


def test_keys_of_all_rows_follow_new_records(spark, sqlite) -> None:
    settings = {"incremental_tables": ["orders:at:integer!upsert"], "slice_rows": 3}
    tap, database = sqlite(ORDERS + rows(range(10)), **settings, stream_options={"orders": DETECT})
    first = tap.run_here().succeeded()
    database.executescript("delete from orders where id in (3, 4);" + rows(range(20, 22)))
    second = tap.run_here(state=first.final_state).succeeded()
    assert [each["id"] for each in second.records("orders")] == [20, 21]
    keys = second.records("orders__keys")
    assert {tuple(each) for each in keys} == {("region", "id")}
    assert sorted((each["id"], each["region"]) for each in keys) == [
        (n, f"r{n % 2}") for n in (0, 1, 2, 5, 6, 7, 8, 9, 20, 21)
    ]
    # Announced before any record, sent behind all of them.
    kinds = [
        (each["type"], each.get("stream")) for each in second.messages if each["type"] != "STATE"
    ]
    assert kinds[:2] == [("SCHEMA", "orders"), ("SCHEMA", "orders__keys")]
    assert kinds[2:4] == [("RECORD", "orders")] * 2
    assert set(kinds[4:]) == {("RECORD", "orders__keys")}
    schema = second.schema("orders__keys")
    assert (schema["schema"]["x-keys-of"], schema["key_properties"]) == ("orders", ["region", "id"])
    main = second.schema("orders")["schema"]["properties"]
    assert schema["schema"]["properties"] == {name: main[name] for name in ("region", "id")}
    assert all("__keys" not in json.dumps(state) for state in second.states)


def test_dry_run_shows_keys_and_test_sends_none(spark, sqlite) -> None:
    """The dry run shows the keys, and a test of the connection sends none."""
    options = {"orders": {**DETECT, "where": "id <> 5"}}
    tap, _ = sqlite(ORDERS + rows(range(10)), stream_options=options)
    tested = tap.run_here("--test").succeeded()
    assert {each.get("stream", "orders") for each in tested.messages} == {"orders"}
    *_, planned = tap.run_here("--dry-run").succeeded().output.decode().splitlines()
    assert planned.startswith("  keys of all rows, to detect deletes: SELECT ")
    assert planned.endswith(" FROM `orders` WHERE (id <> 5) AND 1=1")
    assert "`note`" not in planned
    tap.config["stream_maps"] = {"orders": {"id": "id + 1"}}
    assert "TAP-031 stream orders: " in tap.run_here().failed()


def test_keys_keep_condition_but_not_start_value() -> None:
    """Keys are read under the stream's `where`, without start value or replication key."""
    options = {
        **DETECT,
        "where": "cost > 0",
        "start_value": "2025-01-01T00:00:00",
        "replication_key": "updated_at",
    }
    keys = keys_plan(plan(stream_options={"public-orders": options}))
    assert (keys.where, keys.start_value, keys.replication_key) == ("cost > 0", None, None)
    assert [column.name for column in keys.columns] == ["id"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"load_method": "append-only"}, "append-only never removes a row"),
        (
            {"replication_key": "updated_at", "end_value": "2025-01-01T00:00:00"},
            "a backfill of a range",
        ),
        ({}, "detect_deletes needs a primary key"),
    ],
)
def test_incomparable_keys_are_refused_early(options: dict, text: str) -> None:
    """What can't be compared is refused before anything is read."""
    columns = COLUMNS if options else {"name": "text"}
    with pytest.raises(ConfigurationError, match=text):
        plans(table(columns=columns), stream_options={"public-*": {**DETECT, **options}})


def test_table_named_like_keys_stream_is_refused() -> None:
    """With load_method overwrite there is no keys stream and no conflict."""
    both = table(), table("orders__keys")
    options = {"public-orders": DETECT}
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*public-orders__keys"):
        plans(*both, stream_options=options)
    found = plans(*both, stream_options={"public-orders": {**DETECT, "load_method": "overwrite"}})
    assert not found["public-orders"].detect_deletes
