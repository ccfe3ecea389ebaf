"""What other accounts of the machine can read of a lake in a folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from singer_spark.errors import ConfigurationError
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema, state
from target_spark_lake.config.settings import TargetSettings

INT = {"type": ["integer", "null"]}

pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.fixture(params=[0o022, 0o002, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("kind", [Lake, IcebergLake])
def test_private_files(tmp_path: Path, umask: int, kind: type[Lake]) -> None:
    """Others can't read journals, rejected records and the catalog.

    Tables and the state are as the umask says.
    """
    lake = kind(tmp_path / "lake")
    lake.load(
        *(
            schema("s", {"id": INT}),
            record("s", id=1),
            record("s", id="x"),
            state(bookmarks={"s": {"id": 1}}),
        ),
        on_invalid_record="quarantine",
    )
    modes = {
        path.relative_to(lake.folder).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in lake.folder.rglob("*")
        if path.is_file()
    }
    private = {
        path for path in modes if path.startswith((".dataspoc/runs/", ".dataspoc/rejected/"))
    }
    private |= {path for path in modes if path.endswith("catalog.db")}
    assert len(private) == (3 if kind is IcebergLake else 2)
    assert {modes[path] for path in private} == {0o660 & ~umask}
    public = {path for path in modes if path.endswith((".parquet", "state.json"))}
    assert len(public) == 2
    assert {modes[path] for path in public} == {0o666 & ~umask}


@pytest.mark.parametrize("name", ["p" * 241, "é" * 41])
def test_long_pipeline_names(tmp_path: Path, name: str) -> None:
    """A pipeline's name that no folder can have is an error of the config.

    A bucket elsewhere takes it.
    """
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*24"):
        TargetSettings.from_config({"bucket": str(tmp_path / "lake"), "pipeline": name})
    assert TargetSettings.from_config({"bucket": "s3://lake", "pipeline": name}).pipeline == name
    lake = Lake(tmp_path / "lake")
    lake.load(schema("s", {"id": INT}), record("s", id=1), pipeline="p" * 240)
    assert lake.rows("s", "id") == [(1,)]
