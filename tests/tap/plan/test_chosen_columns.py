"""Which columns `columns`, `exclude_columns` and a catalog take together, and under which names
they are sent.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from tap.plan.planned import COLUMNS, POSTGRESQL, catalog, plan, plans, settings_of, table
from tap_spark_jdbc.extract import resumption


def taken(options: dict[str, Any], **config: Any) -> list[str]:
    return list(plan(stream_options={"public-orders": options}, **config).sent_columns)


def test_globs_choose_columns_and_keep_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Globs choose columns; key columns are always included, which is reported once."""
    caplog.set_level(logging.INFO)
    assert taken({"columns": ["id", "*_at", "!seen*"]}) == ["id", "updated_at"]
    assert taken({"columns": ["!region"]}) == ["id", "updated_at", "seen_at", "cost", "tags"]
    assert taken({"exclude_columns": ["REGION", "t*"]}) == ["id", "updated_at", "seen_at", "cost"]
    assert taken({"columns": ["*_at", "tags"], "exclude_columns": ["seen_at"]}) == [
        "id",
        "updated_at",
        "tags",
    ]
    caplog.clear()
    key = {"replication_key": "updated_at"}
    assert taken({"columns": ["cost"], **key}) == ["id", "updated_at", "cost"]
    assert caplog.messages == [
        "columns of keys are always sent, although `columns` or `exclude_columns` leaves them out: "
        "public-orders (id, updated_at)"
    ]


def test_pattern_exclusions_hold_until_negated() -> None:
    """What a stream pattern excludes stays out until it is negated."""

    def sent(own: list[str]) -> set[str]:
        found = plan(
            stream_options={
                "public-orders": {"exclude_columns": own},
                "*": {"exclude_columns": ["cost"]},
            }
        )
        return COLUMNS.keys() - found.sent_columns.keys()

    assert (sent(["tags"]), sent(["tags", "!cost"]), sent(["!cost"])) == (
        {"cost", "tags"},
        {"tags"},
        set(),
    )
    assert taken({"exclude_columns": ["!cost"]}) == list(COLUMNS)


def test_catalog_and_options_both_choose_columns() -> None:
    """A catalog and the options both have a say and discovery writes what the options leave
    out.
    """
    options = {"public-orders": {"exclude_columns": ["cost"]}}
    assert taken({"exclude_columns": ["cost"]}, catalog=catalog(deselect=("tags",))) == [
        *("id", "Region", "updated_at", "seen_at")
    ]
    (stream,) = catalog(stream_options=options)["streams"]
    left_out = [
        each["breadcrumb"][-1]
        for each in stream["metadata"]
        if each["metadata"]["selected"] is False
    ]
    assert left_out == ["cost"]


def test_excluded_unreadable_column_stops_nothing() -> None:
    """A column that can't be read stops nothing once it is excluded."""
    odd = table(columns={"id": "bigint", "v": "text"}, obstacles={"v": "permission denied"})
    with pytest.raises(ConfigurationError, match=r"TAP-020 .*out.*exclude_columns"):
        plans(odd)
    found = plans(odd, stream_options={"*": {"exclude_columns": ["v"]}})
    assert [*found["public-orders"].sent_columns] == ["id"]


def test_unknown_columns_suggest_nearest_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Unknown columns are reported with the nearest name, and unmatched globs as a warning."""
    wrong = {
        "columns": ["*", "!csot"],
        "exclude_columns": ["cots", "x*"],
        "rename": {"regoin": "area"},
    }
    with pytest.raises(ConfigurationError) as raised:
        plan(stream_options={"public-orders": wrong})
    assert raised.value.message == (
        "stream_options.public-orders.exclude_columns: 'cots' is not a column (did you mean "
        "'cost'?); "
        "stream_options.public-orders.rename: 'regoin' is not a column (did you mean 'Region'?)"
    )
    assert caplog.messages == [
        "stream_options.public-orders.columns: '!csot' fits no column",
        "stream_options.public-orders.exclude_columns: 'x*' fits no column",
    ]
    caplog.clear()
    plan(stream_options={"*": {"exclude_columns": ["password"]}})
    assert caplog.messages == ["stream_options.*.exclude_columns: 'password' is not a column"]


def test_exclusion_outside_catalog_is_refused() -> None:
    """An exclude_columns of a stream that the catalog lacks is an error, not silently lost."""
    said = "the catalog has no stream 'public-ordres' .*, so its exclude_columns would be lost"
    with pytest.raises(ConfigurationError, match=said):
        plan(catalog=catalog(), stream_options={"public-ordres": {"exclude_columns": ["cost"]}})


def test_renamed_column_keeps_its_source_name() -> None:
    """A renamed column has its new name in schema and keys, and its own at the source."""
    options = {
        "rename": {"ID": "order_id", "updated_at": "changed", "cost": "cost"},
        "replication_key": "updated_at",
    }
    found = plan(stream_options={"public-orders": options})
    assert list(found.schema["properties"]) == [
        "order_id",
        "Region",
        "changed",
        "seen_at",
        "cost",
        "tags",
    ]
    assert (found.sent_keys, found.sent_replication_key) == (("order_id",), "changed")
    assert (found.key_properties, found.replication_key.column.name) == (("id",), "updated_at")
    swapped = plan(stream_options={"public-orders": {"rename": {"cost": "tags", "tags": "cost"}}})
    assert list(swapped.sent_columns)[-2:] == ["tags", "cost"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"rename": {"cost": "REGION"}},
            "columns 'Region' and 'cost' would both be 'REGION' \\(in any case\\)",
        ),
        ({"rename": {"cost": "x", "tags": "x"}}, "columns 'cost' and 'tags' would both be 'x'"),
        (
            {"rename": {"cost": "_sdc_lsn"}},
            "'_sdc_lsn' is reserved for columns that a target adds",
        ),
    ],
)
def test_two_columns_with_one_name_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        plan(stream_options={"public-orders": options})
    assert taken({"rename": {"cost": "region"}, "exclude_columns": ["region"]})[-2:] == [
        "region",
        "tags",
    ]


def test_renamed_column_prevents_resume() -> None:
    def fingerprint(**options: Any) -> str:
        config = {"jdbc_url": "jdbc:postgresql://localhost/shop"}
        found = plans(stream_options={"public-orders": options})
        return resumption.fingerprint([*found.values()], settings_of(), config, POSTGRESQL)

    assert (
        fingerprint()
        == fingerprint(rename={"cost": "cost"})
        != fingerprint(rename={"cost": "price"})
    )
