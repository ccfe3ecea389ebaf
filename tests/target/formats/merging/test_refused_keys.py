"""Keys and cursors that can't distinguish rows are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from singer_spark.errors import ConfigurationError, RecordError
from target.formats.merging.keyed_items import INT, ITEM, item, items, lake
from target.loading import Lake, schema
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.intake.stream_schema import StreamSchema

__all__ = ["lake"]

MERGING = ("upsert", "append-dedup", "overwrite-delete-stale")


def schema_of(message: dict, **options: Any) -> StreamSchema:
    settings = TargetSettings.from_config(
        {"bucket": "lake", "pipeline": "p", "stream_options": {"s": options}}
    )
    return StreamSchema.of(message, settings)


def test_cursor_named_like_metadata_column_is_ignored() -> None:
    """As where the source was loaded by another target."""
    message = schema("s", {**ITEM, "_sdc_sequence": INT}, ("id",), **{"x-load-method": "upsert"})
    named = {**message, "bookmark_properties": ["_sdc_sequence"]}
    assert (schema_of(named).cursor, schema_of(named, cursor="clock").cursor) == ((), ("clock",))


@pytest.mark.parametrize(
    ("keys", "options", "said"),
    [
        (("_sdc_sequence",), {}, "its key column _sdc_sequence is named like a metadata column"),
        (("id",), {"cursor": "_sdc_sequence"}, "its cursor _sdc_sequence is a metadata column"),
        (
            ("id",),
            {},
            "column _Spark_lake_row_id: names that begin with _spark_lake_ are the target's own",
        ),
    ],
)
def test_reserved_column_names_are_refused(keys: tuple, options: dict, said: str) -> None:
    own = {"_Spark_lake_row_id": INT} if keys == ("id",) and not options else {}
    message = schema(
        "s", {**ITEM, "_sdc_sequence": INT, **own}, keys, **{"x-load-method": "upsert"}
    )
    with pytest.raises(ConfigurationError, match=f"stream s: {said}"):
        schema_of(message, **options)


@pytest.mark.parametrize("method", MERGING)
def test_merge_without_key_is_refused_early(lake: Lake, method: str) -> None:
    """A merging load method without a key is refused before any record is read."""
    with pytest.raises(ConfigurationError, match=rf"LAKE-040 .*load_method.*{method}"):
        lake.load(schema("s", ITEM), b"this line is not even read\n", load_method=method)
    with pytest.raises(ConfigurationError, match="LAKE-041"):
        lake.load(schema("s", ITEM, ("nothing",)), load_method=method)
    with pytest.raises(ConfigurationError, match="LAKE-041"):
        lake.load(items(method), stream_options={"s": {"cursor": "nothing"}})
    assert lake.files() == []


@pytest.mark.parametrize("validated", [True, False])
def test_null_key_error_names_row(lake: Lake, validated: bool) -> None:
    with pytest.raises(
        RecordError,
        match=r"LAKE-021 .*clock.*name.*no key",
    ):
        lake.load(items(), item(1, 1, "a"), item(None, 3, "no key"), validate_records=validated)
    assert lake.files() == []
