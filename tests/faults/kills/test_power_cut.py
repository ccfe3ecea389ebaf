"""What must be on the disk before the next step, as shown by the order of fsync, unlink and
rename.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from faults.iceberg_tables import TwoIcebergTables
from faults.small_lake import LAYOUT, SmallLake
from faults.storage.test_delta_faults import GROWS, TwoTables
from singer_spark.errors import ProtocolError
from singer_spark.state.run_log import last_committed
from singer_spark.store.storage import SCRATCH
from target.increment import increment, lake_with_two_rows
from target_spark_lake.commit.checkpoint_file import staged_files
from target_spark_lake.commit.journal import Plan
from target_spark_lake.delta_log.log_publish import write_checkpoint
from target_spark_lake.delta_log.snapshot import LOG_FOLDER


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Each call from now on, with its path."""
    events: list[tuple[str, str]] = []
    fsync, unlink, replace, link = os.fsync, os.unlink, os.replace, os.link

    def record_fsync(descriptor: int) -> None:
        events.append(("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def record_unlink(path: Any, *args: Any, **options: Any) -> None:
        events.append(("unlink", str(path)))
        unlink(path, *args, **options)

    def record_replace(source: Any, target: Any) -> None:
        events.append(("replace", str(target)))
        replace(source, target)

    def record_link(source: Any, target: Any) -> None:
        events.append(("link", str(target)))
        link(source, target)

    monkeypatch.setattr(os, "link", record_link)
    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "unlink", record_unlink)
    monkeypatch.setattr(os, "replace", record_replace)
    return events


def test_files_are_retired_before_published_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retired files are durably removed before the run is marked as published."""
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    events = recorded(monkeypatch)
    lake.sync()
    table, runs = str(tmp_path / LAYOUT.table("whole")), str(tmp_path / LAYOUT.runs)
    gone = max(
        at for at, (call, path) in enumerate(events) if call == "unlink" and path.startswith(table)
    )
    marked = max(
        at for at, (call, path) in enumerate(events) if call == "replace" and path.startswith(runs)
    )
    assert ("fsync", table) in events[gone:marked]


def test_commit_files_are_durable_before_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut could leave a journal that names lost files."""
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    events = recorded(monkeypatch)
    lake.sync()
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    files = Plan.of(entry).publish
    assert len(files) == 3
    table, state = str(tmp_path / LAYOUT.table("whole")), str(tmp_path / LAYOUT.state)
    committed = events.index(("link", str(tmp_path / LAYOUT.journal(entry.run_id))))
    retired = next(
        at for at, (call, path) in enumerate(events) if call == "unlink" and path.startswith(table)
    )
    assert committed < retired < events.index(("replace", state))
    for path in (tmp_path / file.staged for file in files):
        assert {("fsync", str(path)), ("fsync", str(path.parent))} <= set(events[:committed])
    for path in (tmp_path / file.final for file in files):
        assert {("fsync", str(path)), ("fsync", str(path.parent))} <= set(events[committed:retired])


@pytest.mark.usefixtures("without_jvm", "checkpoints_at_once")
def test_staged_files_are_durable_before_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_with_two_rows(tmp_path / "lake")
    lines = lake.announced(increment())[:9]
    events = recorded(monkeypatch)
    with pytest.raises(ProtocolError, match="LAKE-001"):
        lake.load_slowly(*lines, b'"broken\n')
    checkpoint = lake.checkpoint()
    assert checkpoint is not None
    files = [tmp_path / "lake" / path for path in staged_files(checkpoint)]
    assert len(files) == 2
    written = max(
        at
        for at, (call, path) in enumerate(events)
        if call == "replace" and "checkpoint.json" in path
    )
    for path in (*files, *(file.parent for file in files)):
        assert ("fsync", str(path)) in events[:written]


def test_snapshot_files_are_durable_before_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of a snapshot are on disk before the catalog names it."""
    lake = TwoIcebergTables(tmp_path)
    lake.sync()
    events = recorded(monkeypatch)
    before = set((tmp_path / GROWS / "metadata").iterdir())
    commits = SqlCatalog._write_metadata

    def written(**given: Any) -> None:
        commits(**given)
        events.append(("written", given["metadata_path"]))

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(written))
    lake.sync()
    folder = tmp_path / GROWS / "metadata"
    new = set(folder.iterdir()) - before
    assert len(new) >= 3, "a manifest, their list, and the metadata"
    (named,) = [
        at for at, (call, path) in enumerate(events) if call == "written" and str(folder) in path
    ]
    for path in map(str, new):
        made = next(
            at
            for at, (call, place) in enumerate(events)
            if call in ("link", "replace") and place == path
        )
        (call, written_first) = events[made - 1]
        assert call == "fsync" and written_first.startswith(str(tmp_path / SCRATCH))
        assert ("fsync", str(folder)) in events[made:named]


def test_delta_checkpoint_is_durable_before_cleanup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of a Delta log is on disk before older entries are removed."""
    lake = TwoTables(tmp_path)
    lake.sync()
    events = recorded(monkeypatch)
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", lambda _: events.append(("cleanup", "")))
    write_checkpoint(lake.storage(), GROWS)
    log = tmp_path / GROWS / LOG_FOLDER
    for name in (f"{0:020d}.checkpoint.parquet", "_last_checkpoint"):
        assert ("fsync", str(log / name)) in events[: events.index(("cleanup", ""))]
