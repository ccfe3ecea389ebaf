"""Which streams of a foreign tap come whole, and which may be deltas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from singer_spark.core.lake_type import Struct
from singer_spark.errors import ConfigurationError, ProtocolError
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.intake.stream_schema import StreamSchema
from target_spark_lake.load.run_streams import Extents, WholeStreams
from target_spark_lake.load.sink import ResolvedStream, StreamSink
from target_spark_lake.load.source_key_batches import KeyBatches
from target_spark_lake.stage.batch_plan import BatchPlan

STREAMS = ("s", "beside")


def stream(
    *bookmark_properties: str, method: str = "overwrite", extent: str | None = None
) -> StreamSchema:
    return StreamSchema(
        "s", {"properties": {}}, ("id",), method, extent, bookmark_properties=bookmark_properties
    )


def read_schema(bookmark_properties: object) -> StreamSchema:
    """A foreign SCHEMA message, read as the target reads it."""
    message = {"stream": "s", "schema": {"properties": {"clock": {"type": "integer"}}}}
    settings = TargetSettings.from_config({"bucket": "lake", "pipeline": "test"})
    return StreamSchema.of({**message, "bookmark_properties": bookmark_properties}, settings)


@pytest.mark.parametrize(
    ("bookmark_properties", "saved", "whole"),
    [
        ([], None, True),
        (["clock"], None, True),
        ([], {}, True),
        (["clock"], {}, False),
        ([], {"bookmarks": {"s": {"log_pos": 4}}}, False),
        ([], {"bookmarks": {"s": 4}}, False),
        ([], {"bookmarks": {"s": {}, "other": {"replication_key_value": None}}}, True),
        (
            [],
            {
                "bookmarks": {"s": {"partitions": [{"context": {"shop": 1}}]}},
                "currently_syncing": "s",
            },
            True,
        ),
        ([], {"bookmarks": {"s": {"partitions": [{"context": {"shop": 1}, "log_pos": 4}]}}}, False),
        ([], {"bookmarks": {"beside": {"replication_key_value": 1}}}, True),
        ([], {"bookmarks": {"other": {"replication_key_value": 1}}}, False),
        ([], {"bookmarks": {}, "lsn": 4}, False),
        ([], {"s": {"log_pos": 4}}, False),
        ([], {"position": 4}, False),
    ],
)
def test_foreign_stream_extent_follows_bookmarks(
    bookmark_properties: list, saved: dict | None, whole: bool
) -> None:
    """A foreign stream is full in a first run, and later unless a bookmark may be its own."""
    extents = Extents(saved, saved, STREAMS)
    assert extents.is_whole(stream(*bookmark_properties)) == whole
    if whole:
        extents.check(stream(*bookmark_properties))
    else:
        with pytest.raises(ConfigurationError, match=r"LAKE-042 .*spark-lake state reset"):
            extents.check(stream(*bookmark_properties))
        extents.check(stream(*bookmark_properties, method="append-only"))


@pytest.mark.parametrize(
    ("sent", "names"),
    [("clock", ["clock"]), ([None], []), (None, []), (["clock", None], ["clock"])],
)
def test_bookmark_properties_are_read_leniently(sent: object, names: list[str]) -> None:
    """A string, null and lists with null are accepted, as taps write them."""
    assert read_schema(sent).bookmark_properties == tuple(names)
    assert Extents({}, {}, STREAMS).is_whole(read_schema(sent)) == (not names)


@pytest.mark.parametrize("sent", [{"clock": True}, [["clock"]], 4, True])
def test_invalid_bookmark_properties_are_refused(
    sent: object,
) -> None:
    """Bookmark properties that are not names are refused, not taken for none."""
    with pytest.raises(
        ProtocolError,
        match=r"LAKE-002 .*bookmark_properties",
    ):
        read_schema(sent)


def test_sent_bookmark_counts_after_first_run() -> None:
    """A bookmark that the run itself sends counts, but not in a first run."""
    came = {"bookmarks": {"s": {"lsn": 4}}}
    assert Extents(None, came, STREAMS).is_whole(stream())
    assert not Extents({"bookmarks": {}}, came, STREAMS).is_whole(stream())


def test_of_our_tap_its_own_word_counts_alone() -> None:
    saved = {"bookmarks": {"other": {"replication_key_value": 1}}}
    assert Extents(saved, saved, STREAMS).is_whole(stream("clock", extent="full"))
    with pytest.raises(ConfigurationError, match=r"LAKE-042 .*--full"):
        Extents(None).check(stream(extent="delta"))


def test_unknown_bookmark_waits_for_all_schemas() -> None:
    """An unknown bookmark means nothing while further schemas may arrive."""
    saved = {"bookmarks": {"other": {"replication_key_value": 1}}}
    assert Extents(saved).is_whole(stream())
    assert not Extents(saved, None, STREAMS).is_whole(stream())


@pytest.mark.parametrize(
    ("extents", "whole"),
    [
        (("full", "full"), True),
        (("delta", "full"), False),
        (("full", "delta"), False),
        (("delta", None), False),
        ((None, "delta"), False),
        (("partial", "full"), False),
        (("full", None), False),
        ((None, "full"), False),
    ],
)
def test_later_schema_makes_no_delta_full(
    extents: tuple[str | None, str | None], whole: bool
) -> None:
    """A stream is full only if each of its schemas says so."""
    first, last = (stream("clock", extent=extent) for extent in extents)
    assert Extents({}).is_whole(last.following(first)) == whole


def test_rows_are_merged_by_their_own_schema() -> None:
    """Rows are merged by the schema that they came under not by a later one without a record."""
    came = replace(stream(method="upsert"), schema={"properties": {"id": {}}})
    resolved = ResolvedStream(
        came, None, Struct(()), BatchPlan.of(Struct(()), None, None, "zstd"), None, True, False
    )
    sink = StreamSink(replace(came, cursor=("at",)), "raw/s", resolved=resolved)
    whole = WholeStreams({}, KeyBatches(None, None), Extents(None, None))
    assert whole.load_of(sink).schema is came
