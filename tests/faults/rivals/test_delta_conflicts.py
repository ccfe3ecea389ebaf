"""What others write to a Delta table's log between plan and publish of a run is kept, or the run
needs manual action.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import Field, write_deltalake
from deltalake.schema import PrimitiveType

from singer_spark.errors import StorageError
from target.delta_lake import DeltaLake
from target.formats.foreign_schemas import not_null, rewrite_schema
from target.loading import record, schema
from target_spark_lake.delta_log import delta_tables, log_publish

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ITEM = {"id": INT, "name": TEXT}
WIDER = {**ITEM, "new": INT}


class MetLake(DeltaLake):
    """Somebody else acts once, between plan and publish of the next run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.monkeypatch = monkeypatch

    def meet(self, others: Callable[[], Any]) -> None:
        def meeting(*given: Any) -> int | None:
            self.monkeypatch.setattr(delta_tables, "publish_commit", log_publish.publish_commit)
            others()
            return log_publish.publish_commit(*given)

        self.monkeypatch.setattr(delta_tables, "publish_commit", meeting)

    def give_column(self, name: str = "theirs", kind: str = "string") -> None:
        self.table("s").alter.add_columns(
            [Field(name, PrimitiveType(kind), metadata={"comment": "theirs"})]
        )

    def metadata_of(self, name: str) -> Any:
        return next(
            field for field in self.table("s").schema().fields if field.name == name
        ).metadata


def items(properties: dict | None = None, method: str = "append-only") -> dict:
    return schema("s", properties or ITEM, ("id",), **{"x-load-method": method})


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetLake:
    return MetLake(tmp_path / "lake", monkeypatch)


@pytest.mark.parametrize("method", ["append-only", "overwrite", "upsert"])
@pytest.mark.parametrize("properties", [ITEM, WIDER])
def test_foreign_column_added_during_publish_is_kept(
    spark: object, lake: MetLake, method: str, properties: dict
) -> None:
    lake.load(items(method=method), record("s", id=1, name="a"))
    lake.meet(lake.give_column)
    lake.load(
        items(properties, method),
        record("s", id=1, name="b", **({"new": 5} if "new" in properties else {})),
    )
    assert lake.metadata_of("theirs") == {"comment": "theirs"}
    assert lake.rows("s", "name, theirs") == [
        *([("a", None)] if method == "append-only" else []),
        ("b", None),
    ]
    if "new" in properties:
        assert lake.rows("s", "max(new)") == [(5,)]


@pytest.mark.usefixtures("without_jvm")
def test_foreign_column_comment_survives_new_columns(lake: MetLake) -> None:
    """A comment that someone writes while a run adds columns is kept."""
    lake.load(items(), record("s", id=1, name="a"))
    comment = lambda columns: columns[0]["metadata"].update(comment="the key")  # noqa: E731
    lake.meet(
        lambda: rewrite_schema(
            lake, comment, configuration={"delta.logRetentionDuration": "interval 9 days"}
        )
    )
    lake.load(items(WIDER), record("s", id=2, new=2))
    assert lake.metadata_of("id") == {"comment": "the key"}
    assert lake.table("s").metadata().configuration == {
        "delta.logRetentionDuration": "interval 9 days"
    }
    assert lake.rows("s", "id, new") == [(1, None), (2, 2)]


def drops_name(lake: MetLake) -> None:
    write_deltalake(
        lake.table("s"), pa.table({"id": [9]}), mode="overwrite", schema_mode="overwrite"
    )


def retypes_id(lake: MetLake) -> None:
    table = pa.table({"id": ["9"], "name": ["x"]})
    write_deltalake(lake.table("s"), table, mode="overwrite", schema_mode="overwrite")


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize(
    ("others", "said"),
    [
        (drops_name, r"in column\(s\) name, .*which its files have as they were"),
        (retypes_id, r"in column\(s\) id, .*which its files have as they were"),
        (
            lambda lake: lake.give_column("new"),
            r"in column\(s\) new, which its files have as they were",
        ),
        (
            lambda lake: lake.give_column("NEW", "long"),
            r"in column\(s\) NEW, which its files have as they were",
        ),
        (
            lambda lake: rewrite_schema(lake, not_null("name")),
            r"where column\(s\) name are NOT NULL",
        ),
    ],
)
def test_incompatible_columns_need_a_person(
    lake: MetLake, others: Callable[[MetLake], None], said: str
) -> None:
    """Columns that don't fit a run's files are left for a person to resolve."""
    lake.load(items(), record("s", id=1, name="a"))
    lake.meet(lambda: others(lake))
    with pytest.raises(
        StorageError,
        match=rf"LAKE-085 .*raw/s.*{said}",
    ):
        lake.load(items(WIDER), record("s", id=2, new=2))
    with pytest.raises(StorageError, match="LAKE-085"):
        lake.load(items(WIDER), record("s", id=3, new=3))
    lake.table("s").restore(0)
    lake.load(items(WIDER), record("s", id=3, new=3))
    assert lake.rows("s", "id, name, new") == [(1, "a", None), (2, None, 2), (3, None, 3)]


@pytest.mark.usefixtures("without_jvm")
def test_rows_of_an_append_only_table_are_kept(lake: MetLake) -> None:
    """Rows of a table that became append-only in the meantime are not removed."""
    lake.load(items(method="overwrite"), record("s", id=1, name="a"))
    lake.meet(lambda: lake.table("s").alter.set_table_properties({"delta.appendOnly": "true"}))
    with pytest.raises(StorageError, match=r"LAKE-085 .*raw/s"):
        lake.load(items(method="overwrite"), record("s", id=2, name="b"))
    lake.table("s").alter.set_table_properties({"delta.appendOnly": "false"})
    lake.load(items(method="overwrite"), record("s", id=3, name="c"))
    assert lake.rows("s", "id") == [(3,)]
