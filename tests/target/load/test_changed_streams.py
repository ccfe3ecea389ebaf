"""A stream that changed at its source or in the config: said by the run that meets it, also one
without rows.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from singer_spark.errors import ConfigurationError, SchemaError
from target.loading import JSON, Lake, record, schema, state

pytestmark = pytest.mark.usefixtures("without_jvm")
NUMBER = {"type": ["null", "integer"]}
AB = {"a": {"type": "integer"}, "b": {"type": "integer"}, "w": NUMBER}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table with the columns a, b and w, and the merge key a."""
    lake = Lake(tmp_path / "lake")
    load(lake, AB, ("a",), {"a": 1, "b": 1, "w": 1})
    return lake


def load(
    lake: Lake, properties: JSON, key: tuple[str, ...], *rows: JSON, **settings: object
) -> None:
    """A run of a tap that keeps a bookmark."""
    messages = [
        schema("s", properties, key, **{"x-extent": "delta"}),
        *(record("s", **row) for row in rows),
    ]
    end = state(bookmarks={"s": {"replication_key_value": len(rows)}})
    lake.load(*lake.announced([*messages, end]), load_method="upsert", **settings)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    caplog.clear()
    return lines


@pytest.mark.parametrize("rows", [(), ({"a": 2, "b": 2},)], ids=["no rows", "rows"])
def test_removed_column_and_new_key_are_logged_once(
    lake: Lake, caplog: pytest.LogCaptureFixture, rows: tuple[JSON, ...]
) -> None:
    """A removed column and a changed key are logged once, with what they mean."""
    without = {name: AB[name] for name in "ab"}
    load(lake, without, ("a", "b"), *rows)
    gone, key = said(caplog)
    assert (
        gone
        == "stream s: column w is gone from the source, or not selected; rows from before keep it"
    )
    assert key.startswith("stream s: the merge key changes from (a) to (a, b)")
    load(lake, without, ("a", "b"), *rows)
    load(lake, without, ("a", "b"), {"a": 1, "b": 2})
    assert said(caplog) == []
    values = dict(((a, b), w) for a, b, w in lake.rows("s", "a, b, w"))
    assert values == {(1, 1): 1, (1, 2): None, **{(row["a"], row["b"]): None for row in rows}}


def test_changes_are_logged_once_for_repeated_schema(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """A SCHEMA that comes again after its rows, with another bookmark, repeats no line."""
    caplog.set_level(logging.INFO)
    columns = {"a": AB["a"], "b": AB["b"], "colour": {"type": "string"}, "size": NUMBER}
    again = schema("s", columns, ("a",), **{"x-extent": "delta", "x-other": 1})
    messages = [
        schema("s", columns, ("a",), **{"x-extent": "delta"}),
        record("s", a=2, b=2, colour="red"),
        again,
    ]
    lake.load(*lake.announced([*messages, state(bookmarks={})]), load_method="upsert")
    lines = [each.getMessage() for each in caplog.records]
    assert [each for each in lines if " gets " in each or " gone from " in each] == [
        "stream s: its table gets new column colour (string), new column size (bigint)",
        "stream s: column w is gone from the source, or not selected; rows from before keep it",
    ]


def test_renamed_column_is_logged_with_rename_setting(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """A renamed column is logged with the setting that keeps it one column."""
    load(lake, {"a": AB["a"], "b": AB["b"], "v": NUMBER}, ("a",))
    (line,) = said(caplog)
    assert line.startswith("stream s: column w is gone from the source")
    assert "(if v is its new name, `rename`" in line
    assert "v" not in lake.types("s")


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"path": "other"}, ConfigurationError),
        ({"stream_options": {"s": {"path": "other"}}}, ConfigurationError),
        ({"stream_options": {"s": {"partition_by": ["b"]}}}, ConfigurationError),
        ({"schema_evolution": "freeze"}, SchemaError),
    ],
    ids=["path", "stream's path", "folders", "freeze"],
)
def test_changed_config_is_refused_in_its_first_run(lake: Lake, settings: JSON, kind: type) -> None:
    """Not only with the next row; and it comes again until it is fixed."""
    for _ in range(2):
        with pytest.raises(kind):
            load(lake, {**AB, "new": NUMBER}, ("a",), **settings)
    load(lake, AB, ("a",))
    assert lake.rows("s", "a") == [(1,)]


def test_full_stream_at_new_path_logs_old_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full stream at a new path logs where its rows were before."""
    lake = Lake(tmp_path / "lake")
    for path in ("raw", "other", "other"):
        lake.load(
            schema("s", AB, ("a",), **{"x-extent": "full"}),
            record("s", a=1),
            load_method="overwrite",
            path=path,
        )
    (line,) = said(caplog)
    assert line.startswith(
        "stream s: its table is other/s from now on; raw/s, where its rows were so far, stays"
    )


def test_format_downgrade_is_refused_without_rows(tmp_path: Path) -> None:
    """A format that a table cannot return to is refused even without rows."""
    lake = Lake(tmp_path / "lake")
    load(lake, AB, ("a",), {"a": 1}, format="delta")
    with pytest.raises(ConfigurationError, match="LAKE-051"):
        load(lake, AB, ("a",), format="parquet")


def test_unchanged_run_reads_no_table_record(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes the first run after 0.1.0, whose journals do not list the streams."""
    journals = sorted((lake.folder / ".dataspoc/runs/test").glob("*.json"))
    body = json.loads(journals[-1].read_text())
    assert list(body.pop("shapes")) == ["s"]
    monkeypatch.setattr(
        "target_spark_lake.commit.pipeline_run.read_record", lambda *_: pytest.fail("it was read")
    )
    load(lake, AB, ("a",))
    journals[-1].write_text(json.dumps(body))
    for path in sorted((lake.folder / ".dataspoc/runs/test").glob("*.json")):
        if path != journals[-1]:
            path.unlink()
    load(lake, {**AB, "new": NUMBER}, ("a",))
