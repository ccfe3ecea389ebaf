"""Runs that join small files while storage fails, readers look or others change the table: each row
is there once.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from faults.faulty import DIE_BEFORE, FAIL_AFTER, Interrupted, Watched
from faults.small_lake import Wrap, dead_process
from faults.sweep import fault_sweep
from target.formats.fed_table import TABLE, Fed, few
from target_spark_lake.table.table_record import DELTA, PARQUET

__all__ = ["few"]

FAULTS = (FAIL_AFTER, DIE_BEFORE)


@pytest.mark.slow
@pytest.mark.parametrize(("table_format", "folders"), [(PARQUET, 2), (DELTA, 0)])
@pytest.mark.parametrize("fault", FAULTS)
def test_storage_fault_in_a_join_keeps_rows_exact(
    tmp_path: Path, few: int, table_format: str, folders: int, fault: str
) -> None:
    """A fault at any storage call of a joining run loses and repeats no row."""
    first = Fed(f"{tmp_path}/first", tmp_path, table_format, folders=folders)
    for _ in range(few + 1):
        first.sync()

    def lake(name: object) -> Fed:
        shutil.copytree(first.url, tmp_path / f"{name}")
        return replace(first, url=f"{tmp_path}/{name}")

    dead = dead_process()

    def check(whole: Fed) -> None:
        assert len(whole.paths()) == 1 + max(1, folders)

    def join(broken: Fed, wrap: Wrap) -> None:
        broken.sync(broken.storage(wrap), dead)

    for broken in fault_sweep(lake, join, fault, check=check):
        # At the moment of the change, a plain file's rows may be there twice.
        seen = sorted(set(broken.ids()) if table_format == PARQUET else broken.ids())
        assert seen in (list(range(1, few + 2)), list(range(1, few + 3)))
        broken.sync()
        ids = broken.ids()
        assert ids == list(range(1, len(ids) + 1))
        assert len(ids) in (few + 2, few + 3)
        for _ in range(few):
            # A storage that fails while files are joined fails no run: a later one joins them.
            if len(broken.paths()) > few:
                broken.sync()
        assert len(broken.paths()) <= few
        assert broken.ids() == list(range(1, len(broken.ids()) + 1))
        assert broken.storage().list(".dataspoc/staging") == []


@pytest.mark.slow
def test_delta_reader_sees_each_row_once_during_join(tmp_path: Path, few: int) -> None:
    """A reader of a Delta table sees each row once while a run joins its files."""
    lake = Fed(f"{tmp_path}/lake", tmp_path, DELTA)
    for _ in range(few + 1):
        lake.sync()

    def look() -> None:
        assert lake.ids() in (list(range(1, few + 2)), list(range(1, few + 3)))

    lake.sync(lake.storage(lambda files: Watched(files, look)))
    assert lake.ids() == list(range(1, few + 3))
    version = DeltaTable(f"{lake.url}/{TABLE}").version()
    lines = (Path(lake.url) / TABLE / f"_delta_log/{version:020d}.json").read_text().splitlines()
    actions = [(kind, action) for line in lines for kind, action in json.loads(line).items()]
    reported = [
        (kind, action["dataChange"]) for kind, action in actions if kind in ("add", "remove")
    ]
    assert sorted(reported) == [("add", False), ("add", True), *[("remove", False)] * (few + 1)]


@pytest.mark.parametrize("change", ["delete", "optimize"])
def test_delta_append_waits_for_no_other_writer(tmp_path: Path, few: int, change: str) -> None:
    """An append to a delta table waits for nobody where others change the files that it would
    join.
    """
    lake = Fed(f"{tmp_path}/lake", tmp_path, DELTA)
    for _ in range(few + 1):
        lake.sync()

    def other() -> None:
        table = DeltaTable(f"{lake.url}/{TABLE}")
        table.delete("id = 1") if change == "delete" else table.optimize.compact()

    lake.sync(
        lake.storage(
            lambda files: Interrupted(files, lambda name, args: is_entry(name, args), other)
        )
    )
    rows = sorted(DeltaTable(f"{lake.url}/{TABLE}").to_pyarrow_table()["id"].to_pylist())
    assert rows == list(range(2 if change == "delete" else 1, few + 3))


def is_entry(name: str, args: tuple[Any, ...]) -> bool:
    return name == "create" and "_delta_log" in str(args[0])
