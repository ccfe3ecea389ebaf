"""What a Parquet file's footer contains, read without Arrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singer_spark.errors import StorageError
from singer_spark.store.parquet_footer import LIKELY_BYTES, rows_of
from singer_spark.store.storage import open_url


def written(folder: Path, rows: int) -> bytes:
    table = pa.table({"id": list(range(rows)), "näme": ["x" * 50] * rows})
    pq.write_table(table, folder / "file", row_group_size=7)
    return (folder / "file").read_bytes()


@pytest.mark.parametrize("rows", [0, 1, 100])
def test_footer_gives_row_count(tmp_path: Path, rows: int) -> None:
    written(tmp_path, rows)
    assert rows_of(open_url(f"{tmp_path}/x")[0], "file") == rows


def test_long_footer_still_gives_the_row_count(tmp_path: Path) -> None:
    """A footer longer than the first read still gives the number of rows."""
    table = pa.table({f"column {number}": [1, 2, 3] for number in range(400)})
    pq.write_table(table, tmp_path / "file", row_group_size=1)
    footer = int.from_bytes((tmp_path / "file").read_bytes()[-8:-4], "little")
    assert footer > LIKELY_BYTES
    assert rows_of(open_url(f"{tmp_path}/x")[0], "file") == 3


@pytest.mark.parametrize("kept", [0, 3, 8, 200, -1])
def test_truncated_file_is_never_counted(tmp_path: Path, kept: int) -> None:
    """A truncated file is an error."""
    (tmp_path / "file").write_bytes(written(tmp_path, 100)[:kept])
    with pytest.raises(StorageError, match="RUN-054"):
        rows_of(open_url(f"{tmp_path}/x")[0], "file")


def test_footer_with_wrong_length_is_reported(tmp_path: Path) -> None:
    whole = written(tmp_path, 100)
    (tmp_path / "file").write_bytes(whole[:-8] + (1).to_bytes(4, "little") + whole[-4:])
    with pytest.raises(StorageError, match="RUN-054"):
        rows_of(open_url(f"{tmp_path}/x")[0], "file")


def test_footer_damaged_after_row_count_is_reported(tmp_path: Path) -> None:
    whole = written(tmp_path, 100)
    (tmp_path / "file").write_bytes(whole[:-48] + b"\x0f" * 40 + whole[-8:])
    with pytest.raises(StorageError, match="RUN-054"):
        rows_of(open_url(f"{tmp_path}/x")[0], "file")
