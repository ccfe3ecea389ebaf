"""Where batches are written: the bucket itself where the writer reaches it, whatever the stream is
called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singer_spark.store.storage import Storage
from target.loading import Lake, record, schema
from target_spark_lake.stage.batch_plan import StagingLocation
from target_spark_lake.table.changes import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = {"id": {"type": "integer"}}
NESTED = {"point": {"type": "object", "properties": {"x": {"type": "integer"}}}}


@pytest.mark.parametrize("staging", ["local", "spark"])
def test_streams_with_encoded_names_are_loaded(
    spark: SparkSession, tmp_path: Path, staging: str
) -> None:
    """Streams with encoded names are loaded by Arrow and by Spark."""
    lake = Lake(tmp_path / "my lake")
    lake.load(
        schema("plain é 1", ID),
        schema("nested 50%", NESTED),
        record("plain é 1", id=1),
        record("nested 50%", point={"x": 2}),
        staging=staging,
    )
    assert lake.rows("plain%20%C3%A9%201", "id") == [(1,)]
    assert lake.rows("nested%2050%25", "point.x") == [(2,)]


def test_local_files_are_uploaded_and_removed(
    tmp_path: Path,
) -> None:
    """Files written locally are uploaded whole and then removed."""
    storage = Storage("memory://brought")
    place = StagingLocation.of(storage, "staging/batch", tmp_path / "written")
    path = place.path("lines/a.parquet")
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), path)
    size = path.stat().st_size
    assert place.bring(None) == (StagedFile("staging/batch/lines/a.parquet", 2, size),)
    assert storage.list("staging/batch")[0].size == size
    assert not (tmp_path / "written").exists()
