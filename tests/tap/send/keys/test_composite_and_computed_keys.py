"""Replication keys of two columns, and computed ones: each is a key as a column is, and another one
is refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError, SourceError, StateError
from tap.dying import unsealed
from tap.plan.planned import plan
from tap.send.keys.keyed_pipes import Source
from tap_spark_jdbc.dry_run import describe
from tap_spark_jdbc.plan.queries import column_name


def test_composite_key_splits_and_resumes_ties(
    source: Source,
) -> None:
    """A composite key splits ties by its second column and resumes inside of them."""
    pipe, prefix, execute = source
    # There is no primary key, so only the composite one distinguishes rows of one moment.
    execute("create table t (id integer not null, at timestamp)")
    execute("create index t_at on t (at)")
    for number in range(12):
        execute(f"insert into t values ({number}, '2025-01-0{1 + number // 10} 00:00:00')")
    pipe.config |= {
        "stream_options": {f"{prefix}t": {"replication_key": ["at", "id"]}},
        "slice_rows": 4,
    }
    first = pipe.run()
    assert first.ids(f"{prefix}t") == Counter(range(12))
    assert first.final["bookmarks"][f"{prefix}t"]["replication_key"] == "at"

    inside = 0
    for _, dead in first.deaths():
        sent = dead.ids(f"{prefix}t")
        if 0 < len(sent) < 10:
            inside += 1
            rest = pipe.resumed(dead)
            assert sent + rest.ids(f"{prefix}t") == Counter(range(12))
            assert unsealed(rest.final) == unsealed(first.final)
    assert inside >= 2

    # A row of that moment with a lower second part, which a comparison of pairs would lose.
    pipe.save(first.final)
    execute("insert into t values (-1, '2025-01-02 00:00:00')")
    assert pipe.run().ids(f"{prefix}t") == Counter([-1])


def test_computed_key_is_stream_column_and_advances(source: Source) -> None:
    pipe, prefix, execute = source
    key = "coalesce(updated_at, created_at) -- whichever is there"
    execute(
        "create table t (id integer primary key, created_at timestamp not null, updated_at "
        "timestamp)"
    )
    execute(
        "insert into t values (1, '2025-01-01 00:00:00', null), (2, '2025-01-02 00:00:00', "
        "'2025-01-05 00:00:00')"
    )
    options = {"replication_key": key, **({} if prefix else {"replication_key_type": "timestamp"})}
    pipe.config |= {"stream_options": {f"{prefix}t": options}}
    name = "coalesce_updated_at_created_at_whichever_is_there"
    first = pipe.run()
    (schema,) = [each for each in first.messages if each["type"] == "SCHEMA"]
    assert (schema["bookmark_properties"], schema["key_properties"]) == ([name], ["id"])
    assert {
        each["record"]["id"]
        for each in first.messages
        if each["type"] == "RECORD" and each["record"][name]
    } == {
        1,
        2,
    }
    bookmark = first.final["bookmarks"][f"{prefix}t"]
    assert (bookmark["replication_key"], bookmark["replication_key_value"]) == (
        name,
        "2025-01-05T00:00:00.000000",
    )

    pipe.save(first.final)
    assert pipe.run().rows == Counter()
    execute("update t set updated_at = '2025-01-06 00:00:00' where id = 1")
    execute(
        "insert into t values (3, '2025-01-07 00:00:00', null), (4, '2025-01-03 00:00:00', null)"
    )
    tap = pipe.tap()
    planned = describe(tap)
    assert f"INCREMENTAL by {name}" in planned
    assert [each["replication_key"] for each in tap.catalog_dict["streams"]] == [name]
    tap.database.close()
    second = pipe.run()
    # Of a row below the bookmark PostgreSQL alone says that it was written since.
    assert second.ids(f"{prefix}t") == Counter([1, 3, *([4] if prefix else [])])

    # Another expression of the same words is another key, though its column has the same name.
    options["replication_key"] = key.replace(",", " /**/ ,")
    with pytest.raises(
        StateError,
        match=r"RUN-031 .*updated_at.*created_at",
    ):
        pipe.run()
    del pipe.saved["bookmarks"][f"{prefix}t"][
        "replication_key_expression"
    ]  # as older versions left it
    pipe.save(pipe.saved)
    assert pipe.run().rows == second.rows

    pipe.config["stream_options"][f"{prefix}t"]["replication_key"] = "coalesce(updated_at, nothing)"
    with pytest.raises(SourceError, match=r"TAP-024 .*coalesce\(updated_at, nothing\)"):
        pipe.run()


def test_another_expression_is_another_key() -> None:
    assert column_name("COALESCE(updated_at, created_at)") == "coalesce_updated_at_created_at"
    long = column_name("coalesce(" + ", ".join(f"a_column_{number}" for number in range(20)) + ")")
    assert len(long) <= 60
    assert long != column_name(
        "coalesce(" + ", ".join(f"a_column_{number}" for number in range(21)) + ")"
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("updated_at, id", "columns of a composite key are given as a list"),
        (["updated_at", "nothing"], "partition_column 'nothing' is not a column"),
        (["updated_at", "id", "Region"], "replication_key"),
        ([], "replication_key"),
    ],
)
def test_invalid_key_is_refused(key: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        plan(stream_options={"public-orders": {"replication_key": key}})


def test_composite_key_names_key_and_tie_column() -> None:
    """A composite key is a key and the column that splits its ties."""
    found = plan(stream_options={"public-orders": {"replication_key": ["updated_at", "id"]}})
    assert found.replication_key is not None
    assert found.partition_column is not None
    assert (found.replication_key.column.name, found.partition_column.column.name) == (
        "updated_at",
        "id",
    )
    options = {"replication_key": ["updated_at", "id"], "partition_column": "Region"}
    with pytest.raises(ConfigurationError, match="RUN-004"):
        plan(stream_options={"public-orders": options})
