"""Which columns are masked, what type they then have, and what can't be masked."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.tables import Table
from tap_spark_jdbc.extract import resumption
from tap_spark_jdbc.extract.extraction import split_key
from tap_spark_jdbc.plan.stream_plan import StreamPlan, plan_streams

POSTGRESQL = known_dialects()["postgresql"]
COLUMNS = {
    "id": "bigint",
    "Email": "text",
    "cost": "numeric(12,2)",
    "at": "timestamp without time zone",
}


def table(name: str = "people", columns: dict[str, str] = COLUMNS, **more: Any) -> Table:
    read = tuple(
        POSTGRESQL.column(each, kind, nullable=each != "id") for each, kind in columns.items()
    )
    return Table("public", name, read, primary_key=("id",), indexed=frozenset({"id", "at"}), **more)


def plans(options: dict[str, Any], *tables: Table, **config: Any) -> list[StreamPlan]:
    given = {
        "jdbc_url": "jdbc:postgresql://localhost/shop",
        "stream_options": options,
        "mask_key": "k",
        **config,
    }
    return plan_streams(tables or (table(),), TapSettings.from_config(given), text_moments=False)


def types(plan: StreamPlan) -> dict[str, str]:
    return {column.name: str(column.sql_type) for column in plan.columns}


def test_mask_sets_type_and_ignores_name_case() -> None:
    masks = {"ID": "hash", "email": "last4", "cost": None, "at": "redact"}
    (plan,) = plans({"public-people": {"mask": masks, "type_overrides": {"cost": "text"}}})
    assert types(plan) == {
        "id": "VARCHAR(64)",
        "Email": "VARCHAR(4)",
        "cost": "TEXT",
        "at": "VARCHAR(3)",
    }
    assert plan.masked_names == set(COLUMNS)
    (plan,) = plans({"*": {"mask": {"cost": "null", "id": "hash"}}})
    assert types(plan)["cost"] == "DECIMAL(12,2)"
    properties = plan.schema["properties"]
    assert properties["id"]["type"] == ["string"] or properties["id"]["type"] == "string"
    assert "null" in properties["cost"]["type"]


def test_ambiguous_mask_name_covers_either_column() -> None:
    """A name that matches two columns by case masks whichever is sent."""
    people = table(columns={**COLUMNS, "email": "text"})
    given = {"jdbc_url": "jdbc:postgresql://localhost/shop", "mask_key": "k"}
    for left_out, sent in (("email", "Email"), ("Email", "email")):
        metadata = [{"breadcrumb": ["properties", left_out], "metadata": {"selected": False}}]
        catalog = {"streams": [{"tap_stream_id": "public-people", "metadata": metadata}]}
        settings = TapSettings.from_config(
            {**given, "stream_options": {"*": {"mask": {"EMAIL": "hash"}}}}
        )
        (plan,) = plan_streams([people], settings, catalog, text_moments=False)
        assert plan.masked_names == {sent}


def test_masked_column_is_no_split_key() -> None:
    """The state never holds values of a masked column."""
    (plan,) = plans({"public-people": {"mask": {"id": "hash"}}})
    assert split_key(plan, POSTGRESQL) is None
    (plan,) = plans({"public-people": {"mask": {"email": "hash"}}})
    assert split_key(plan, POSTGRESQL) is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mask": {"at": "hash"}, "replication_key": "at"}, "replication key 'at' would be masked"),
        (
            {"mask": {"id": "redact"}},
            "'id' is a column of its key, which can only be masked by hash, not by redact",
        ),
        (
            {"mask": {"cost": "null"}, "key_properties": ["cost"]},
            "can only be masked by hash, not by null",
        ),
        (
            {"mask": {"cost": "hash"}, "partition_column": "COST"},
            "partition_column 'cost' is masked",
        ),
        (
            {"mask": {"emial": "hash"}},
            "stream_options.public-people.mask: 'emial' is not a column (did you mean 'Email'?)",
        ),
        ({"mask": {"email": "md5"}}, "must be one of hash, redact, null, last4, not 'md5'"),
        ({"mask": "hash"}, "stream_options.public-people.mask: must be of type object"),
    ],
)
def test_unmaskable_column_is_refused_with_reason(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        plans({"public-people": options})
    assert said in str(raised.value)


def computed_key(expression: str, masked: str) -> StreamPlan:
    """The plan of a stream with this replication key, of which one column is masked."""
    made = table(
        columns={**COLUMNS, masked: "text", "made": "text"},
        computed_key=expression,
        query="SELECT 1",
    )
    (plan,) = plans(
        {"public-people": {"mask": {masked: "redact"}, "replication_key": expression}}, made
    )
    return plan


@pytest.mark.parametrize(
    ("expression", "masked"),
    [
        ('lower("Email")', "Email"),
        ("lower(EMAIL)", "Email"),
        ('lower("user email")', "user email"),
        ('lower(t."e-mail")', "e-mail"),
        ("lower(pay$)", "pay$"),
        ('lower("a""b")', 'a"b'),
        ("lower(t::text)", "Email"),
        ('lower("T"::text)', "Email"),
        ("md5((t.*)::text)", "Email"),
        ("to_json(t)::text", "Email"),
        (r"concat(E'\'', t, E'\'')", "Email"),
    ],
)
def test_computed_key_of_masked_column_is_refused(expression: str, masked: str) -> None:
    with pytest.raises(ConfigurationError, match="TAP-020"):
        computed_key(expression, masked)


@pytest.mark.parametrize(
    "expression",
    [
        "lower(t.cost::text)",
        'lower(t."cost"::text)',
        "lower(emails)",
        """to_char(at, 'YYYY"T"HH24')""",
    ],
)
def test_computed_key_of_other_columns_ignores_masks(expression: str) -> None:
    """A computed key of other columns is not affected by a mask."""
    assert computed_key(expression, "Email").replication_key is not None


def test_pattern_masks_column_where_present(caplog: pytest.LogCaptureFixture) -> None:
    other = table("orders", {"id": "bigint", "cost": "numeric(12,2)"})
    people, orders = plans({"*": {"mask": {"email": "hash", "gone": "null"}}}, table(), other)
    assert (people.masked_names, orders.masked_names) == ({"Email"}, set())
    assert "stream_options.*.mask: 'gone' is not a column" in caplog.text


@pytest.mark.parametrize("selected", [True, False])
def test_mask_outside_catalog_is_refused(selected: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A mask of a stream that the catalog lacks is an error, not silently lost."""

    def planned(options: dict[str, Any]) -> list[StreamPlan]:
        given = {"jdbc_url": "jdbc:postgresql://localhost/shop", "stream_options": options}
        entries = [
            {"tap_stream_id": "public-orders"},
            {"tap_stream_id": "public-people", "selected": selected},
        ]
        tables = [table("orders"), table()][: 1 + selected]
        return plan_streams(
            tables, TapSettings.from_config(given), {"streams": entries}, text_moments=False
        )

    assert planned({"public-people": {"mask": {"email": "redact"}}})[0].stream == "public-orders"
    assert caplog.messages == []
    said = (
        "the catalog has no stream 'public-peple' \\(did you mean 'public-people'.*, so its "
        "mask would be lost"
    )
    with pytest.raises(ConfigurationError, match=said):
        planned({"public-peple": {"mask": {"email": "redact"}}})
    planned({"public-peple": {"where": "1=1"}, "private-*": {"mask": {"email": "redact"}}})
    assert [each for each in caplog.messages if "fits no stream" in each] == [
        "stream_options: 'public-peple' fits no stream",
        "stream_options: 'private-*' fits no stream",
    ]


def test_changed_mask_key_prevents_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The checkpoint holds no hash of the mask key."""
    hashed = []
    real = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda data=b"": hashed.append(data) or real(data))

    def fingerprint(key: str) -> str:
        config = {"jdbc_url": "jdbc:postgresql://localhost/shop", "mask_key": key}
        made = plans({"public-people": {"mask": {"id": "hash"}}}, mask_key=key)
        return resumption.fingerprint(made, TapSettings.from_config(config), config, POSTGRESQL)

    assert fingerprint("planted") == fingerprint("planted") != fingerprint("another")
    assert b"planted" not in b"".join(hashed)


def test_hash_mask_needs_mask_key() -> None:
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*mask_key"):
        plans({"public-people": {"mask": {"email": "hash"}}}, mask_key=None)
    assert plans({"public-people": {"mask": {"email": "last4"}}}, mask_key=None)
