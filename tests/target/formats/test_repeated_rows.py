"""Rows that a tap sends again, as it says (`x-sent-since`): a table that keeps every version has
each once.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singer_spark.errors import StorageError
from target.formats.merging.keyed_items import item, items, lake
from target.loading import Lake

__all__ = ["lake"]

every_format = pytest.mark.parametrize("lake", ["parquet", "delta", "iceberg"], indirect=True)


@every_format
def test_repeated_row_is_left_out(lake: Lake) -> None:
    """It is recognised by its whole content, from the key on that the SCHEMA names; others are
    versions of their own.
    """
    lake.load(items("append-only"), item(1, 1, "a"), item(2, 5, "b"), item(3, 7, None))
    again = items("append-only", **{"x-sent-since": 5})
    lake.load(
        again,
        item(1, 1, "a"),
        item(2, 5, "b"),
        item(3, 7, "changed"),
        item(3, 7, None),
        item(4, 8, "new"),
    )
    assert sorted(lake.rows("s", "id, clock, name"), key=repr) == [
        (1, 1, "a"),
        (1, 1, "a"),
        (2, 5, "b"),
        (3, 7, "changed"),
        (3, 7, None),
        (4, 8, "new"),
    ]
    lake.load(again, item(2, 5, "b"), item(4, 8, "new"))
    assert len(lake.rows("s", "id")) == 6


@every_format
def test_history_repeats_no_version(lake: Lake) -> None:
    lake.load(items("append-dedup"), item(1, 5, "a"), item(2, 6, "b"))
    lake.load(items("append-dedup", **{"x-sent-since": 5}), item(1, 5, "a"), item(2, 6, "b2"))
    assert lake.rows("s", "id, name") == [(1, "a"), (2, "b2")]
    assert sorted(lake.rows("s__history", "id, name")) == [(1, "a"), (2, "b"), (2, "b2")]


def test_identical_keyless_rows_are_counted(lake: Lake) -> None:
    keyless = {**items("append-only", **{"x-sent-since": 5}), "key_properties": []}
    lake.load(
        {**items("append-only"), "key_properties": []}, item(None, 5, "a"), item(None, 5, "a")
    )
    lake.load(keyless, item(None, 5, "a"), item(None, 5, "a"), item(None, 5, "a"))
    assert lake.rows("s", "name") == [("a",)] * 3


def test_rows_below_are_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only files whose keys reach the window are opened for their rows."""
    import pyarrow.parquet

    read: list[int] = []
    whole = pyarrow.parquet.ParquetFile.read_row_group

    def counted(self, group: int, *args, **options):
        read.append(self.metadata.num_rows)
        return whole(self, group, *args, **options)

    lake.load(items("append-only"), *(item(n, n, "old") for n in range(50)))
    lake.load(items("append-only"), item(60, 60, "a"))
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "read_row_group", counted)
    lake.load(items("append-only", **{"x-sent-since": 55}), item(60, 60, "a"), item(61, 61, "b"))
    assert 50 not in read
    assert len(lake.rows("s", "id")) == 52


def test_file_of_other_types_hides_no_repeated_row(lake: Lake) -> None:
    """Where the rows of a table can't be compared, nothing is taken for new."""
    lake.load(items("append-only"), item(1, 5, "a"))
    (path,) = (lake.folder / "raw/s").iterdir()
    pq.write_table(pa.table({"id": ["x"], "clock": [5], "name": ["a"]}), path)
    before = lake.files()
    with pytest.raises(StorageError, match=r"LAKE-074 stream s: .*raw/s/"):
        lake.load(items("append-only", **{"x-sent-since": 5}), item(1, 5, "a"))
    assert lake.files() == before
